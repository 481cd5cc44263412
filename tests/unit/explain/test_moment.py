"""The event that a finding is about, and the events that it spans."""

from __future__ import annotations

import pytest

from tests.recordings import COMPLETE, PARTIAL, device_of, findings_of
from tests.unit.conftest import Load
from tests.unit.snapshot_builder import MIB, SnapshotBuilder
from ullage.explain import explain
from ullage.explain.moment import event_of, span_of


@pytest.mark.parametrize("name", [*COMPLETE, *sorted(PARTIAL)])
def test_every_finding_but_that_about_the_recording_has_a_moment_in_it(name: str) -> None:
    device = device_of(name)
    for finding in findings_of(name):
        event = event_of(device, finding)
        if finding.kind == "recording":
            assert event is None
        elif event is not None:
            assert 0 <= event < device.num_events


def test_each_kind_is_at_the_instant_of_its_title() -> None:
    oom = next(one for one in findings_of("survivors") if one.kind == "oom")
    assert event_of(device_of("survivors"), oom) == device_of("survivors").ooms()[0]
    peak = next(one for one in findings_of("survivors") if one.kind == "peak")
    assert event_of(device_of("survivors"), peak) == device_of("survivors").event_at("peak")
    held = next(one for one in findings_of("graph_chain") if one.kind == "private_pool")
    assert event_of(device_of("graph_chain"), held) == device_of("graph_chain").num_events - 1


def test_growth_is_where_it_begins() -> None:
    device = device_of("leak_no_annotations")
    growth = next(one for one in findings_of("leak_no_annotations") if one.kind == "growth")
    event = event_of(device, growth)
    assert event is not None
    assert device.events.time_us[event] - device.span_us[0] == growth.evidence["since_us"]


def test_churn_is_at_its_largest_release() -> None:
    device = device_of("retries")
    churn = next(one for one in findings_of("retries") if one.kind == "churn")
    event = event_of(device, churn)
    assert event == max(churn.evidence["bursts"], key=lambda burst: burst["bytes"])["event"]


def leak(num_steps: int) -> SnapshotBuilder:
    """Return a loop that keeps 2 MiB in each step, after 3 in which it keeps nothing."""
    one = SnapshotBuilder()
    one.alloc(19 * MIB, "train.py:1 main")  # events 0 and 1
    for step in range(num_steps):
        one.free(one.alloc(700, "train.py:5 step < train.py:2 main"))
        if step >= 3:
            one.alloc(2 * MIB, "train.py:6 keep < train.py:2 main")
    return one


def test_growth_spans_the_steps_that_grew_and_others_span_nothing(load: Load) -> None:
    device = load(leak(16)).device()
    starts = device.steps.starts.tolist()
    found = explain(device.trace)
    (growth,) = [one for one in found if one.kind == "growth"]
    span = span_of(device, growth)
    assert span is not None
    first, end = span
    assert first == event_of(device, growth) == starts[growth.evidence["first_step"] - 1]
    assert end == starts[growth.evidence["last_step"] - 1] + 1 == starts[-1] + 1
    line = device.blocks.site == device.blocks.site[-1]
    live = [int(device.blocks.size_bytes[line & (device.blocks.birth < event)].sum()) for event in (first, end - 1)]
    assert live[1] - live[0] == growth.bytes == growth.evidence["num_steps"] * 2 * MIB
    assert [span_of(device, one) for one in found if one.kind != "growth"] == [None] * (len(found) - 1)
