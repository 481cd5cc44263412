"""What streaming will cost, before anything runs: which blocks stay, how many bytes move, and how long a step takes.

A step is simulated by the rules that `ring` and `disk_copies` follow: copies one after another, each when the buffer that it
goes to was used for the last time and, of a block on disk, when it was read; reads one after another, each when the staging
buffer that it goes to was copied from; a block runs when the one before it has, and its copy is there.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ullage.errors import RuntimeMemoryError
from ullage.runtime.weights.disk_plan import DiskPlan, paged
from ullage.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

DEFAULT_SLOTS = 2
NUM_LANDINGS = 2  # the next block lands while one is decoded


@dataclass(frozen=True, kw_only=True)
class StreamPlan:
    """Which blocks of a model are streamed.

    Attributes:
        block_bytes: The bytes of each block that can be streamed.
        is_resident: Whether each block stays on the GPU.
        num_slots: The buffers that streamed blocks are copied to.
        slot_bytes: The bytes of a buffer: the largest streamed block.
        other_bytes: What is outside of the blocks, or cannot be streamed, and stays on the GPU.
        stored_bytes: The bytes of each block on the host, where it is stored in other ones; None: as many.
        disk: Which streamed blocks lie in a file; None: none does.
    """

    block_bytes: tuple[int, ...]
    is_resident: tuple[bool, ...]
    num_slots: int
    slot_bytes: int
    other_bytes: int
    stored_bytes: tuple[int, ...] | None = None
    disk: DiskPlan | None = None

    @property
    def streamed(self) -> tuple[int, ...]:
        """The blocks that are streamed."""
        return tuple(index for index, stays in enumerate(self.is_resident) if not stays)

    @property
    def is_on_disk(self) -> tuple[bool, ...]:
        """Whether each block lies in a file."""
        return (False,) * len(self.block_bytes) if self.disk is None else self.disk.is_on_disk

    @property
    def moved_bytes(self) -> int:
        """The bytes that cross the link in a pass forwards."""
        return sum(self.home_bytes[index] for index in self.streamed)

    @property
    def pinned_bytes(self) -> int:
        """What is in pinned host memory: the streamed blocks that are not on disk, and the staging buffers."""
        staging = 0 if self.disk is None else self.disk.num_staging * self.disk.staging_bytes
        return staging + sum(self.home_bytes[index] for index in self.streamed if not self.is_on_disk[index])

    @property
    def disk_bytes(self) -> int:
        """What lies in the file, and is read in a pass forwards: blocks in whole pages."""
        return sum(paged(size) for size, lies in zip(self.home_bytes, self.is_on_disk, strict=True) if lies)

    @property
    def landing_bytes(self) -> int:
        """What blocks are copied to, in turn, where they are stored in other bytes than they run with."""
        if self.stored_bytes is None:
            return 0
        return NUM_LANDINGS * max((self.stored_bytes[index] for index in self.streamed), default=0)

    @property
    def home_bytes(self) -> tuple[int, ...]:
        """The bytes of each block where it is at home, on the host or on disk, and that cross the link."""
        return self.block_bytes if self.stored_bytes is None else self.stored_bytes

    @property
    def gpu_bytes(self) -> int:
        """What lies on the GPU: all that stays, and the buffers."""
        stays = sum(size for size, keeps in zip(self.block_bytes, self.is_resident, strict=True) if keeps)
        return self.other_bytes + stays + self.num_slots * self.slot_bytes + self.landing_bytes

    def step_s(self, compute_s: Sequence[float], bytes_per_s: float, disk_bytes_per_s: float = math.inf) -> float:
        """Return how long a pass forwards through the blocks takes.

        Args:
            compute_s: How long each block computes, in seconds.
            bytes_per_s: The link's speed.
            disk_bytes_per_s: The disk's, where blocks lie there.

        Returns:
            Seconds.
        """
        copied = [self.home_bytes[index] / bytes_per_s for index in self.streamed]
        reads = _Reads(self, disk_bytes_per_s)
        now, link_free = 0.0, 0.0
        ready: list[float] = []
        done: list[float] = []
        for index, seconds in enumerate(compute_s):
            if not self.is_resident[index]:
                while len(ready) < min(len(done) + self.num_slots, len(copied)):
                    before = len(ready) - self.num_slots
                    block = self.streamed[len(ready)]
                    begin = max(link_free, done[before] if before >= 0 else 0.0, reads.ends(block))
                    link_free = begin + copied[len(ready)]
                    reads.note_copied(block, link_free)
                    ready.append(link_free)
                now = max(now, ready[len(done)]) + seconds
                done.append(now)
            else:
                now += seconds
        return now


class _Reads:
    """Reads of a pass, one after another, each to the staging buffer that has been free for longest."""

    def __init__(self, plan: StreamPlan, bytes_per_s: float) -> None:
        self._sizes = plan.home_bytes
        self._is_on_disk, self._bytes_per_s = plan.is_on_disk, bytes_per_s
        self._usable = deque([0.0] * (0 if plan.disk is None else plan.disk.num_staging))
        self._disk_free = 0.0

    def ends(self, block: int) -> float:
        """Read a block; return when it is there."""
        if not self._is_on_disk[block]:
            return 0.0
        self._disk_free = max(self._disk_free, self._usable.popleft()) + paged(self._sizes[block]) / self._bytes_per_s
        return self._disk_free

    def note_copied(self, block: int, end: float) -> None:
        """Note when a block's staging buffer can be read to again."""
        if self._is_on_disk[block]:
            self._usable.append(end)


