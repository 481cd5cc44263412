"""Runs every finding over a trace and puts the answers in order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ullage.explain.churn import find_churn
from ullage.explain.finding import SEVERITIES, Finding
from ullage.explain.fragmentation import find_fragmentation
from ullage.explain.growth import find_growth
from ullage.explain.held import find_held
from ullage.explain.oom import find_oom
from ullage.explain.peak import find_peak
from ullage.explain.private_pool import find_private_pool
from ullage.explain.recording import find_recording
from ullage.explain.stream import find_stream

if TYPE_CHECKING:
    from ullage.trace import DeviceTrace, Trace

# Among findings of equal severity, what answers "why did it die" comes first.
_ORDER = ("oom", "growth", "fragmentation", "private_pool", "stream", "churn", "peak", "held", "recording")


def explain(trace: Trace, *, device: int | None = None, at: str | int = "peak") -> list[Finding]:
    """Explain where a trace's memory went, worst first.

    Args:
        trace: The trace.
        device: One device's number; None: all of them.
        at: The instant that the finding `peak` is about: "peak", "end", "oom", or a time in microseconds.

    Returns:
        The findings. A trace in which all is well has only some of severity "info".

    Raises:
        UllageError: There is no such device or instant.

    Cost: linear in the events, a few passes.
    """
    devices = trace.devices if device is None else (trace.device(device),)
    found = [finding for one in devices for finding in _explain_device(one, at)]
    found.sort(key=lambda finding: (-SEVERITIES.index(finding.severity), _ORDER.index(finding.kind), -finding.bytes))
    return found


def _explain_device(device: DeviceTrace, at: str | int) -> list[Finding]:
    found = find_recording(device) + find_held(device) + find_peak(device, at)
    if device.num_events:
        for find in (find_oom, find_growth, find_fragmentation, find_private_pool, find_stream, find_churn):
            found += find(device)
    return found
