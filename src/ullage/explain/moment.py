"""When a finding was: the event that it is about."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

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
        since = device.span_us[0] + evidence["since_us"]
        event = int(np.searchsorted(device.events.time_us, since, side="left"))
    elif finding.kind in ("held", "private_pool", "stream"):  # of the end, unless they name an event
        event = device.num_events - 1
    return None if event is None or event == NONE else event
