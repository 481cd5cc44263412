"""Blocks that wait for another stream, and blocks left on a stream that is done, are counted in bytes."""

from __future__ import annotations

from tests.unit.conftest import Load
from tests.unit.snapshot_builder import MIB, SnapshotBuilder
from ullage.explain.stream import find_stream


def test_the_most_that_waited_at_once_is_reported(load: Load) -> None:
    one = SnapshotBuilder()
    waiting = []
    for _ in range(3):
        waiting.append(one.alloc(20 * MIB, "comm.py:3 gather"))
        one.request_free(waiting[-1])
        one.wait(1_000_000)
    for address in waiting:
        one.complete_free(address)
    (stream,) = find_stream(load(one).device())
    assert (stream.bytes, str(stream.site[0])) == (60 * MIB, "comm.py:3 gather")
    assert (stream.evidence["num_waiting"], stream.evidence["num_waited"]) == (3, 3)
    assert stream.evidence["max_wait_us"] == 3_000_000 + 70
    assert stream.severity == "warning"


def test_frees_that_complete_at_once_wait_for_nothing(load: Load) -> None:
    one = SnapshotBuilder()
    for _ in range(5):
        one.free(one.alloc(40 * MIB))
    assert find_stream(load(one).device()) == []


def test_frees_whose_request_is_not_recorded_wait_for_nothing(load: Load) -> None:
    one = SnapshotBuilder()
    for _ in range(3):
        one.free(one.alloc(40 * MIB))
    snapshot = one.snapshot()
    kept = [event for event in snapshot["device_traces"][0] if event["action"] != "free_requested"]
    assert find_stream(load(snapshot | {"device_traces": [kept]}).device()) == []


def test_a_few_bytes_that_wait_are_not_worth_a_word(load: Load) -> None:
    one = SnapshotBuilder()
    waits = one.alloc(4 * MIB)
    one.request_free(waits)
    one.free(one.alloc(700))
    one.complete_free(waits)
    assert find_stream(load(one).device()) == []


def left_on_a_stream(num_after: int) -> SnapshotBuilder:
    one = SnapshotBuilder()
    one.alloc(60 * MIB, "train.py:2 load")
    one.free(one.alloc(30 * MIB, "side.py:5 copy", stream=7))
    for _ in range(num_after):
        one.free(one.alloc(700))
    return one


def test_cached_blocks_of_a_stream_that_is_done_are_stranded(load: Load) -> None:
    (stream,) = find_stream(load(left_on_a_stream(10)).device())
    assert (stream.bytes, str(stream.site[0])) == (30 * MIB, "side.py:5 copy")
    assert stream.evidence["streams"] == [{"stream": 7, "free_bytes": 30 * MIB, "num_requests": 1, "last_event": 3}]


def test_a_stream_that_was_used_a_moment_ago_is_not_done(load: Load) -> None:
    assert find_stream(load(left_on_a_stream(2)).device()) == []


def waiting(size: int, wait_us: int, *, completes: bool) -> SnapshotBuilder:
    one = SnapshotBuilder()
    address = one.alloc(size, "comm.py:3 gather")
    one.request_free(address)
    one.wait(wait_us)
    one.alloc(700)
    if completes:
        one.complete_free(address)
    return one


def test_a_wait_that_was_over_at_once_cost_nothing(load: Load) -> None:
    assert find_stream(load(waiting(40 * MIB, 100, completes=True)).device()) == []
    (stream,) = find_stream(load(waiting(40 * MIB, 2_000, completes=True)).device())
    assert stream.severity == "warning"
    assert stream.why.endswith("1 block waited 2.03 ms at most.")


def test_a_wait_whose_end_is_not_recorded_is_told_but_not_warned_of(load: Load) -> None:
    (stream,) = find_stream(load(waiting(40 * MIB, 100, completes=False)).device())
    assert stream.severity == "info"
    assert stream.why.endswith("1 block was still waiting at the end of the recording, after 120 µs.")
