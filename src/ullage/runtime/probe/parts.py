"""Parts of a block, timed one after the other, so that no cache has them and none is where another was."""

from __future__ import annotations

from itertools import cycle
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ullage.runtime.probe.gpu import Block, Run


class Walk:
    """Goes through a block part by part, and begins again where it ends.

    Args:
        block: The block.
    """

    def __init__(self, block: Block) -> None:
        self._block = block
        self._next = 0

    def num_parts(self, size_bytes: int) -> int:
        """Return how many parts of a size the block has.

        Args:
            size_bytes: The size, at most the block's.
        """
        return self._block.size_bytes // size_bytes

    def take(self, size_bytes: int) -> Block:
        """Return the next part.

        Args:
            size_bytes: Its size, at most the block's.
        """
        if self._next + size_bytes > self._block.size_bytes:
            self._next = 0
        begin = self._next
        self._next += size_bytes
        return self._block.part(begin, size_bytes)


def parts_of(block: Block, size_bytes: int) -> list[Block]:
    """Return the parts of a block, side by side; what is left at its end is in none.

    Args:
        block: The block.
        size_bytes: A part's size; the block itself where that is smaller.
    """
    size_bytes = min(size_bytes, block.size_bytes)
    return [block.part(begin, size_bytes) for begin in range(0, block.size_bytes - size_bytes + 1, size_bytes)]


def in_turn(runs: Iterable[Run]) -> Run:
    """Join prepared runs to one that does another of them each time.

    Example:
        >>> done = []
        >>> run = in_turn([lambda: done.append("a"), lambda: done.append("b")])
        >>> run(), run(), run(), done
        (None, None, None, ['a', 'b', 'a'])
    """
    turns = cycle(runs)
    return lambda: next(turns)()
