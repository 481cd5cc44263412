"""Annotations by name, the longest ones, within the recorded time."""

from __future__ import annotations

from typing import Any

from tests.unit.conftest import Load
from tests.unit.snapshot_builder import MIB, START_US, SnapshotBuilder
from ullage.explain.named_spans import named_spans


def annotated(*rows: tuple[str, str, int]) -> dict[str, Any]:
    one = SnapshotBuilder()
    for _ in range(5):
        one.alloc(12 * MIB)  # two events, 10 µs each: the last is at 90 µs
    notes = [
        {"name": name, "stage": stage, "device": 0, "time_us": START_US + time_us} for name, stage, time_us in rows
    ]
    return one.snapshot() | {"external_annotations": notes}


def test_spans_of_a_name_are_together_whatever_their_number(load: Load) -> None:
    rows = [("forward 1", "START", 10), ("forward 1", "END", 20), ("forward 2", "START", 30), ("forward 2", "END", 50)]
    assert named_spans(load(annotated(*rows)).device(), max_names=4) == {"forward": [(10, 20), (30, 50)]}


def test_spans_are_cut_to_the_recorded_time(load: Load) -> None:
    rows = [
        ("epoch", "START", -40),
        ("epoch", "END", 5),
        ("tail", "START", 80),
        ("late", "START", 95),
        ("late", "END", 99),
    ]
    assert named_spans(load(annotated(*rows)).device(), max_names=4) == {"epoch": [(0, 5)], "tail": [(80, 90)]}


def test_only_the_longest_names_are_kept(load: Load) -> None:
    rows = [("short", "START", 1), ("short", "END", 2), ("long", "START", 10), ("long", "END", 60)]
    device = load(annotated(*rows)).device()
    assert list(named_spans(device, max_names=1)) == ["long"]
    assert named_spans(device, max_names=0) == {}
