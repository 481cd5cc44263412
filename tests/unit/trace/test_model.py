"""A trace gives the state at any instant: who lives, in which layout, and the four sums."""

from __future__ import annotations

import pytest

import ullage
from tests.unit.conftest import Load, Save
from tests.unit.snapshot_builder import MIB, START_US, SimulatedOutOfMemoryError, SnapshotBuilder, merged
from ullage.errors import UllageError
from ullage.trace import NONE, Counters


def two_then_one() -> SnapshotBuilder:
    """Events: 0 segment, 1 alloc 4 MiB, 2 alloc 8 MiB, 3 and 4 free the first; 10 µs apart."""
    one = SnapshotBuilder()
    first = one.alloc(4 * MIB)
    one.alloc(8 * MIB)
    one.free(first)
    return one


def test_the_four_sums_are_known_at_every_instant(load: Load) -> None:
    device = load(two_then_one()).device()
    assert device.peak == Counters(12 * MIB, 12 * MIB, 12 * MIB, 20 * MIB)
    assert device.end == Counters(8 * MIB, 8 * MIB, 8 * MIB, 20 * MIB)
    assert device.counters_at(0) == Counters(0, 0, 0, 20 * MIB)
    assert device.counters_at(30) == Counters(12 * MIB, 8 * MIB, 12 * MIB, 20 * MIB)


def test_blocks_know_their_birth_their_free_and_their_death(load: Load) -> None:
    blocks = load(two_then_one()).device().blocks
    rows = zip(blocks.birth, blocks.free_requested, blocks.death, blocks.size_bytes, strict=True)
    assert [tuple(map(int, row)) for row in rows] == [(1, 3, 4, 4 * MIB), (2, NONE, NONE, 8 * MIB)]


@pytest.mark.parametrize(
    ("at", "event", "live"),
    [
        ("peak", 2, [0, 1]),
        ("end", 4, [1]),
        ("reserved_peak", 2, [0, 1]),  # reserved was there before, but less was active
        (0, 0, []),
        (19, 1, [0]),
        (30, 3, [1]),  # its free was requested at this very event
        (START_US + 20, 2, [0, 1]),
    ],
)
def test_instants_are_words_times_since_the_start_or_times_of_day(
    at: str | int, event: int, live: list[int], load: Load
) -> None:
    trace = load(two_then_one())
    assert trace.device().event_at(at) == event
    assert trace.live_at(at).tolist() == live
    assert trace.layout_at(at).event == event


@pytest.mark.parametrize(
    ("at", "message"),
    [
        ("oom", "device 0 met no out-of-memory error"),
        ("noon", "no instant is called 'noon'"),
        (41, "spans 40 µs; 41 µs is outside"),
        (-1, "-1 µs is outside"),
        (START_US + 41, "is outside"),
    ],
)
def test_an_instant_that_does_not_exist_is_refused(at: str | int, message: str, load: Load) -> None:
    with pytest.raises(UllageError, match=message):
        load(two_then_one()).device().event_at(at)


def test_a_layout_lists_blocks_and_holes_in_address_order(load: Load) -> None:
    trace = load(two_then_one())
    layout = trace.layout_at("end")
    base = int(layout.segment_address[0])
    assert (layout.address - layout.segment_address[0]).tolist() == [0, 4 * MIB, 12 * MIB]
    assert layout.size_bytes.tolist() == [4 * MIB, 8 * MIB, 8 * MIB]
    assert layout.lifetime.tolist() == [NONE, 1, NONE]
    assert (base, int(layout.segment_bytes[0])) == (int(trace.device().segments.address[0]), 20 * MIB)


def test_the_first_error_is_where_oom_points(load: Load) -> None:
    one = SnapshotBuilder(limit_bytes=20 * MIB)
    one.alloc(8 * MIB)
    for _ in range(2):
        with pytest.raises(SimulatedOutOfMemoryError):
            one.alloc(16 * MIB)
    device = load(one).device()
    assert device.ooms().tolist() == [2, 3]
    assert device.event_at("oom") == 2
    assert device.history.num_ooms == 2


def test_a_device_is_picked_by_number_or_by_its_events(load: Load) -> None:
    first, second = SnapshotBuilder(device=0), SnapshotBuilder(device=1)
    first.alloc(700)
    second.free(second.alloc(700))
    trace = load(merged(first.snapshot(), second.snapshot()))
    assert trace.device().number == 1
    assert trace.device(0).num_events == 2
    with pytest.raises(UllageError, match=r"has no device 5 \(it has: 0, 1\)"):
        trace.device(5)


def test_a_file_without_devices_has_none_to_pick(load: Load) -> None:
    trace = load({"segments": [], "device_traces": []})
    assert trace.devices == ()
    with pytest.raises(UllageError, match="it has: none"):
        trace.device()
    assert ullage.explain(trace) == []


def test_a_pattern_that_is_no_regular_expression_is_refused(save: Save) -> None:
    with pytest.raises(UllageError, match=r"--mine '\(' is no regular expression"):
        ullage.load(save(two_then_one()), mine="(")


def test_pools_are_named_as_torch_numbers_them(load: Load) -> None:
    one = SnapshotBuilder()
    one.alloc(700, pool=(0, 3))
    device = load(one).device()
    pool = int(device.segments.pool[0])
    assert (device.pool_name(NONE), device.pool_name(pool)) == ("default", "(0, 3)")


@pytest.mark.parametrize(
    ("key", "version"),
    [("pool_id", "2.12 or newer"), ("user_metadata", "2.10 or 2.11"), ("compile_context", "2.8 or 2.9")],
)
def test_the_newest_key_tells_which_torch_wrote_the_file(key: str, version: str, load: Load) -> None:
    snapshot = two_then_one().snapshot()
    assert load(snapshot).torch_version == "2.5 to 2.7"
    value = (0, 0) if key == "pool_id" else "N/A"
    for event in snapshot["device_traces"][0]:
        event[key] = value
    assert load(snapshot).torch_version == version


def test_verify_counts_what_was_compared(load: Load) -> None:
    counts = load(two_then_one()).device().verify()
    assert counts == {
        "allocs": 2,
        "address_matches": 2,
        "segments": 1,
        "segment_matches": 1,
        "final_blocks": 3,
        "final_block_matches": 3,
        "undetermined_blocks": 0,
        "first_mismatch_event": -1,
    }


def test_verify_sees_a_block_that_is_not_where_the_rules_put_it(load: Load) -> None:
    snapshot = two_then_one().snapshot()
    moved = snapshot["device_traces"][0][2]
    moved["addr"] += 2 * MIB
    counts = load(snapshot).device().verify()
    assert (counts["address_matches"], counts["first_mismatch_event"]) == (1, 2)
    assert counts["final_block_matches"] < counts["final_blocks"]


def test_a_trace_is_named_in_one_short_line(load: Load) -> None:
    trace = load(two_then_one())
    assert repr(trace.device()) == "<DeviceTrace GPU 0, 5 events over 40 µs>"
    assert repr(trace) == f"<Trace {trace.path[-200:]!r}: GPU 0, 5 events over 40 µs>"
    hostile = repr(ullage.Trace(trace.tables, path="a\n\x1b[31m\u202e" * 100_000))
    assert hostile.isprintable()
    assert len(hostile) < 2500


def test_of_many_devices_a_trace_names_the_first_ones(load: Load) -> None:
    builders = [SnapshotBuilder(device=number) for number in range(6)]
    for one in builders:
        one.alloc(12 * MIB)
    text = repr(load(merged(*(one.snapshot() for one in builders))))
    assert text.endswith("; GPU 3, 2 events over 10 µs; 2 more>")
