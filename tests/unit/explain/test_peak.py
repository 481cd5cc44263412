"""The peak is split by line, age and step, and what was reserved beyond it by cause."""

from __future__ import annotations

from tests.unit.conftest import Load
from tests.unit.snapshot_builder import MIB, SnapshotBuilder
from ullage.explain.peak import find_peak


def up_and_down() -> SnapshotBuilder:
    one = SnapshotBuilder()
    one.alloc(12 * MIB, "model.py:2 load")
    one.free(one.alloc(40 * MIB, "train.py:3 step"), one.alloc(14 * MIB, "train.py:4 step"))
    return one


def test_the_line_with_most_bytes_leads(load: Load) -> None:
    (peak,) = find_peak(load(up_and_down()).device())
    assert (peak.bytes, peak.severity, str(peak.site[0])) == (66 * MIB, "info", "train.py:3 step")
    assert [row["bytes"] for row in peak.evidence["by_site"]] == [40 * MIB, 14 * MIB, 12 * MIB]
    assert peak.why.startswith("61 % of it (40 MiB) was asked for by train.py:3 step.")
    assert peak.why.endswith("Nothing was reserved beyond that.")
    assert (peak.evidence["event"], peak.evidence["time_us"]) == (5, 50)


def test_another_instant_has_its_own_name_and_bytes(load: Load) -> None:
    (end,) = find_peak(load(up_and_down()).device(), "end")
    assert end.title.startswith("At the end: 12 MiB allocated")
    assert end.evidence["reserved_bytes"] == 66 * MIB
    assert "54 MiB was in no live tensor" in end.why


def test_old_blocks_at_the_peak_are_pointed_out(load: Load) -> None:
    one = SnapshotBuilder()
    one.alloc(30 * MIB, "cache.py:2 put")
    one.wait(70_000_000)
    one.alloc(12 * MIB)
    (peak,) = find_peak(load(one).device())
    assert peak.next_step.startswith("30 MiB of it is older than a minute")


def test_where_nothing_lives_it_says_so(load: Load) -> None:
    one = SnapshotBuilder()
    one.free(one.alloc(700))
    (end,) = find_peak(load(one).device(), "end")
    assert (end.bytes, end.site) == (0, ())
    assert end.why.startswith("Nothing was allocated.")
