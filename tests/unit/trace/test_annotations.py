"""What the program wrote into its recording: spans, step names, and the profiler's categories."""

from __future__ import annotations

from typing import Any

import pytest

import ullage
from tests.unit.conftest import Load
from tests.unit.snapshot_builder import START_US, SnapshotBuilder, merged
from ullage.trace import annotation_spans, event_categories
from ullage.trace.annotations import annotation_starts

Mark = tuple[str, str, int]


def annotated(*marks: Mark | tuple[str, str, int, int]) -> dict[str, Any]:
    """Return a recording of two devices with marks: name, stage, microseconds, and the device where it is not 0."""
    one, other = SnapshotBuilder(), SnapshotBuilder(device=1)
    one.alloc(700)
    one.alloc(700)
    other.alloc(700)
    snapshot = merged(one.snapshot(), other.snapshot())
    snapshot["external_annotations"] = [
        {"name": mark[0], "stage": mark[1], "time_us": START_US + mark[2], "device": (*mark, 0)[3]} for mark in marks
    ]
    return snapshot


def spans(device: ullage.DeviceTrace) -> list[tuple[str, int, int | None]]:
    return [
        (one.name, one.begin_us - START_US, None if one.end_us is None else one.end_us - START_US)
        for one in annotation_spans(device)
    ]


@pytest.mark.parametrize(
    ("marks", "found"),
    [
        ((), []),
        ((("a", "START", 1), ("a", "END", 4)), [("a", 1, 4)]),
        ((("a", "START", 1),), [("a", 1, None)]),
        ((("a", "END", 1), ("a", "START", 2), ("a", "END", 3), ("a", "END", 4)), [("a", 2, 3)]),
        # An end belongs to the last open start of its name.
        (
            (("a", "START", 1), ("a", "START", 2), ("a", "END", 3), ("a", "END", 5)),
            [("a", 1, 5), ("a", 2, 3)],
        ),
        ((("a", "START", 1), ("a", "START", 2), ("a", "END", 3)), [("a", 1, None), ("a", 2, 3)]),
        # Others cross it.
        (
            (("a", "START", 1), ("b", "START", 2), ("a", "END", 3), ("b", "END", 4)),
            [("a", 1, 3), ("b", 2, 4)],
        ),
        # Numbers are a part of a span's name.
        (
            (("step#1", "START", 1), ("step#2", "START", 2), ("step#1", "END", 3)),
            [("step#1", 1, 3), ("step#2", 2, None)],
        ),
        # A clock that went back makes no negative span.
        ((("a", "START", 5), ("a", "END", 2)), [("a", 5, 5)]),
        ((("a", "PAUSE", 1), ("a", "START", 2)), [("a", 2, None)]),
    ],
)
def test_starts_and_ends_become_spans(
    marks: tuple[Mark, ...], found: list[tuple[str, int, int | None]], load: Load
) -> None:
    assert spans(load(annotated(*marks)).device(0)) == found


def test_a_device_has_its_own_spans_and_those_of_none(load: Load) -> None:
    snapshot = annotated(("a", "START", 1, 0), ("b", "START", 2, 1), ("b", "END", 3, 0), ("c", "START", 4, 7))
    nobodys = {"name": "d", "stage": "START", "time_us": START_US + 5}
    snapshot["external_annotations"].append(nobodys)
    trace = load(snapshot)
    assert spans(trace.device(0)) == [("a", 1, None), ("d", 5, None)]
    assert spans(trace.device(1)) == [("b", 2, None), ("d", 5, None)]


def test_starts_of_one_name_and_many_numbers_are_one_list(load: Load) -> None:
    names = ("ProfilerStep#1", "ProfilerStep#22", "layer.3.norm", "layer 3", "epoch_7", "iter:8", "v1-2", "4")
    marks = [(name, "START", time) for time, name in enumerate(names)]
    device = load(annotated(*marks, ("ProfilerStep#1", "END", 9), ("other", "START", 3, 1))).device(0)
    starts = {name: [time - START_US for time in times] for name, times in annotation_starts(device).items()}
    assert starts == {
        "ProfilerStep": [0, 1],
        "layer.3.norm": [2],
        "layer": [3],
        "epoch": [4],
        "iter": [5],
        "v1": [6],
        "": [7],
    }
    assert "other" in annotation_starts(device, any_device=True)


def test_categories_are_by_the_events_of_their_device(load: Load) -> None:
    snapshot = annotated()
    snapshot["device_traces"][0][1]["category"] = "PARAMETER"
    snapshot["device_traces"][1][1]["category"] = "ACTIVATION"
    snapshot["device_traces"][1][0]["category"] = "TEMPORARY"
    trace = load(snapshot)
    assert event_categories(trace.device(0)) == {1: "PARAMETER"}
    assert event_categories(trace.device(1)) == {0: "TEMPORARY", 1: "ACTIVATION"}
