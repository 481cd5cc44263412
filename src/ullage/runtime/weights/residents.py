"""Moves what is not streamed to the GPU and back: gradients with their parameters, shared memory once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


def move(
    tensors: Iterable[torch.Tensor], device: torch.device, done: Callable[[torch.Tensor, torch.Tensor], None]
) -> None:
    """Move parameters and buffers.

    Args:
        tensors: What is moved; each once.
        device: Where to; what is there already stays.
        done: Called with each tensor before it gets its new memory, and with what it had.
    """
    groups: dict[int, list[torch.Tensor]] = {}
    for tensor in tensors:
        if tensor.device != device:
            key = tensor.untyped_storage().data_ptr() if tensor.numel() else id(tensor)
            groups.setdefault(key, []).append(tensor)
    for group in groups.values():
        for tensor, data in zip(group, _moved(group, device), strict=True):
            done(tensor, tensor.data)
            tensor.data = data
            if tensor.grad is not None:
                tensor.grad = tensor.grad.to(device)


def _moved(group: list[torch.Tensor], device: torch.device) -> list[torch.Tensor]:
    """Return tensors over the same memory on another device, over the same memory there."""
    storage = group[0].untyped_storage()
    own_bytes = sum(one.numel() * one.element_size() for one in group)
    if storage.nbytes() > own_bytes or (len(group) == 1 and storage.nbytes() == own_bytes):
        return [one.data.to(device) for one in group]  # a part of something larger, or all of its own
    whole = torch.empty(0, dtype=torch.uint8, device=group[0].device).set_(storage).to(device).untyped_storage()
    return [
        torch.empty(0, dtype=one.dtype, device=device).set_(whole, one.storage_offset(), one.size(), one.stride())
        for one in group
    ]
