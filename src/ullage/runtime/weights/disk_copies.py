"""Copies of blocks of which some lie on disk: these are read ahead to staging buffers, and copied from there.

Copies are issued in the order in which they are asked for, whatever lies where; one that waits for the disk holds up those
after it. Otherwise a copy that waits for its buffer to be used, on the one stream of copies, would hold up a block that is
wanted before it. The thread that reads a block's last bytes issues its copy, and those that waited behind it::

    asked for           1 (disk)    2           3 (disk)          computing
    read                [ 1       ][ 3       ]
    copied                         [ 1 ][ 2 ] [ 3 ]
    computed                            [ 1   ][ 2   ][ 3   ]

One lock guards who asked for what and which staging buffer holds what; copies are issued under it.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections import deque
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol

from ullage.errors import RuntimeMemoryError
from ullage.runtime.weights.disk_plan import paged
from ullage.runtime.weights.disk_reader import Reading
from ullage.runtime.weights.staging import Staging, StagingBuffer, no_wait

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import torch

_NUM_TIMED = 5


class HostToSlot(Protocol):
    """What copies from host memory to buffers: `HostCopies` or `CudaCopies`."""

    def copy_in(self, block: int, slot: int) -> None:
        """Issue a copy of a block that lies in pinned memory."""

    def copy_from(self, source: torch.Tensor, block: int, slot: int) -> None:
        """Issue a copy of a block's bytes, which lie elsewhere."""

    def mark(self) -> Callable[[], None]:
        """Return what waits for the copies that were issued up to now."""

    def wait_for(self, slot: int) -> None:
        """Let what is computed from now on wait for the last copy to a buffer."""

    def done_with(self, slot: int) -> None:
        """Mark that what was computed so far may have read a buffer."""

    def settle(self) -> None:
        """Wait for all copies."""


class Reader(Protocol):
    """What reads a file beside: `DiskReader`."""

    def start(self, reading: Reading) -> None:
        """Begin to read a stretch, after those before."""

    def close(self) -> None:
        """End its threads."""


@dataclass(frozen=True, kw_only=True)
class DiskBlock:
    """A block on disk.

    Attributes:
        name: What it is called in messages.
        offset: Where it begins in the file, in bytes.
        size_bytes: Its bytes.
        version: Tells how often it was changed.
    """

    name: str
    offset: int
    size_bytes: int
    version: Callable[[], int]


class _Request(NamedTuple):
    block: int
    slot: int


