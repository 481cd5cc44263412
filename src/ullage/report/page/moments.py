"""Where in a recording a finding is about: the instant and the span that a click on it shows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from ullage.explain import Finding
    from ullage.trace import DeviceTrace


def moment_of(device: DeviceTrace, finding: Finding) -> dict[str, Any]:
    """Return a finding's instant and span.

    Returns:
        `event`: the state after this event shows it; None where no instant shows more of it than another. `span`: the
        first event and the one after the last, or None for the whole recording.
    """
    evidence = finding.evidence
    if "event" in evidence:
        return {"event": evidence["event"], "span": None}
    if finding.kind == "growth":
        return _growth(device, evidence)
    if finding.kind == "fragmentation":
        return {"event": device.event_at(evidence["at"]), "span": None}
    if finding.kind == "churn" and evidence["bursts"]:
        return {"event": _event_at(device, evidence["bursts"][0]["since_start_us"]), "span": None}
    if finding.kind in ("held", "private_pool", "stream"):
        name = "end" if finding.kind == "held" else "reserved_peak"
        return {"event": device.event_at(name), "span": None}
    return {"event": None, "span": None}


def _growth(device: DeviceTrace, evidence: dict[str, Any]) -> dict[str, Any]:
    starts = device.steps.starts
    first = int(starts[evidence["first_step"] - 1])
    last = int(starts[min(evidence["last_step"], len(starts)) - 1])
    return {"event": last, "span": [first, last + 1]}


def _event_at(device: DeviceTrace, since_start_us: int) -> int:
    times = device.events.time_us
    return int(np.searchsorted(times, device.span_us[0] + since_start_us, side="right")) - 1
