"""When a finding was: the event that it is about, and the span."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ullage.trace import NONE

if TYPE_CHECKING:
    from ullage.explain.finding import Finding
    from ullage.trace import DeviceTrace


def event_of(device: DeviceTrace, finding: Finding) -> int | None:
    """Return the event after which the state shows what a finding is about.

    Args:
        device: The finding's device.
        finding: The finding.

    Returns:
        An event index; None where it is about the whole recording, or about the time before its first event.
    """
    evidence = finding.evidence
    event: int | None = None
    if "event" in evidence:
        event = evidence["event"]
    elif finding.kind == "fragmentation":
        event = evidence["instants"][evidence["at"]]["event"]
    elif finding.kind == "churn" and evidence["bursts"]:
        event = evidence["bursts"][0]["event"]
    elif finding.kind == "growth":
        event = _steps_of(device, finding)[0]
    elif finding.kind in ("held", "private_pool", "stream"):  # of the end, unless they name an event
        event = device.num_events - 1
    return None if event is None or event == NONE else event


def span_of(device: DeviceTrace, finding: Finding) -> tuple[int, int] | None:
    """Return the events that a finding spans: the first, and the one after the last.

    Args:
        device: The finding's device.
        finding: The finding.

    Returns:
        Event indices; None where it is about an instant, or about the whole recording.
    """
    return _steps_of(device, finding) if finding.kind == "growth" else None


def _steps_of(device: DeviceTrace, finding: Finding) -> tuple[int, int]:
    """Return the first event of the first step that grew, and the one after the mark of the last."""
    starts, evidence = device.steps.starts, finding.evidence
    last = min(evidence["last_step"], len(starts)) - 1
    return int(starts[evidence["first_step"] - 1]), int(starts[last]) + 1
