"""Runs every finding over a trace and puts the answers in order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ullage.errors import UllageError
from ullage.explain.churn import find_churn
from ullage.explain.finding import SEVERITIES, Finding, Findings
from ullage.explain.fragmentation import find_fragmentation
from ullage.explain.growth import find_growth
from ullage.explain.held import find_held
from ullage.explain.oom import find_oom
from ullage.explain.peak import find_peak
from ullage.explain.private_pool import find_private_pool
from ullage.explain.recording import find_recording
from ullage.explain.stream import find_stream

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ullage.trace import DeviceTrace, Trace

# Among findings of equal severity, what answers "why did it die" comes first.
_ORDER = ("oom", "growth", "fragmentation", "private_pool", "stream", "churn", "peak", "held", "recording")


def explain(trace: Trace, *, device: int | None = None, at: str | int = "peak") -> Findings:
    """Explain where a trace's memory went, worst first.

    Args:
        trace: The trace.
        device: One device's number; None: all of them.
        at: The instant that the finding `peak` is about: "peak", "end", "oom", or a time in microseconds.

    Returns:
        The findings, a list that notebooks show as cards. A trace in which all is well has only some of severity "info".

    Raises:
        UllageError: There is no such device or instant.

    Cost: linear in the events, a few passes.
    """
    devices = trace.devices if device is None else (trace.device(device),)
    found = [finding for one in devices for finding in _explain_device(one)] + _peaks(devices, at)
    found.sort(key=lambda finding: (-SEVERITIES.index(finding.severity), _ORDER.index(finding.kind), -finding.bytes))
    return Findings(found)


def _peaks(devices: Sequence[DeviceTrace], at: str | int) -> list[Finding]:
    """Break the instant down on every device that has it; of two GPUs, one may have met an OOM."""
    found: list[Finding] = []
    errors: list[UllageError] = []
    for device in devices:
        try:
            found += find_peak(device, at)
        except UllageError as error:
            errors.append(error)
    if errors and len(errors) == len(devices):
        raise errors[0]
    return found


def _explain_device(device: DeviceTrace) -> list[Finding]:
    found = find_recording(device) + find_held(device)
    for find in (find_fragmentation, find_private_pool):
        found += find(device)
    if device.num_events:
        for find in (find_oom, find_growth, find_stream, find_churn):
            found += find(device)
    return found
