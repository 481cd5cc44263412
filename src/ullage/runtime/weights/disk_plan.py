"""Which streamed blocks lie in a file, where the host has too little pinned memory for all of them.

They are as few as can be, and spread evenly among the streamed ones, the last among them: the disk begins with a pass, and each
of its blocks is wanted as late as it can be. What is read goes through a few staging buffers in pinned memory::

    streamed blocks     0    1    2    3    4    5        three of six on disk
    pinned              0         2         4             and two staging buffers, which 1, 3 and 5 take turns in
    in the file              1         3         5
"""

from __future__ import annotations

import mmap
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ullage.errors import RuntimeMemoryError
from ullage.units import format_bytes

if TYPE_CHECKING:
    from ullage.runtime.weights.plan import StreamPlan

PAGE_BYTES = mmap.ALLOCATIONGRANULARITY  # 4 KiB on most machines: where a mapping of a file may begin
NUM_STAGING = 2  # one is copied from while the other is read to


@dataclass(frozen=True, kw_only=True)
class DiskPlan:
    """Which blocks of a model lie in a file.

    Attributes:
        is_on_disk: Whether each block does; only streamed ones do.
        num_staging: The pinned buffers that they are read to.
        staging_bytes: The bytes of one of those: the largest block on disk, in whole pages.
    """

    is_on_disk: tuple[bool, ...]
    num_staging: int
    staging_bytes: int


def paged(size_bytes: int) -> int:
    """Return what a block takes in a file, in bytes: whole pages.

    Example:
        >>> paged(1) == paged(PAGE_BYTES) == PAGE_BYTES
        True
    """
    return -(-size_bytes // PAGE_BYTES) * PAGE_BYTES


def spill(plan: StreamPlan, host_bytes: int) -> StreamPlan:
    """Choose which streamed blocks lie in a file.

    Args:
        plan: Which blocks are streamed.
        host_bytes: What may be pinned, the staging buffers among it.

    Returns:
        The plan with as few blocks on disk as can be; none where all fit.

    Raises:
        RuntimeMemoryError: Not even the staging buffers fit; the message says what is needed.

    Cost: a sum over the blocks for each number of blocks on disk.
    """
    movable = [index for index in plan.streamed if plan.home_bytes[index]]
    plans = [_with_on_disk(plan, movable, count) for count in range(len(movable) + 1)]
    for one in plans:
        if one.pinned_bytes <= host_bytes:
            return one
    needed = min(one.pinned_bytes for one in plans)
    raise RuntimeMemoryError(
        f"{format_bytes(host_bytes)} of pinned host memory are too few even with all streamed blocks on disk: "
        f"what is read from there goes through {NUM_STAGING} buffers; give host_bytes={needed} or more"
    )


def _with_on_disk(plan: StreamPlan, movable: list[int], count: int) -> StreamPlan:
    if not count:
        return replace(plan, disk=None)
    chosen = {movable[len(movable) - 1 - index * len(movable) // count] for index in range(count)}
    disk = DiskPlan(
        is_on_disk=tuple(index in chosen for index in range(len(plan.block_bytes))),
        num_staging=min(NUM_STAGING, count),
        staging_bytes=max(paged(plan.home_bytes[index]) for index in chosen),
    )
    return replace(plan, disk=disk)
