"""What follows from a device's recording: times since its start, changes of reserved memory, the drawing, pools."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

import ullage
from tests.random_histories import histories, trace_of
from tests.recordings import EXPECTED, device_of
from tests.unit.conftest import Load
from tests.unit.snapshot_builder import GIB, MIB, SnapshotBuilder
from ullage.trace import NONE

HIGHEST = 1.34  # times the most that is active at once: the most over the recordings, as cpp/core/drawing.hpp says


@pytest.mark.parametrize(
    ("times", "since"),
    [
        ((7, 9, 12), [0, 2, 5]),
        ((7, 3, 12), [0, 0, 5]),
        ((7, 12, 9), [0, 5, 5]),
        ((-(2**63), 0, 2**63 - 1), [0, 2**63 - 1, 2**63 - 1]),
        ((2**63 - 1, -(2**63), 0), [0, 0, 0]),
    ],
)
def test_times_since_the_start_never_go_back_and_never_overflow(
    times: tuple[int, ...], since: list[int], load: Load
) -> None:
    one = SnapshotBuilder()
    one.alloc(700)
    one.alloc(700)
    snapshot = one.snapshot()
    for event, time in zip(snapshot["device_traces"][0], times, strict=True):
        event["time_us"] = time
    found = load(snapshot).device().since_start_us
    assert (found.tolist(), found.dtype) == (since, np.dtype(np.int64))


def test_without_events_there_are_no_times_and_one_state_of_reserved_memory(load: Load) -> None:
    one = SnapshotBuilder()
    one.alloc(700)
    device = load(one.snapshot() | {"device_traces": [[]]}).device()
    assert device.since_start_us.tolist() == []
    assert [column.tolist() for column in device.reserved_changes] == [[NONE], [2 * MIB]]
    assert (device.drawing.offset.tolist(), device.drawing.height) == ([0], 1024)


def test_reserved_changes_where_segments_come_and_go(load: Load) -> None:
    one = SnapshotBuilder()
    first = one.alloc(3 * MIB)  # events 0 and 1
    one.alloc(700)  # 2 and 3
    one.free(first)  # 4 and 5
    one.empty_cache()  # 6
    one.alloc(1 * GIB)  # 7 and 8
    events, reserved = load(one).device().reserved_changes
    assert events.tolist() == [NONE, 0, 2, 6, 7]
    assert reserved.tolist() == [0, 20 * MIB, 22 * MIB, 2 * MIB, GIB + 2 * MIB]


@pytest.mark.parametrize("name", ["late_start", "wrapped", "context_state", "expandable_toggle"])
def test_reserved_changes_hold_what_was_reserved_after_every_event(name: str) -> None:
    device = device_of(name)
    events, reserved = device.reserved_changes
    assert (events[0], reserved[0]) == (NONE, device.history.before[3])
    assert (np.diff(reserved) != 0).all()
    shown = reserved[np.searchsorted(events, np.arange(device.num_events), side="right") - 1]
    assert (shown == device.counters.reserved_bytes).all()


def most_overlapping(device: ullage.DeviceTrace) -> int:
    """Return the most bytes by which two blocks that are active at one time lie over each other in the drawing."""
    blocks, low = device.blocks, device.drawing.offset
    end = np.where(blocks.death == NONE, device.num_events, blocks.death)
    high = low + blocks.size_bytes
    most = 0
    for row in range(len(low)):
        meets = (blocks.birth[:row] < end[row]) & (end[:row] > blocks.birth[row])
        shared = np.minimum(high[:row], high[row]) - np.maximum(low[:row], low[row])
        most = max(most, int(shared[meets].max(initial=0)))
    return most


@settings(max_examples=60, deadline=None)
@given(histories())
def test_no_two_blocks_are_drawn_over_each_other(builder: SnapshotBuilder) -> None:
    device = trace_of(builder).device()
    assert most_overlapping(device) == 0
    assert device.drawing.height == max(device.drawing.offset + device.blocks.size_bytes)
    assert device.drawing.height >= device.peak.active_bytes


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_recordings_are_drawn_little_higher_than_what_is_active(name: str) -> None:
    device = device_of(name)
    assert most_overlapping(device) == 0
    assert device.peak.active_bytes <= device.drawing.height <= HIGHEST * device.peak.active_bytes


@pytest.mark.parametrize("records_pools", [False, True])
def test_the_default_pool_has_one_name_in_events_and_segments(records_pools: bool, load: Load) -> None:
    one = SnapshotBuilder(records_pools=records_pools)
    one.alloc(700)
    one.alloc(700, pool=(0, 1))
    device = load(one).device()
    named = ["default", "default", "(0, 1)", "(0, 1)"] if records_pools else ["default"] * 4
    assert [device.pool_name(pool) for pool in device.events.pool.tolist()] == named
    assert [device.pool_name(pool) for pool in device.segments.pool.tolist()] == ["default", "(0, 1)"]
    assert device.events.pool[0] == NONE