class DiskCopies:
    """Copies in order, of blocks in pinned memory and of blocks on disk."""

    def __init__(
        self, copies: HostToSlot, blocks: Mapping[int, DiskBlock], buffers: Sequence[torch.Tensor], reader: Reader
    ) -> None:
        """Prepare.

        Args:
            copies: What copies from host memory to buffers.
            blocks: The blocks on disk by their numbers; the others lie in pinned memory.
            buffers: The staging buffers, uint8, each as long as the largest of the blocks in whole pages.
            reader: What reads the file.
        """
        self._copies, self._blocks, self._reader = copies, blocks, reader
        self._staging = Staging(buffers)
        self._views = {id(one): memoryview(one.data.numpy()) for one in self._staging.buffers}
        self._changed = threading.Condition()
        self._asked: deque[_Request] = deque()
        self._foreseen: list[int] = []
        self._failed: dict[int, tuple[int, BaseException]] = {}

    def copy_in(self, block: int, slot: int) -> None:
        """Ask for a copy of a block to a buffer. What was asked for before, of the block or to the buffer, is not copied."""
        with self._changed:
            self._asked = deque(one for one in self._asked if one.block != block and one.slot != slot)
            self._failed.pop(slot, None)
            self._foreseen = [one for one in self._foreseen if one != block]
            staged = self._staging.of(block)
            if staged is not None and staged.version != self._blocks[block].version():
                self._staging.drop(block)  # it was changed since
            self._asked.append(_Request(block, slot))
            self._advance()

    def foresee(self, blocks: Sequence[int]) -> None:
        """Read these blocks ahead, as far as there are staging buffers, the next one first."""
        with self._changed:
            self._foreseen = [block for block in blocks if block in self._blocks]
            self._advance()

    def begin(self) -> None:
        """Forget what was asked for, and what was read."""
        with self._changed:
            self._asked.clear()
            self._failed.clear()
            self._foreseen = []
            self._staging.keep([])
            self._changed.notify_all()

    def wait_for(self, slot: int) -> None:
        """Let the current stream wait for the last copy to a buffer.

        Raises:
            RuntimeMemoryError: The block could not be read, or its copy was refused.

        Cost: the host waits until the copy is issued, and so for the disk.
        """
        with self._changed:
            self._changed.wait_for(lambda: all(one.slot != slot for one in self._asked))
            failed = self._failed.get(slot)
        if failed is not None:
            block, error = failed
            name = self._blocks[block].name if block in self._blocks else f"streamed block {block}"
            raise RuntimeMemoryError(f"{name} cannot be brought from the disk to its buffer: {error}") from error
        self._copies.wait_for(slot)

    def done_with(self, slot: int) -> None:
        """Mark that what was issued on the current stream may have read a buffer."""
        self._copies.done_with(slot)

    def settle(self) -> None:
        """Wait until all that was asked for is copied and nothing is read: weights are about to be written to.

        What was read ahead is dropped.
        """
        with self._changed:
            self._foreseen = []
            self._staging.keep(one.block for one in self._asked)
            self._changed.wait_for(lambda: not self._asked and not self._staging.is_reading)
        self._copies.settle()

    def close(self) -> None:
        """Forget all, and end the threads that read."""
        self.begin()
        self._reader.close()

    def measure(self) -> float:
        """Read blocks as a pass does, to all staging buffers one after another.

        Returns:
            Bytes a second, the median of five times.

        Raises:
            RuntimeMemoryError: A block cannot be read.

        Cost: what was asked for is copied first, what was read ahead is dropped; five reads to each staging buffer.
        """
        self.settle()
        numbers, rates = list(self._blocks), []
        width = len(self._staging.buffers)
        for turn in range(_NUM_TIMED):
            some = [numbers[(turn * width + index) % len(numbers)] for index in range(width)]
            start = time.perf_counter()
            self._read_now(some)
            took = time.perf_counter() - start
            rates.append(sum(paged(self._blocks[block].size_bytes) for block in some) / took)
        return statistics.median(rates)

    def _read_now(self, blocks: list[int]) -> None:
        ended: list[BaseException | None] = []

        def end(error: BaseException | None) -> None:
            with self._changed:
                ended.append(error)
                self._changed.notify_all()

        for block, buffer in zip(blocks, self._staging.buffers, strict=True):
            self._reader.start(self._reading(block, buffer, lambda: True, end))
        with self._changed:
            self._changed.wait_for(lambda: len(ended) == len(blocks))
        errors = [error for error in ended if error is not None]
        if errors:
            raise RuntimeMemoryError(f"the file of weights cannot be read: {errors[0]}") from errors[0]

    def _reading(
        self,
        block: int,
        buffer: StagingBuffer,
        is_wanted: Callable[[], bool],
        done: Callable[[BaseException | None], None],
    ) -> Reading:
        one = self._blocks[block]
        into = self._views[id(buffer)][: paged(one.size_bytes)]
        return Reading(one.offset, into, buffer.drain, is_wanted, done)

    def _advance(self) -> None:
        """Issue what can be issued, and read what comes next. The lock is held."""
        while self._asked and self._can_issue(self._asked[0]):
            request = self._asked[0]
            try:
                self._issue(request)
            except Exception as error:  # on a thread that reads; whoever waits for the slot gets it
                self._failed[request.slot] = (request.block, error)
            self._asked.popleft()
        asked = [one.block for one in self._asked if one.block in self._blocks]
        begun = [self._start(buffer) for buffer in self._staging.next_reads(asked, self._foreseen)]
        if not all(begun):
            self._advance()  # what waited behind a block that nobody will read
        self._changed.notify_all()

    def _can_issue(self, request: _Request) -> bool:
        staged = self._staging.of(request.block)
        return request.block not in self._blocks or (staged is not None and not staged.is_reading)

    def _issue(self, request: _Request) -> None:
        block, slot = request
        staged = self._staging.of(block)
        if staged is None:
            self._copies.copy_in(block, slot)
            return
        self._copies.copy_from(staged.data[: self._blocks[block].size_bytes], block, slot)
        self._staging.copied(staged, self._copies.mark())

    def _start(self, buffer: StagingBuffer) -> bool:
        """Have a buffer's block read; return whether somebody does."""
        block = buffer.block
        assert block is not None
        buffer.version = self._blocks[block].version()
        done = partial(self._read_to, buffer)
        try:
            self._reader.start(self._reading(block, buffer, lambda: buffer.block == block, done))
        except RuntimeError as error:  # the program ends: no thread takes it
            buffer.is_reading = False
            self._give_up(buffer, error)
            return False
        return True

    def _read_to(self, buffer: StagingBuffer, error: BaseException | None) -> None:
        """Take note, on a thread that reads, that nothing is written to a buffer any more."""
        with self._changed:
            buffer.is_reading, buffer.drain = False, no_wait
            if error is not None:
                self._give_up(buffer, error)
            self._advance()

    def _give_up(self, buffer: StagingBuffer, error: BaseException) -> None:
        """Let whoever asked for a buffer's block know that it cannot be read; who asks again has it read again."""
        block, buffer.block = buffer.block, None
        self._foreseen = [one for one in self._foreseen if one != block]
        for request in [one for one in self._asked if one.block == block]:
            self._asked.remove(request)
            self._failed[request.slot] = (request.block, error)
