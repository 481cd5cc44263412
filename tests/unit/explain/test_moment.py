"""The event that a finding is about."""

from __future__ import annotations

import pytest

from tests.recordings import COMPLETE, PARTIAL, device_of, findings_of
from ullage.explain.moment import event_of


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
