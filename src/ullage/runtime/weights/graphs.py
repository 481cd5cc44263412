"""CUDA graphs keep the addresses of weights: where one would read what has moved, an error says so before it can."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from ullage.errors import RuntimeMemoryError

if TYPE_CHECKING:
    from torch import nn


def check_not_graphed(model: nn.Module) -> None:
    """Check that no module replays a graph that `torch.cuda.make_graphed_callables` made of it.

    Args:
        model: A model whose weights are to move.

    Raises:
        RuntimeMemoryError: One does; it would compute with what now lies where its weights were.
    """
    for name, module in model.named_modules():
        forward = getattr(vars(module).get("forward"), "__qualname__", "")
        if f"{torch.cuda.make_graphed_callables.__name__}." in forward:  # other libraries have one of their own
            raise RuntimeMemoryError(
                f"{name or 'the model'} replays a CUDA graph of itself, which would not find its weights where they move: "
                "stream the model as it was before make_graphed_callables()"
            )


def check_not_capturing(device: torch.device) -> None:
    """Check that no graph is being captured.

    Args:
        device: Where a streamed block is about to run, or to be read by a pass backwards.

    Raises:
        RuntimeMemoryError: One is; its replays would run without copying weights. The capture goes on.
    """
    if device.type != "cuda":
        return
    with torch.cuda.device(device):
        is_capturing = torch.cuda.is_current_stream_capturing()
    if is_capturing:
        raise RuntimeMemoryError(
            "a pass through a streamed model cannot be captured in a CUDA graph, whose replays would copy no weights; "
            'block.compile(mode="reduce-overhead") makes a graph of each block'
        )
