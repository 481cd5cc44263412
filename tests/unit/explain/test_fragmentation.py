"""Fragmentation names the live blocks that pin free memory, with the bytes that each holds back."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.conftest import Load
from tests.unit.snapshot_builder import MIB, SimulatedOutOfMemoryError, SnapshotBuilder
from ullage.explain.fragmentation import find_fragmentation, pinning


def stranding(settings: dict[str, Any] | None = None) -> SnapshotBuilder:
    """Return weights that each lie in the block of a larger temporary."""
    one = SnapshotBuilder(settings=settings)
    for _ in range(4):
        one.free(one.alloc(530 * MIB, "load.py:3 unpack"))
        one.alloc(270 * MIB, "load.py:4 weight")
    return one


def pinned_twice() -> SnapshotBuilder:
    """Return one segment: |keep 4 MiB|hole 6|keep 2|hole 8|, addresses ascending."""
    one = SnapshotBuilder()
    one.alloc(4 * MIB, "train.py:4 keep")
    hole = one.alloc(6 * MIB)
    one.alloc(2 * MIB, "train.py:5 keep")
    one.free(hole)
    return one


def test_a_hole_counts_half_for_each_neighbour_and_whole_at_the_edge(load: Load) -> None:
    device = load(pinned_twice()).device()
    rows, held_back = pinning(device, device.layout_at("end"))
    sizes = device.blocks.size_bytes[rows].tolist()
    assert dict(zip(sizes, held_back.tolist(), strict=True)) == {4 * MIB: 3 * MIB, 2 * MIB: 3 * MIB + 8 * MIB}


def test_a_whole_free_segment_is_pinned_by_nobody(load: Load) -> None:
    one = SnapshotBuilder()
    one.free(one.alloc(30 * MIB))
    one.alloc(700)
    device = load(one).device()
    _, held_back = pinning(device, device.layout_at("end"))
    assert held_back.sum() == 2 * MIB - 1024


def test_holes_of_weights_in_larger_blocks_are_a_warning_with_their_line(load: Load) -> None:
    (finding,) = find_fragmentation(load(stranding()).device())
    assert finding.bytes == 3 * 260 * MIB
    assert finding.severity == "warning"
    assert str(finding.site[0]) == "load.py:4 weight"
    (pin,) = finding.evidence["pinning"]
    assert (pin["held_back_bytes"], pin["live_bytes"], pin["num_blocks"]) == (780 * MIB, 810 * MIB, 3)
    assert finding.evidence["instants"]["reserved_peak"]["largest_hole_bytes"] == 260 * MIB
    assert "expandable_segments:True" in finding.next_step


def test_expandable_segments_are_not_advised_where_they_are_on(load: Load) -> None:
    # A segment can be older than the setting, so that it is not expandable itself.
    (finding,) = find_fragmentation(load(stranding({"expandable_segments": True})).device())
    assert "expandable_segments" not in finding.next_step


def test_weights_made_first_strand_nothing(load: Load) -> None:
    one = SnapshotBuilder()
    for _ in range(4):
        one.alloc(270 * MIB, "load.py:4 weight")
    for _ in range(4):
        one.free(one.alloc(530 * MIB, "load.py:3 unpack"))
    assert find_fragmentation(load(one).device()) == []


def test_memory_that_is_all_in_use_is_not_fragmented(load: Load) -> None:
    one = SnapshotBuilder()
    for _ in range(5):
        one.alloc(40 * MIB)
    assert find_fragmentation(load(one).device()) == []


def test_an_error_is_looked_at_before_the_peak(load: Load) -> None:
    one = SnapshotBuilder(limit_bytes=240 * MIB)
    one.free(one.alloc(200 * MIB, "train.py:3 load"))
    one.alloc(16 * MIB, "train.py:4 keep")
    with pytest.raises(SimulatedOutOfMemoryError):
        one.alloc(190 * MIB, "train.py:5 load")
    (finding,) = find_fragmentation(load(one).device())
    assert finding.evidence["at"] == "oom"
    assert finding.bytes == 184 * MIB
    assert "could serve 190 MiB (the largest: 184 MiB)" in finding.why


def test_free_blocks_on_another_stream_are_told_apart(load: Load) -> None:
    one = SnapshotBuilder()
    one.free(one.alloc(300 * MIB, "side.py:2 copy", stream=7))
    one.alloc(400 * MIB)
    (finding,) = find_fragmentation(load(one).device())
    by_cause = {row["cause"]: row["bytes"] for row in finding.evidence["instants"]["reserved_peak"]["free_by_cause"]}
    assert by_cause["other_stream"] == 300 * MIB
    assert "fewer streams" in finding.next_step
