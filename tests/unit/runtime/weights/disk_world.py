"""Disk, link and processor as fakes that keep clocks.

There is one thread: what the threads that read would do happens while the main one waits, in order of time, or, where the test
draws it, in any order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tests.unit.runtime.weights.test_ring import FakeDevice
from ullage.runtime.weights.disk_copies import DiskBlock, DiskCopies
from ullage.runtime.weights.disk_plan import PAGE_BYTES, paged
from ullage.runtime.weights.disk_reader import Reading

LINK, DISK = PAGE_BYTES / 1.0, PAGE_BYTES / 3.0  # a page takes 1 and 3


class World(FakeDevice):
    """A device with a disk. What lies in a staging buffer is its block's number and version.

    Attributes:
        host: When the main thread does what it does now.
        versions: How often each block was changed.
        arrived: The version of what was last copied of each block.
        pending: What is being read: when it ends, and what it is.
        breaks: Tells, at the end of a reading, whether it failed.
    """

    def __init__(self, sizes: list[int], on_disk: set[int], num_slots: int, num_staging: int) -> None:
        super().__init__([size / LINK for size in sizes], num_slots)
        self.host = self.disk_free = self.drained = 0.0
        self.versions = [0] * len(sizes)
        self.arrived = [0] * len(sizes)
        self.pending: list[tuple[float, Reading, int]] = []
        self.breaks: Callable[[], bool] = lambda: False
        self.draw: Callable[[int], int] | None = None
        self.num_reads = 0
        self.settled = 0
        self._sizes = sizes
        self._copied_from: dict[int, float] = {}
        staging = [torch.zeros(paged(max(sizes)), dtype=torch.uint8) for _ in range(num_staging)]
        blocks = {
            number: DiskBlock(
                name=f"block {number}",
                offset=number * PAGE_BYTES,
                size_bytes=sizes[number],
                version=lambda number=number: self.versions[number],
            )
            for number in sorted(on_disk)
        }
        self.copies_in_order = DiskCopies(self, blocks, staging, self)  # type: ignore[arg-type]
        self.copies_in_order._changed = Waiting(self)  # type: ignore[assignment]

    # what copies from the host

    def copy_in(self, block: int, slot: int) -> None:
        self.arrived[block] = self.versions[block]
        super().copy_in(block, slot)

    def copy_from(self, source: torch.Tensor, block: int, slot: int) -> None:
        assert source[0] == block, "another block lies in the staging buffer"
        assert len(source) == self._sizes[block]
        super().copy_in(block, slot)
        self.arrived[block] = int(source[1])
        self._copied_from[source.data_ptr()] = self._link_free

    def mark(self) -> Callable[[], None]:
        end = self._link_free

        def drain() -> None:
            self.drained = end

        return drain

    def settle(self) -> None:
        self.settled += 1

    # what reads

    def start(self, reading: Reading) -> None:
        self.drained = 0.0
        reading.drain()
        begin = max(self.disk_free, self.issued, self.drained)
        pointer = torch.frombuffer(reading.into, dtype=torch.uint8).data_ptr()
        assert begin >= self._copied_from.get(pointer, 0.0), "a staging buffer is read to while it is copied from"
        assert all(reading.into.obj is not other.into.obj for _, other, _ in self.pending), "two read to one buffer"
        self.disk_free = begin + len(reading.into) / DISK
        self.num_reads += 1
        self.pending.append((self.disk_free, reading, self.versions[reading.offset // PAGE_BYTES]))

    def close(self) -> None:
        pass

    def finish(self, index: int = 0) -> float:
        """End a reading, by default the one that ends first; return when that was."""
        end, reading, version = self.pending.pop(index)
        is_wanted, is_broken = reading.is_wanted(), self.breaks()
        if is_wanted:
            reading.into[0], reading.into[1] = reading.offset // PAGE_BYTES, version
        before, self.issued = self.issued, max(end, self.issued if self.draw else 0.0)
        reading.done(OSError("broken") if is_wanted and is_broken else None)
        self.issued = before
        return end

    def wait_until(self, predicate: Callable[[], bool]) -> None:
        while not predicate():
            assert self.pending, "the main thread waits for ever"
            index = self.draw(len(self.pending)) if self.draw else 0
            self.host = max(self.host, self.finish(index))
        self.issued = self.host

    def catch_up(self) -> None:
        """End what ended before now; or anything."""
        if self.draw is not None:
            while self.pending and self.draw(3) == 0:
                self.finish(self.draw(len(self.pending)))
        else:
            while self.pending and self.pending[0][0] <= self.host:
                self.finish()


class Waiting:
    """A lock of the one thread there is; who waits for something lets the world go on."""

    def __init__(self, world: World) -> None:
        self._world, self._depth = world, 0

    def __enter__(self) -> None:
        self._depth += 1
        if self._depth == 1:
            self._world.catch_up()

    def __exit__(self, *_: Any) -> None:
        self._depth -= 1

    def notify_all(self) -> None:
        assert self._depth

    def wait_for(self, predicate: Callable[[], bool]) -> None:
        self._world.wait_until(predicate)
