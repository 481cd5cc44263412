"""An out-of-memory error is explained: what was asked, what was in the way, and whether it could ever fit."""

from __future__ import annotations

import pytest

from tests.unit.conftest import Load
from tests.unit.snapshot_builder import MIB, SimulatedOutOfMemoryError, SnapshotBuilder
from ullage.explain.oom import find_oom


def refuse(one: SnapshotBuilder, size: int, **where: int) -> SnapshotBuilder:
    with pytest.raises(SimulatedOutOfMemoryError):
        one.alloc(size, "train.py:9 step", **where)  # type: ignore[arg-type]
    return one


def split_by_one() -> SnapshotBuilder:
    """Return a segment of 100 MiB: 40 free, 10 live, 50 free."""
    one = SnapshotBuilder(limit_bytes=100 * MIB)
    whole = one.alloc(100 * MIB, "train.py:3 load")
    one.free(whole)
    first = one.alloc(40 * MIB, "train.py:4 step")
    one.alloc(10 * MIB, "train.py:5 keep")
    one.free(first)
    return one


def test_the_block_in_the_way_is_named_with_what_would_have_fitted(load: Load) -> None:
    (oom,) = find_oom(load(refuse(split_by_one(), 60 * MIB)).device())
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
    (oom,) = find_oom(load(refuse(one, 60 * MIB)).device())
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
