"""The tables of a trace: columns of equal length, one NumPy array each."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

NONE = -1
"""Stands in an index column for "there is none"."""

BEFORE_FIRST = -2
"""Stands in `Blocks.free_requested` for an event from before the recording."""


class Action(IntEnum):
    """What an event did; the numbers of `Events.action`."""

    ALLOC = 0
    FREE_REQUESTED = 1
    FREE_COMPLETED = 2
    SEGMENT_ALLOC = 3
    SEGMENT_FREE = 4
    SEGMENT_MAP = 5
    SEGMENT_UNMAP = 6
    SNAPSHOT = 7
    OOM = 8
    ANNOTATE = 9
    FREE = 10
    OTHER = 11


class BlockState(IntEnum):
    """The state of a block in a layout; the numbers of `Layout.state`."""

    INACTIVE = 0
    ACTIVE_ALLOCATED = 1
    ACTIVE_PENDING_FREE = 2


class PoolSize(IntEnum):
    """Which of its two sizes of pool a segment belongs to."""

    SMALL = 0
    LARGE = 1
    UNKNOWN = 2


class Counters(NamedTuple):
    """The allocator's four sums, in bytes.

    `requested_bytes` follows `active_bytes`: a block that waits for a stream still counts as requested.
    """

    requested_bytes: int
    allocated_bytes: int
    active_bytes: int
    reserved_bytes: int


@dataclass(frozen=True, kw_only=True)
class Events:
    """One device's recorded events, oldest first."""

    action: NDArray[np.uint8]
    address: NDArray[np.uint64]
    size_bytes: NDArray[np.int64]
    stream: NDArray[np.int64]
    time_us: NDArray[np.int64]
    site: NDArray[np.int32]
    pool: NDArray[np.int32]


@dataclass(frozen=True, kw_only=True)
class Blocks:
    """One row for each time that a block was handed out.

    `birth`, `free_requested` and `death` are event indices. A block that was there before the first event has birth
    `NONE`; what had not happened by the last event is `NONE` too. One that was already waiting for its free to complete when
    the recording began has `free_requested` `BEFORE_FIRST`. `size_bytes` is rounded and includes a tail too small
    to split off. `is_open` marks sizes that the history leaves open.
    """

    birth: NDArray[np.int32]
    free_requested: NDArray[np.int32]
    death: NDArray[np.int32]
    address: NDArray[np.uint64]
    size_bytes: NDArray[np.int64]
    requested_bytes: NDArray[np.int64]
    site: NDArray[np.int32]
    segment: NDArray[np.int32]
    is_open: NDArray[np.uint8]


@dataclass(frozen=True, kw_only=True)
class Segments:
    """One row for each driver allocation, or mapped range of an expandable segment; `pool` -1 is the default pool."""

    birth: NDArray[np.int32]
    death: NDArray[np.int32]
    address: NDArray[np.uint64]
    size_bytes: NDArray[np.int64]
    stream: NDArray[np.int64]
    pool: NDArray[np.int32]
    pool_size: NDArray[np.uint8]
    is_expandable: NDArray[np.uint8]
    site: NDArray[np.int32]


@dataclass(frozen=True, kw_only=True)
class CounterSeries:
    """The four sums after each event, in bytes."""

    requested_bytes: NDArray[np.int64]
    allocated_bytes: NDArray[np.int64]
    active_bytes: NDArray[np.int64]
    reserved_bytes: NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Layout:
    """The memory of one device after one event: blocks in address order, and the segment of each.

    `lifetime` is a row of `Blocks` (`NONE` for free space); `segment` a row of `Segments`.
    """

    event: int
    segment: NDArray[np.int32]
    address: NDArray[np.uint64]
    size_bytes: NDArray[np.int64]
    requested_bytes: NDArray[np.int64]
    state: NDArray[np.uint8]
    lifetime: NDArray[np.int32]
    segment_rows: NDArray[np.int32] = field(repr=False)
    segment_address: NDArray[np.uint64] = field(repr=False)
    segment_bytes: NDArray[np.int64] = field(repr=False)
    segment_of_block: NDArray[np.int64] = field(repr=False)
