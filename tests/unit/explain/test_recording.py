"""Whatever limits what can be said is said: a late or wrapped start, no history, no stacks, contradictions."""

from __future__ import annotations

from typing import Any

from tests.unit.conftest import Load
from tests.unit.snapshot_builder import MIB, SnapshotBuilder
from ullage.explain.recording import find_recording


def recorded(at: str = "train.py:3 step") -> SnapshotBuilder:
    one = SnapshotBuilder()
    one.alloc(12 * MIB, at)
    for _ in range(4):
        one.free(one.alloc(14 * MIB, at))
    return one


def cut(num_lost: int) -> dict[str, Any]:
    snapshot = recorded().snapshot()
    return snapshot | {"device_traces": [snapshot["device_traces"][0][num_lost:]]}


def test_a_complete_recording_with_stacks_lacks_nothing(load: Load) -> None:
    assert find_recording(load(recorded()).device()) == []


def test_a_late_start_says_what_was_there(load: Load) -> None:
    (late,) = find_recording(load(cut(2)).device())
    assert (late.severity, late.bytes, late.evidence["initial_blocks"]) == ("info", 12 * MIB, 1)
    assert late.title == "The recording began late: 12 MiB was already allocated"


def test_a_wrapped_buffer_is_a_warning(load: Load) -> None:
    (wrapped,) = find_recording(load(cut(5)).device())
    assert (wrapped.severity, wrapped.evidence["history"]) == ("warning", "wrapped")
    assert "max_entries" in wrapped.next_step


def test_a_layout_alone_is_no_history(load: Load) -> None:
    (none,) = find_recording(load(cut(99)).device())
    assert (none.severity, none.evidence["history"]) == ("warning", "none")
    assert none.bytes == 26 * MIB


def test_requests_without_stacks_are_counted(load: Load) -> None:
    (stacks,) = find_recording(load(recorded(at="")).device())
    assert stacks.title == "No stacks: 5 of 5 requests do not say which line made them"


def test_some_requests_without_a_stack_are_normal(load: Load) -> None:
    one = recorded()
    for _ in range(5):
        one.free(one.alloc(700, ""))
    assert find_recording(load(one).device()) == []


def test_events_that_contradict_each_other_are_owned_up_to(load: Load) -> None:
    snapshot = recorded().snapshot()
    snapshot["device_traces"][0].insert(4, dict(snapshot["device_traces"][0][1]))
    (conflicts,) = find_recording(load(snapshot).device())
    assert conflicts.evidence["conflicts"] >= 1
    assert "The first is event 4." in conflicts.why
    assert conflicts.why.index("settings were changed") < conflicts.why.index("damaged")
    assert "1 events" not in conflicts.title


def test_one_block_from_before_is_told_in_the_singular(load: Load) -> None:
    (late,) = find_recording(load(cut(2)).device())
    assert late.why.startswith("1 block (12 MiB) was there before the first event;")