def plan_stream(
    block_bytes: Sequence[int],
    other_bytes: int,
    gpu_bytes: int,
    *,
    num_slots: int = DEFAULT_SLOTS,
    stored_bytes: Sequence[int] | None = None,
) -> StreamPlan:
    """Choose which blocks stay on the GPU.

    As many stay as fit. The first is among them where one is: while it runs, the next is copied. The others are spread evenly,
    so that between two streamed blocks there is as much to compute as there can be.

    Args:
        block_bytes: The bytes of each block, in the order in which they run.
        other_bytes: What stays whatever is chosen.
        gpu_bytes: What the whole may take on the GPU.
        num_slots: The buffers, two or more for copies to overlap with computing.
        stored_bytes: The bytes of each block on the host; None: as many.

    Raises:
        RuntimeMemoryError: Not even the buffers fit; the message says what is needed.

    Cost: a sort, and one simulated step for each number of blocks that may stay.
    """
    sizes = tuple(block_bytes)
    stored = None if stored_bytes is None else tuple(stored_bytes)
    if other_bytes + sum(sizes) <= gpu_bytes:
        everything = (True,) * len(sizes)
        return StreamPlan(block_bytes=sizes, is_resident=everything, num_slots=0, slot_bytes=0, other_bytes=other_bytes)
    for num_resident in range(len(sizes) - 1, -1, -1):
        stays = _spread(num_resident, len(sizes))
        slots = min(num_slots, len(sizes) - num_resident)
        slot_bytes = max(size for size, keeps in zip(sizes, stays, strict=True) if not keeps)
        plan = StreamPlan(
            block_bytes=sizes,
            is_resident=stays,
            num_slots=slots,
            slot_bytes=slot_bytes,
            other_bytes=other_bytes,
            stored_bytes=stored,
        )
        if plan.gpu_bytes <= gpu_bytes:
            return plan
    raise RuntimeMemoryError(
        f"{format_bytes(gpu_bytes)} on the GPU are too few: what is not streamed takes {format_bytes(other_bytes)}, "
        f"and buffers for {num_slots} blocks {format_bytes(plan.gpu_bytes - other_bytes)}; "
        f"give gpu_bytes={plan.gpu_bytes} or more"
    )


def _spread(num_chosen: int, num_all: int) -> tuple[bool, ...]:
    """Choose some of a row, evenly, the first among them."""
    chosen = {index * num_all // num_chosen for index in range(num_chosen)}
    return tuple(index in chosen for index in range(num_all))
