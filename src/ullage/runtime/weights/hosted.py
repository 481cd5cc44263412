"""A block whose weights are at home on the host or in a file, and are lent to a buffer while it runs."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from ullage.errors import RuntimeMemoryError
from ullage.runtime.weights.arena import PinnedArena, typed_view
from ullage.runtime.weights.homes import Home, PlainHome, home_of, stored_offsets

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import nn

    from ullage.runtime.weights.block_file import BlockFile, FilePart
    from ullage.runtime.weights.blocks import Block
    from ullage.runtime.weights.coding import Storage


class HostedBlock:
    """A block's weights in an arena, or in a part of a file.

    Attributes:
        block: The block.
        part: Where in the file they lie; None: they lie in an arena.
        data: The weights' bytes on the host, uint8.
        copied_version: `version()` when it was last copied to a buffer.
        settle: Waits for copies that were issued and may not have read the host yet.
    """

    def __init__(
        self,
        block: Block,
        fill: Callable[[torch.Tensor, torch.Tensor], None],
        *,
        is_pinned: bool,
        storage: Storage | None = None,
        file: BlockFile | None = None,
    ) -> None:
        """Move a block's weights to the host.

        Args:
            block: The block.
            fill: Writes a parameter's values to the tensor that is given with it.
            is_pinned: Whether to page-lock the memory.
            storage: How matrices are stored; None: as they are.
            file: What they lie in; None: pinned memory.

        Raises:
            RuntimeMemoryError: The host does not give or lock it; the block is as it was.
        """
        offsets, size_bytes = stored_offsets(block, storage)
        self.part: FilePart | None = None if file is None else file.take(size_bytes)
        data = PinnedArena(size_bytes, is_pinned=is_pinned).data if self.part is None else self.part.data
        self.block, self.data, self.copied_version = block, data, -1
        self.settle: Callable[[], None] = lambda: None
        self._homes = [
            home_of(data, offset, weight.parameter, storage)
            for offset, weight in zip(offsets, block.weights, strict=True)
        ]
        self._likes = [torch.empty_like(weight.parameter.data, device="meta") for weight in block.weights]
        self._num_taken = 0
        self._views: dict[int, list[torch.Tensor]] = {}
        self._hooks = [] if storage is None else [block.module.register_state_dict_post_hook(partial(self._save))]
        for weight, home in zip(block.weights, self._homes, strict=True):
            if isinstance(home, PlainHome):
                fill(weight.parameter, home.resting)
            else:
                values = torch.empty_like(weight.parameter.data, device="cpu")
                fill(weight.parameter, values)
                home.store(values)
        if self.part is not None:
            self.part.rest()
        self.send_home()

    def version(self) -> int:
        """Return how often weights were changed in place, or got other memory."""
        return self._num_taken + sum(int(weight.parameter._version) for weight in self.block.weights)

    def take_changes(self) -> None:
        """Bring home what was done to weights while they were at home: memory that was replaced, as by `model.to`.

        Raises:
            RuntimeMemoryError: A weight has another type or shape, or its module has another weight.
        """
        for weight, home in zip(self.block.weights, self._homes, strict=True):
            parameter = weight.parameter
            if not weight.is_in_place:
                raise RuntimeMemoryError(
                    f"{self.block.name}.{weight.name} was replaced while it is streamed: unstream() the model first"
                )
            resting = home.resting
            if parameter.data_ptr() == resting.data_ptr() and parameter.stride() == resting.stride():
                continue
            if self._is_lent(parameter):  # a block that was broken off, or a pass of another thread
                parameter.data = resting
                continue
            if parameter.dtype != resting.dtype or parameter.shape != resting.shape:
                raise RuntimeMemoryError(
                    f"{self.block.name}.{weight.name} became {parameter.dtype} {tuple(parameter.shape)} while it is streamed "
                    f"as {resting.dtype} {tuple(resting.shape)}: unstream() the model first"
                )
            self.settle()
            home.store(parameter.data.clone())  # it may be the same memory in another order
            parameter.data = resting
            self._num_taken += 1

    def _is_lent(self, parameter: torch.Tensor) -> bool:
        return any(parameter.data_ptr() == view.data_ptr() for views in self._views.values() for view in views)

    def lend(self, slot: int, buffer: torch.Tensor) -> None:
        """Let the block find its weights in a buffer.

        Args:
            slot: The buffer's number.
            buffer: Its bytes, uint8.
        """
        for weight, view in zip(self.block.weights, self._views_of(slot, buffer), strict=True):
            weight.parameter.data = view

    def land(self, landing: torch.Tensor, slot: int, buffer: torch.Tensor) -> None:
        """Make the weights of the block's bytes.

        Args:
            landing: Where these were copied to, uint8.
            slot: The buffer's number.
            buffer: Its bytes, uint8.
        """
        for home, view in zip(self._homes, self._views_of(slot, buffer), strict=True):
            home.land(landing, view)

    def write_back(self, slot: int) -> None:
        """Copy a buffer's weights home, where they were changed while the block ran. It waits for the GPU."""
        self.settle()
        for home, view in zip(self._homes, self._views[slot], strict=True):
            home.store(view)

    def send_home(self) -> None:
        """Let the block find its weights on the host."""
        for weight, home in zip(self.block.weights, self._homes, strict=True):
            weight.parameter.data = home.resting

    def homes(self) -> dict[int, Home]:
        """Return each weight's home by the id of its parameter."""
        return {id(weight.parameter): home for weight, home in zip(self.block.weights, self._homes, strict=True)}

    def close(self) -> None:
        """Let the module save itself as it did before, and let go of what copies."""
        self.settle = lambda: None
        for hook in self._hooks:
            hook.remove()

    def _views_of(self, slot: int, buffer: torch.Tensor) -> list[torch.Tensor]:
        if slot not in self._views:
            pairs = zip(self.block.weights, self._likes, strict=True)
            self._views[slot] = [typed_view(buffer, weight.offset, like) for weight, like in pairs]
        return self._views[slot]

    def _save(self, module: nn.Module, state: dict[str, Any], prefix: str, metadata: Any) -> None:
        """Put weights in a state dict where it has what their parameters are at home."""
        for weight, home in zip(self.block.weights, self._homes, strict=True):
            if f"{prefix}{weight.name}" in state:
                state[f"{prefix}{weight.name}"] = home.value()
