"""Which streamed block lies in which buffer, and which is copied next. It knows no GPU: what moves bytes is handed to it.

Blocks are counted in the order in which they run; the buffers hold a window of them that moves on as they run::

    blocks            0    1    2    3    4    5            two buffers, block 2 runs
    in buffers                  2    3                      when it is done, 4 is copied to where it was

A pass forwards begins at its first block and takes nothing over from the pass before: weights may have been changed between.
A pass backwards takes over what the pass forwards left.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence


class Copies(Protocol):
    """What moves blocks, in order, beside the computation that is being issued."""

    def copy_in(self, block: int, slot: int) -> None:
        """Issue a copy of a block to a buffer, after what `done_with` last marked for it."""

    def wait_for(self, slot: int) -> None:
        """Let what is computed from now on wait for the last copy to a buffer."""

    def done_with(self, slot: int) -> None:
        """Mark that what was computed so far may have read a buffer, and what is computed from now on does not."""

    def foresee(self, blocks: Sequence[int]) -> None:
        """Take note of what will be copied after what was issued, the next one first, in place of what was foreseen before."""

    def begin(self) -> None:
        """Take nothing over: copies that were not issued yet are not, and what was made ready for any is dropped."""


class Ring:
    """A window of blocks in a few buffers.

    Attributes:
        num_copies: The copies issued so far.
    """

    def __init__(self, num_blocks: int, num_slots: int, copies: Copies) -> None:
        """Make a ring.

        Args:
            num_blocks: The blocks that are streamed.
            num_slots: The buffers; with one, nothing overlaps.
            copies: What moves blocks.
        """
        if num_slots < 1:
            raise ValueError("at least one buffer is needed")
        self.num_copies = 0
        self._num_blocks, self._copies = num_blocks, copies
        self._slot_of: dict[int, int] = {}
        self._free = list(range(num_slots))
        self._running: set[int] = set()  # acquired, and not released yet
        self._read: set[int] = set()  # read by a pass backwards since it was copied
        self._last = -1
        self._direction = 1

    def begin(self) -> None:
        """Begin a pass forwards: forget what the buffers hold, and copy the first blocks."""
        for block in list(self._slot_of):
            self._evict(block)
        self._free.sort()  # so that a block finds the same buffer in each pass, as a CUDA graph of it needs
        self._running.clear()
        self._last, self._direction = -1, 1
        self._copies.begin()
        self._fill(0)

    def acquire(self, block: int) -> int:
        """Let a block run: what is computed from now on finds it in a buffer.

        Args:
            block: The block; one that nobody foresaw is copied now, and waited for.

        Returns:
            The buffer.
        """
        if block == self._last + 1:
            self._direction = 1
        self._last = block
        self._running.add(block)
        return self._loaded(block)

    def release(self, block: int) -> None:
        """Take note that a block has run, and copy another one to where it was."""
        self._running.discard(block)
        if block in self._slot_of:
            self._copies.done_with(self._slot_of[block])
        self._fill(block + self._direction)

    def read(self, block: int) -> int:
        """Let a pass backwards read a block, which is not released: the one that is read next says that it is done.

        Returns:
            The buffer.
        """
        if block != self._last:
            self._direction = 1 if block > self._last else -1
            self._last = block
        elif block == self._num_blocks - 1:
            self._direction = -1
        slot = self._loaded(block)
        self._read.add(block)
        self._fill(block)
        return slot

    def forget(self, block: int) -> None:
        """Take what a buffer holds of a block for stale."""
        if block in self._slot_of and block not in self._running:
            self._evict(block)

    def forget_running(self, block: int) -> None:
        """Take what a buffer holds for stale, of a block that has just run, before it is released."""
        self._running.discard(block)
        if block in self._slot_of:
            self._copies.done_with(self._slot_of[block])
            self._evict(block)

    def drop(self) -> None:
        """Take for stale what all buffers hold."""
        for block in list(self._slot_of):
            self.forget(block)

    def slot_of(self, block: int) -> int | None:
        """Return the buffer that holds a block; None where none does."""
        return self._slot_of.get(block)

    def _loaded(self, block: int) -> int:
        if block not in self._slot_of:
            self._copy(block, {block})
        slot = self._slot_of[block]
        try:
            self._copies.wait_for(slot)
        except BaseException:  # it could not be read, or somebody did not want to wait for it
            self._running.discard(block)
            self._evict(block)
            raise
        return slot

    def _fill(self, first: int) -> None:
        """Copy the blocks that come next, as far as there are buffers."""
        count = len(self._slot_of) + len(self._free) - len(self._running)
        wanted = [first + step * self._direction for step in range(count)]
        wanted = [block for block in wanted if 0 <= block < self._num_blocks]
        for block in wanted:
            if block not in self._slot_of:
                self._copy(block, set(wanted))
        end = self._num_blocks if self._direction > 0 else -1
        beyond = range(first + count * self._direction, end, self._direction)
        self._copies.foresee([block for block in beyond if block not in self._slot_of])

    def _copy(self, block: int, wanted: set[int]) -> None:
        if not self._free:
            kept = wanted | self._running
            self._evict(next(one for one in self._slot_of if one not in kept))
        slot = self._free.pop(0)
        try:
            self._copies.copy_in(block, slot)
        except BaseException:
            self._free.append(slot)
            raise
        self._slot_of[block] = slot
        self.num_copies += 1

    def _evict(self, block: int) -> None:
        slot = self._slot_of.pop(block)
        if block in self._read:
            self._copies.done_with(slot)
            self._read.discard(block)
        self._free.append(slot)
