"""The rank that is not like the others comes first and says why; equal ranks say nothing."""

from __future__ import annotations

import pytest

from tests.recordings import device_of
from tests.unit.conftest import Load
from tests.unit.snapshot_builder import GIB, MIB, SnapshotBuilder
from ullage.fleet import Rank, odd_first, rank_of


def rank(name: str, *, allocated: int = 4 * GIB, reserved: int = 8 * GIB, events: int = 1000, ooms: int = 0) -> Rank:
    return Rank(
        name=name,
        num_events=events,
        num_ooms=ooms,
        peak_allocated_bytes=allocated,
        peak_reserved_bytes=reserved,
        highs=(),
    )


def judged(*ranks: Rank) -> list[tuple[str, str]]:
    return [(one.name, one.aside) for _, one in odd_first(ranks)]


@pytest.mark.parametrize(
    ("odd", "aside"),
    [
        (rank("odd", allocated=5 * GIB), "1 GiB more allocated at its peak than the median rank (25 %)"),
        (rank("odd", allocated=3 * GIB), "1 GiB less allocated at its peak than the median rank (25 %)"),
        (rank("odd", reserved=10 * GIB), "2 GiB more reserved at its peak than the median rank (25 %)"),
        (rank("odd", events=1500), "50 % more events than the median rank"),
        (rank("odd", events=500), "50 % fewer events than the median rank"),
        (rank("odd", ooms=1), "ran out of memory, others did not"),
        # What is farthest from the median is said.
        (
            rank("odd", allocated=5 * GIB, reserved=80 * GIB),
            "72 GiB more reserved at its peak than the median rank (900 %)",
        ),
    ],
)
def test_the_odd_one_comes_first_and_says_why_and_the_others_keep_their_order(odd: Rank, aside: str) -> None:
    assert judged(rank("b"), rank("a"), odd, rank("c")) == [("odd", aside), ("b", ""), ("a", ""), ("c", "")]


def test_the_place_of_each_rank_is_returned() -> None:
    ranks = [rank("0"), rank("1"), rank("2", allocated=GIB)]
    found = odd_first(ranks)
    assert [place for place, _ in found] == [2, 0, 1]
    assert [ranks[place].name for place, _ in found] == [one.name for _, one in found]


def test_equal_ranks_and_small_differences_are_not_odd() -> None:
    for ranks in (
        [rank(str(number)) for number in range(8)],
        [rank(str(number), allocated=0, reserved=0, events=0) for number in range(8)],
        [rank("0"), rank("1"), rank("2", allocated=4 * GIB + 160 * MIB)],  # 3.9 %
        [rank("0", allocated=GIB), rank("1", allocated=2 * GIB), rank("2", allocated=4 * GIB)],  # all differ
    ):
        assert judged(*ranks) == [(one.name, "") for one in ranks]


def test_beside_equal_ranks_four_percent_and_a_byte_are_odd() -> None:
    limit = 4 * GIB // 25
    assert judged(rank("0"), rank("1"), rank("2", allocated=4 * GIB + limit))[0] == ("0", "")
    assert judged(rank("0"), rank("1"), rank("2", allocated=4 * GIB + limit + 1))[0][0] == "2"


def test_of_two_ranks_neither_is_far_from_the_other_but_one_can_have_failed() -> None:
    assert judged(rank("0"), rank("1", allocated=40 * GIB, events=3)) == [("0", ""), ("1", "")]
    assert judged(rank("0"), rank("1", ooms=2)) == [("1", "ran out of memory, others did not"), ("0", "")]
    assert judged(rank("0", ooms=1)) == [("0", "")]
    assert judged() == []


def test_where_all_ran_out_of_memory_that_is_not_odd_and_figures_count() -> None:
    ranks = [rank(str(number), ooms=1 + number, allocated=(8 if number == 2 else 4) * GIB) for number in range(4)]
    assert judged(*ranks)[0] == ("2", "4 GiB more allocated at its peak than the median rank (100 %)")
    assert [aside for _, aside in judged(*ranks)[1:]] == ["", "", ""]


def test_those_that_ran_out_of_memory_come_before_those_with_other_figures() -> None:
    names = [name for name, _ in judged(rank("0"), rank("1"), rank("2", events=9000), rank("3", ooms=1), rank("4"))]
    assert names == ["3", "2", "0", "1", "4"]


@pytest.mark.parametrize("name", ["survivors", "late_start", "wrapped", "context_state", "leak_no_annotations"])
def test_a_rank_has_the_peaks_of_its_device_and_its_highs_keep_them(name: str) -> None:
    device = device_of(name)
    one = rank_of(device, "rank 7")
    assert (one.name, one.num_events, one.num_ooms) == ("rank 7", device.num_events, len(device.ooms()))
    assert (one.peak_allocated_bytes, one.peak_reserved_bytes) == (
        device.peak.allocated_bytes,
        device.peak.reserved_bytes,
    )
    assert len(one.highs) == 120
    assert max(one.highs) == device.peak.allocated_bytes


def test_each_high_is_the_most_of_its_part_of_the_time(load: Load) -> None:
    one = SnapshotBuilder()
    first = one.alloc(3 * MIB)  # the events of a request are 10 µs apart
    one.wait(1200 - 20)
    one.free(first)
    second = one.alloc(5 * MIB)
    one.free(second)
    one.wait(1200 - 50)
    one.alloc(2 * MIB)
    device = load(one).device()
    highs = rank_of(device, "").highs
    times = device.since_start_us.tolist()
    states = [0, *device.counters.allocated_bytes.tolist()]
    for column in range(120):
        begin, end = times[-1] * column / 120, times[-1] * (column + 1) / 120
        inside = [state for state, time in zip(states[1:], times, strict=True) if begin <= time < end]
        at_begin = states[sum(time < begin for time in times)]
        last = states[-1:] if column == 119 else []
        assert highs[column] == max([at_begin, *inside, *last])
    assert set(highs) == {3 * MIB, 5 * MIB, 0, 2 * MIB}


@pytest.mark.parametrize("has_events", [False, True])
def test_highs_keep_the_peak_where_there_is_no_time(has_events: bool, load: Load) -> None:
    one = SnapshotBuilder()
    one.alloc(3 * MIB)
    one.alloc(5 * MIB)
    one.free(one.alloc(700))
    snapshot = one.snapshot()
    snapshot["device_traces"][0] = [event | {"time_us": 7} for event in one.events] if has_events else []
    device = load(snapshot).device()
    found = rank_of(device, "")
    assert (device.num_events > 0) == has_events
    assert max(found.highs) == found.peak_allocated_bytes == device.peak.allocated_bytes > 0


def test_highs_keep_the_peak_where_the_first_events_share_a_time(load: Load) -> None:
    one = SnapshotBuilder()
    one.free(one.alloc(9 * MIB))
    one.wait(5000)
    one.alloc(700)
    snapshot = one.snapshot()
    for event in snapshot["device_traces"][0][:4]:
        event["time_us"] = snapshot["device_traces"][0][0]["time_us"]
    device = load(snapshot).device()
    assert max(rank_of(device, "").highs) == device.peak.allocated_bytes == 9 * MIB


def test_a_rank_is_plain_data_with_stable_keys() -> None:
    (_, first), *_ = odd_first([rank("0"), rank("1"), rank("2", ooms=1)])
    assert first.to_json() == {
        "name": "2",
        "num_events": 1000,
        "num_ooms": 1,
        "peak_allocated_bytes": 4 * GIB,
        "peak_reserved_bytes": 8 * GIB,
        "highs": [],
        "aside": "ran out of memory, others did not",
    }
