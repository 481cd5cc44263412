"""What holds for every history: it is rebuilt exactly, blocks never overlap, and all splits of bytes add up."""

from __future__ import annotations

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.random_histories import histories, trace_of
from tests.recordings import WORDS
from tests.unit.snapshot_builder import SnapshotBuilder
from ullage.explain.fragmentation import pinning
from ullage.explain.waterfall import free_space, main_stream, waterfall
from ullage.trace import NONE, BlockState, DeviceTrace, Layout

bounded = settings(max_examples=60, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])


def device_of(builder: SnapshotBuilder) -> DeviceTrace:
    return trace_of(builder).device()


def layout_at_some_time(builder: SnapshotBuilder, data: st.DataObject) -> tuple[DeviceTrace, Layout]:
    device = device_of(builder)
    event = data.draw(st.integers(NONE, device.num_events - 1), label="event")
    return device, device.layouts_after([event])[event]


@bounded
@given(histories())
def test_every_block_is_rebuilt_as_it_was(builder: SnapshotBuilder) -> None:
    b = device_of(builder).blocks
    columns = (b.birth, b.free_requested, b.death, b.address, b.size_bytes, b.requested_bytes)
    rows = sorted(zip(*(column.tolist() for column in columns), strict=True))
    assert rows == sorted(
        (one.birth, one.free_requested, one.death, one.address, one.size, one.requested) for one in builder.lives
    )


@bounded
@given(histories())
def test_the_four_sums_are_rebuilt_after_every_event(builder: SnapshotBuilder) -> None:
    device = device_of(builder)
    columns = [getattr(device.counters, f"{word}_bytes").tolist() for word in WORDS]
    assert list(zip(*columns, strict=True)) == builder.counters
    assert tuple(device.peak) == builder.peak
    assert tuple(device.end) == builder.counters[-1]


@bounded
@given(histories())
def test_every_address_segment_and_final_block_verifies(builder: SnapshotBuilder) -> None:
    device = device_of(builder)
    counts = device.verify()
    assert counts["address_matches"] == counts["allocs"] == len(builder.lives)
    assert counts["segment_matches"] == counts["segments"] == len(builder.segments)
    assert counts["final_block_matches"] == counts["final_blocks"]
    assert device.history.num_conflicts == counts["undetermined_blocks"] == 0
    assert device.completeness.kind == "complete"


@bounded
@given(histories())
def test_no_two_blocks_overlap_while_both_live(builder: SnapshotBuilder) -> None:
    device = device_of(builder)
    b = device.blocks
    death = np.where(b.death == NONE, device.num_events, b.death)
    start = b.address.astype(np.int64)
    stop = start + b.size_bytes
    both_live = (b.birth[:, None] < death[None, :]) & (b.birth[None, :] < death[:, None])
    both_there = (start[:, None] < stop[None, :]) & (start[None, :] < stop[:, None])
    overlaps = both_live & both_there
    np.fill_diagonal(overlaps, False)
    assert not overlaps.any()


@bounded
@given(histories())
def test_every_free_matches_a_block_and_sums_keep_their_order(builder: SnapshotBuilder) -> None:
    device = device_of(builder)
    b, c = device.blocks, device.counters
    freed = b.free_requested[b.free_requested != NONE]
    completed = b.death[b.death != NONE]
    assert len(freed) == int((device.events.action == 1).sum()) == len(set(freed.tolist()))
    assert len(completed) == int((device.events.action == 2).sum()) == len(set(completed.tolist()))
    assert (c.requested_bytes <= c.active_bytes).all()
    assert (c.allocated_bytes <= c.active_bytes).all()
    assert (c.active_bytes <= c.reserved_bytes).all()
    assert device.peak.allocated_bytes == c.allocated_bytes.max()


@bounded
@given(histories(), st.data())
def test_live_blocks_at_any_time_add_up_to_what_was_allocated(builder: SnapshotBuilder, data: st.DataObject) -> None:
    device = device_of(builder)
    event = data.draw(st.integers(0, device.num_events - 1), label="event")
    rows = device.live_after(event)
    assert int(device.blocks.size_bytes[rows].sum()) == builder.counters[event][1] <= device.peak.allocated_bytes


@bounded
@given(histories(), st.data())
def test_a_layout_at_any_time_tiles_its_segments_and_adds_up(builder: SnapshotBuilder, data: st.DataObject) -> None:
    _, layout = layout_at_some_time(builder, data)
    requested, allocated, active, reserved = builder.counters[layout.event] if layout.event != NONE else (0, 0, 0, 0)
    assert layout.segment_bytes.sum() == layout.size_bytes.sum() == reserved
    assert layout.size_bytes[layout.state != BlockState.INACTIVE].sum() == active
    assert layout.size_bytes[layout.state == BlockState.ACTIVE_ALLOCATED].sum() == allocated
    assert layout.requested_bytes[layout.state != BlockState.INACTIVE].sum() == requested
    filled = np.bincount(layout.segment_of_block, weights=layout.size_bytes, minlength=len(layout.segment_bytes))
    assert filled.tolist() == layout.segment_bytes.tolist()
    follows = layout.segment_of_block[1:] == layout.segment_of_block[:-1]
    ends = layout.address[:-1] + layout.size_bytes[:-1].astype(np.uint64)
    assert (ends == layout.address[1:])[follows].all()
    free = layout.state == BlockState.INACTIVE
    assert not (free[1:] & free[:-1] & follows).any()


@bounded
@given(histories(), st.data())
def test_the_causes_of_reserved_memory_add_up_to_it(builder: SnapshotBuilder, data: st.DataObject) -> None:
    device, layout = layout_at_some_time(builder, data)
    stream = data.draw(st.sampled_from([0, 7, 9]), label="stream")
    causes = waterfall(device, layout, stream)
    assert sum(cause["bytes"] for cause in causes) == layout.segment_bytes.sum()
    assert all(cause["bytes"] >= 0 for cause in causes)
    free = free_space(device, layout, stream)
    for index in np.flatnonzero(free.is_free):
        amounts = [int(column[index]) for column in free.cause.values()]
        assert sum(amounts) == layout.size_bytes[index]


@bounded
@given(histories(), st.data())
def test_pinning_blocks_share_out_exactly_the_stranded_bytes(builder: SnapshotBuilder, data: st.DataObject) -> None:
    device, layout = layout_at_some_time(builder, data)
    rows, held_back = pinning(device, layout)
    event = layout.event
    failed = event != NONE and device.events.action[event] == 8
    stream = int(device.events.stream[event]) if failed else main_stream(device)
    free = free_space(device, layout, stream)
    assert held_back.sum() == free.bytes_of("stranded") + free.bytes_of("small_pool")
    assert (held_back > 0).all()
    alive = (device.blocks.death[rows] == NONE) | (device.blocks.death[rows] > event)
    assert alive.all()
