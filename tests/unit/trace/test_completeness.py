"""A recording that lacks its beginning says so, and why."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.conftest import Load
from tests.unit.snapshot_builder import MIB, SnapshotBuilder


def busy(num_pairs: int = 4) -> dict[str, Any]:
    """Return a recording of 2 + 3 x num_pairs events."""
    one = SnapshotBuilder()
    one.annotate("warm up")
    one.alloc(3 * MIB)
    for _ in range(num_pairs):
        one.free(one.alloc(5 * MIB))
    return one.snapshot()


def cut(snapshot: dict[str, Any], num_lost: int, **more: Any) -> dict[str, Any]:
    return snapshot | {"device_traces": [snapshot["device_traces"][0][num_lost:]], "external_annotations": []} | more


def test_a_recording_that_begins_with_nothing_there_is_complete(load: Load) -> None:
    assert load(busy()).device().completeness.kind == "complete"


def test_segments_from_before_the_first_event_make_it_late(load: Load) -> None:
    device = load(cut(busy(), 2)).device()
    assert device.completeness.kind == "late"
    assert device.history.num_initial_blocks == 1
    assert device.history.before == (3 * MIB, 3 * MIB, 3 * MIB, 20 * MIB)


def test_a_free_whose_request_is_gone_means_that_the_buffer_wrapped(load: Load) -> None:
    completeness = load(cut(busy(), 4)).device().completeness
    assert (completeness.kind, completeness.why) == (
        "wrapped",
        "its first event completes a free whose request is gone",
    )


def test_annotations_older_than_the_first_event_mean_that_it_wrapped(load: Load) -> None:
    snapshot = busy()
    wrapped = cut(snapshot, 2, external_annotations=snapshot["external_annotations"])
    assert load(wrapped).device().completeness.kind == "wrapped"


@pytest.mark.parametrize(
    ("num_pairs", "num_lost", "num_events", "kind"),
    [(166, 0, 500, "complete"), (167, 3, 500, "wrapped"), (168, 3, 503, "late")],
)
def test_a_round_number_of_events_is_a_full_buffer_only_where_the_start_is_missing(
    num_pairs: int, num_lost: int, num_events: int, kind: str, load: Load
) -> None:
    device = load(cut(busy(num_pairs), num_lost)).device()
    assert (device.num_events, device.completeness.kind) == (num_events, kind)


@pytest.mark.parametrize(("flag", "kind"), [(True, "wrapped"), (False, "late")])
def test_torchs_own_word_on_overflow_decides(flag: bool, kind: str, load: Load) -> None:
    settings = {"trace_alloc_overflowed": [flag]}
    assert load(cut(busy(), 2, allocator_settings=settings)).device().completeness.kind == kind


def test_a_layout_without_events_has_no_history(load: Load) -> None:
    snapshot = busy()
    device = load(cut(snapshot, len(snapshot["device_traces"][0]))).device()
    assert device.completeness.kind == "none"
    assert device.peak == device.end


def test_a_single_event_that_does_not_start_from_nothing_is_no_history(load: Load) -> None:
    snapshot = busy()
    device = load(cut(snapshot, len(snapshot["device_traces"][0]) - 1)).device()
    assert (device.num_events, device.completeness.kind) == (1, "none")
