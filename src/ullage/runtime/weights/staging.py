"""Which block lies in which staging buffer, and what is read next. It has no threads and reads nothing.

A buffer is free; or a block is read to it; or the block is there, until it is copied on. One whose block is no longer wanted
while it is still read to is free when that has ended, and not before.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import torch


def no_wait() -> None:
    """Wait for nothing."""


@dataclass(eq=False)
class StagingBuffer:
    """A stretch of pinned memory that blocks are read to.

    Attributes:
        data: Its bytes, uint8.
        block: What lies there, or is read to it; None: nothing that is wanted.
        version: The block's version when reading began.
        is_reading: Whether something is read to it.
        drain: Waits for the last copy from it.
    """

    data: torch.Tensor
    block: int | None = None
    version: int = -1
    is_reading: bool = False
    drain: Callable[[], None] = no_wait


class Staging:
    """A few staging buffers.

    Attributes:
        buffers: They; those whose copy was issued first come first.
    """

    def __init__(self, buffers: Sequence[torch.Tensor]) -> None:
        """Begin with free buffers.

        Args:
            buffers: Their memory, uint8.
        """
        self.buffers = [StagingBuffer(data) for data in buffers]

    @property
    def is_reading(self) -> bool:
        """Whether something is read to any buffer."""
        return any(one.is_reading for one in self.buffers)

    def of(self, block: int) -> StagingBuffer | None:
        """Return the buffer that a block lies in or is read to; None: there is none."""
        return next((one for one in self.buffers if one.block == block), None)

    def drop(self, block: int) -> None:
        """Take a block for stale."""
        self.keep(one.block for one in self.buffers if one.block not in (None, block))

    def keep(self, blocks: Iterable[int | None]) -> None:
        """Take all other blocks than these for stale."""
        kept = set(blocks)
        for one in self.buffers:
            if one.block not in kept:
                one.block = None

    def copied(self, buffer: StagingBuffer, drain: Callable[[], None]) -> None:
        """Note that a copy of a buffer was issued: it is free when that is done.

        Args:
            buffer: The buffer.
            drain: Waits for the copy.
        """
        buffer.block, buffer.drain = None, drain
        self.buffers.remove(buffer)
        self.buffers.append(buffer)

    def next_reads(self, asked: Sequence[int], foreseen: Sequence[int]) -> list[StagingBuffer]:
        """Give buffers to the blocks that are wanted first.

        Where none is free, a block takes the buffer of the one that is wanted last; of one that nobody wants, if there is any.

        Args:
            asked: The blocks on disk that somebody asked for, the first one first.
            foreseen: Those that will be asked for, the next one first.

        Returns:
            The buffers whose block is to be read now, in that order. They are marked so.
        """
        begun: list[StagingBuffer] = []
        wanted = [*asked, *(block for block in foreseen if block not in asked)]
        for rank, block in enumerate(wanted):
            if self.of(block) is not None:
                continue
            buffer = self._free() or self._take(wanted, rank)
            if buffer is None:
                break  # what is wanted later finds none either
            buffer.block, buffer.is_reading = block, True
            begun.append(buffer)
        return begun

    def _free(self) -> StagingBuffer | None:
        return next((one for one in self.buffers if one.block is None and not one.is_reading), None)

    def _take(self, wanted: list[int], above: int) -> StagingBuffer | None:
        """Take the buffer that is wanted last, and later than `above`; return it if it is free at once."""

        def rank(one: StagingBuffer) -> int:
            return wanted.index(one.block) if one.block in wanted else len(wanted)

        last = max(self.buffers, key=lambda one: (rank(one), not one.is_reading))
        if rank(last) <= above:
            return None
        last.block = None
        return None if last.is_reading else last
