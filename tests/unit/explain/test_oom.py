"""An out-of-memory error is explained: what was asked, what was in the way, and whether it could ever fit."""

from __future__ import annotations

import pytest

from tests.unit.conftest import Load
from tests.unit.snapshot_builder import MIB, SimulatedOutOfMemoryError, SnapshotBuilder
from ullage.explain.oom import find_oom


def refuse(one: SnapshotBuilder, size: int, **where: int | tuple[int, int]) -> SnapshotBuilder:
    with pytest.raises(SimulatedOutOfMemoryError):
        one.alloc(size, "train.py:9 step", **where)  # type: ignore[arg-type]
    return one


def split_by_one(settings: dict[str, bool] | None = None, records_pools: bool = False) -> SnapshotBuilder:
    """Return a segment of 100 MiB: 40 free, 10 live, 50 free."""
    one = SnapshotBuilder(limit_bytes=100 * MIB, settings=settings, records_pools=records_pools)
    whole = one.alloc(100 * MIB, "train.py:3 load")
    one.free(whole)
    first = one.alloc(40 * MIB, "train.py:4 step")
    one.alloc(10 * MIB, "train.py:5 keep")
    one.free(first)
    return one


@pytest.mark.parametrize("records_pools", [False, True])
def test_the_block_in_the_way_is_named_with_what_would_have_fitted(load: Load, records_pools: bool) -> None:
    (oom,) = find_oom(load(refuse(split_by_one(records_pools=records_pools), 60 * MIB)).device())
    assert (oom.severity, oom.bytes, str(oom.site[0])) == ("error", 60 * MIB, "train.py:9 step")
    assert oom.evidence["largest_hole_bytes"] == 50 * MIB
    (blocker,) = oom.evidence["in_the_way"]
    assert (blocker["bytes"], blocker["site"][0]["line"]) == (10 * MIB, 5)
    assert oom.next_step.startswith("1 block in the way: had 10 MiB from train.py:5 been freed")
    assert sum(row["bytes"] for row in oom.evidence["waterfall"]) == oom.evidence["reserved_bytes"] == 100 * MIB


def test_of_several_windows_the_one_with_the_fewest_live_bytes_is_taken(load: Load) -> None:
    one = SnapshotBuilder(limit_bytes=100 * MIB)
    one.free(one.alloc(100 * MIB))
    parts = [one.alloc(size * MIB, f"train.py:{size} keep") for size in (30, 20, 20, 2)]
    one.free(parts[0], parts[2])
    # |30 free|20 live|20 free|2 live|28 free|
    (oom,) = find_oom(load(refuse(one, 45 * MIB)).device())
    assert [row["bytes"] for row in oom.evidence["in_the_way"]] == [2 * MIB]


def test_a_request_larger_than_everything_does_not_fit_at_all(load: Load) -> None:
    one = SnapshotBuilder(limit_bytes=100 * MIB)
    one.alloc(80 * MIB, "train.py:3 load")
    (oom,) = find_oom(load(refuse(one, 90 * MIB)).device())
    assert oom.next_step.startswith("It does not fit at all: lower what is live, first train.py:3 load")
    assert oom.evidence["in_the_way"] == []
    assert "0 B free in all" in oom.title


def test_free_memory_in_other_pools_and_streams_is_named_and_not_counted_as_a_hole(load: Load) -> None:
    one = SnapshotBuilder(limit_bytes=100 * MIB)
    one.alloc(10 * MIB, stream=7)
    one.free(one.alloc(30 * MIB, stream=7), one.alloc(20 * MIB, pool=(0, 1)))
    keep = one.alloc(4 * MIB, stream=7)
    one.alloc(3 * MIB, pool=(0, 1))
    one.request_free(keep)
    # Into a private pool, for which nothing is waited for or given back.
    (oom,) = find_oom(load(refuse(one, 60 * MIB, pool=(0, 2))).device())
    assert oom.evidence["largest_hole_bytes"] == 0
    assert "on other streams" in oom.why
    assert "in private pools" in oom.why
    assert "waiting for a stream" in oom.why


