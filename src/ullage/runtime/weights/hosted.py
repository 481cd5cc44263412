"""A block whose weights are at home on the host, and are lent to a buffer while it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from ullage.errors import RuntimeMemoryError
from ullage.runtime.weights.arena import PinnedArena, typed_view

if TYPE_CHECKING:
    from collections.abc import Callable

    from ullage.runtime.weights.blocks import Block


class HostedBlock:
    """A block's weights in an arena.

    Attributes:
        block: The block.
        data: The weights' bytes on the host, uint8.
        copied_version: `version()` when it was last copied to a buffer.
    """

    def __init__(self, block: Block, fill: Callable[[torch.Tensor, torch.Tensor], None], *, is_pinned: bool) -> None:
        """Move a block's weights to the host.

        Args:
            block: The block.
            fill: Writes a parameter's values to the tensor that is given with it.
            is_pinned: Whether to page-lock the memory.

        Raises:
            RuntimeMemoryError: The host does not give or lock it; the block is as it was.
        """
        arena = PinnedArena(block.size_bytes, is_pinned=is_pinned)
        self.block, self.data, self.copied_version = block, arena.data, -1
        self._homes = [typed_view(arena.data, weight.offset, weight.parameter) for weight in block.weights]
        self._views: dict[int, list[torch.Tensor]] = {}
        for weight, home in zip(block.weights, self._homes, strict=True):
            fill(weight.parameter, home)
        self.send_home()

    def version(self) -> int:
        """Return how often weights were changed in place."""
        return sum(weight.parameter._version for weight in self.block.weights)

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
            if parameter.data_ptr() == home.data_ptr():
                continue
            if parameter.dtype != home.dtype or parameter.shape != home.shape:
                raise RuntimeMemoryError(
                    f"{self.block.name}.{weight.name} became {parameter.dtype} {tuple(parameter.shape)} while it is streamed "
                    f"as {home.dtype} {tuple(home.shape)}: unstream() the model first"
                )
            home.copy_(parameter.data)
            parameter.data = home

    def lend(self, slot: int, buffer: torch.Tensor) -> None:
        """Let the block find its weights in a buffer.

        Args:
            slot: The buffer's number.
            buffer: Its bytes, uint8.
        """
        if slot not in self._views:
            self._views[slot] = [typed_view(buffer, weight.offset, weight.parameter) for weight in self.block.weights]
        for weight, view in zip(self.block.weights, self._views[slot], strict=True):
            weight.parameter.data = view

    def write_back(self, slot: int) -> None:
        """Copy a buffer's weights home, where they were changed while the block ran. It waits for the GPU."""
        for home, view in zip(self._homes, self._views[slot], strict=True):
            home.copy_(view)

    def send_home(self) -> None:
        """Let the block find its weights on the host."""
        for weight, home in zip(self.block.weights, self._homes, strict=True):
            weight.parameter.data = home

    def leave(self, device: torch.device) -> None:
        """Move the weights to memory of their own.

        Args:
            device: Where to.
        """
        for weight in self.block.weights:
            weight.parameter.data = weight.parameter.data.to(device, copy=True)