def test_a_limit_for_the_process_is_told_from_a_full_gpu(load: Load) -> None:
    snapshot = refuse(split_by_one(), 60 * MIB).snapshot()
    snapshot["device_traces"][0][-1]["device_free"] = 70 * MIB
    (oom,) = find_oom(load(snapshot).device())
    assert "a limit set for this process" in oom.why
    snapshot["device_traces"][0][-1]["device_free"] = 5 * MIB
    (oom,) = find_oom(load(snapshot).device())
    assert "The GPU had 5 MiB left" in oom.why


def test_at_most_five_errors_are_told_and_all_are_counted(load: Load) -> None:
    one = split_by_one()
    for _ in range(7):
        refuse(one, 60 * MIB)
    findings = find_oom(load(one).device())
    assert len(findings) == 5
    assert "one of 7 such errors" in findings[0].why


def test_without_an_error_there_is_nothing_to_say(load: Load) -> None:
    assert find_oom(load(split_by_one()).device()) == []


@pytest.mark.parametrize("is_set", [False, True])
def test_expandable_segments_are_advised_only_where_they_are_not_set(is_set: bool, load: Load) -> None:
    (oom,) = find_oom(load(refuse(split_by_one({"expandable_segments": is_set}), 60 * MIB)).device())
    assert "would have fitted." in oom.next_step
    assert ("expandable_segments:True" in oom.next_step) is not is_set


@pytest.mark.parametrize(("device_free_mib", "is_limit"), [(19, False), (20, True)])
def test_room_for_the_request_but_not_for_its_segment_is_no_limit(
    device_free_mib: int, is_limit: bool, load: Load
) -> None:
    one = SnapshotBuilder(limit_bytes=MIB)
    snapshot = refuse(one, 3 * MIB).snapshot()
    snapshot["device_traces"][0][-1]["device_free"] = device_free_mib * MIB
    (oom,) = find_oom(load(snapshot).device())
    assert ("a limit set for this process" in oom.why) is is_limit


def test_blocks_in_the_way_from_one_line_are_told_together(load: Load) -> None:
    one = SnapshotBuilder(limit_bytes=100 * MIB)
    one.free(one.alloc(100 * MIB))
    parts = [
        one.alloc(size * MIB, at) for size, at in ((20, "a.py:1 f"), (6, "a.py:1 f"), (4, "b.py:2 g"), (40, "c.py:3 h"))
    ]
    one.free(parts[3])
    gap = one.alloc(40 * MIB, "c.py:3 h")
    one.free(parts[0], gap)
    (oom,) = find_oom(load(refuse(one, 99 * MIB)).device())
    assert [row["bytes"] for row in oom.evidence["in_the_way"]] == [6 * MIB, 4 * MIB]
    assert (
        "2 blocks in the way: had 10 MiB from a.py:1 (6 MiB in 1 block) and b.py:2 (4 MiB in 1 block)" in oom.next_step
    )


def test_many_blocks_in_the_way_from_one_line_are_one_place(load: Load) -> None:
    one = SnapshotBuilder(limit_bytes=100 * MIB)
    one.free(one.alloc(100 * MIB))
    for _ in range(3):
        one.alloc(2 * MIB, "a.py:1 f")
    (oom,) = find_oom(load(refuse(one, 99 * MIB)).device())
    assert oom.next_step.startswith("3 blocks in the way: had 6 MiB from a.py:1 been freed")


def test_holes_count_in_the_pool_that_the_request_was_made_in(load: Load) -> None:
    one = SnapshotBuilder(limit_bytes=100 * MIB, records_pools=True)
    pool = (1, 0)
    one.free(one.alloc(100 * MIB, pool=pool))
    first = one.alloc(40 * MIB, pool=pool)
    one.alloc(10 * MIB, "train.py:5 keep", pool=pool)
    one.free(first)
    with pytest.raises(SimulatedOutOfMemoryError):
        one.alloc(60 * MIB, "train.py:9 step", pool=pool)
    (oom,) = find_oom(load(one).device())
    assert oom.evidence["largest_hole_bytes"] == 50 * MIB
    assert "1 block in the way" in oom.next_step
