"""The peak: what was live at it, by line, age and step, and why more was reserved than that."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ullage.explain.attribution import SiteShare, describe, share_by_age, share_by_site, share_by_step
from ullage.explain.finding import Finding
from ullage.explain.waterfall import main_stream, waterfall
from ullage.explain.workspaces import find_workspaces
from ullage.trace import NONE
from ullage.units import format_bytes, format_duration, format_share, plural

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ullage.trace import DeviceTrace


def find_peak(device: DeviceTrace, at: str | int = "peak") -> list[Finding]:
    """Explain the peak of allocated and of reserved memory.

    Args:
        device: The device.
        at: Another instant to explain instead; as in `DeviceTrace.event_at`.

    Raises:
        UllageError: There is no such instant.
    """
    event = device.event_at(at)
    reserved_event = device.event_at("reserved_peak") if at == "peak" else event
    rows = device.live_after(event)
    shares = share_by_site(device, rows, event)
    live_bytes = sum(share.bytes for share in shares)
    layout = device.layouts_after(sorted({event, reserved_event}))[reserved_event]
    causes = waterfall(device, layout, main_stream(device))
    reserved = sum(cause["bytes"] for cause in causes)
    if not reserved:
        return []
    name = _name(device, at, event)
    return [
        Finding(
            kind="peak",
            severity="info",
            device=device.number,
            bytes=live_bytes,
            title=f"{name}: {format_bytes(live_bytes)} allocated in {plural(len(rows), 'block')}"
            f"{_moment(device, event)}; {format_bytes(reserved)} reserved",
            why=" ".join([*_why_live(device, rows, shares), _why_reserved(causes, reserved, at == "peak")]),
            next_step=_next_step(device, rows, event, shares),
            site=shares[0].stack if shares else (),
            evidence={
                "event": event,
                "time_us": _since_start(device, event),
                "step": _step(device, event),
                "by_site": [share.to_json() for share in shares],
                "by_age": share_by_age(device, rows, event),
                "by_step": share_by_step(device, rows, event),
                "likely_cublas_workspace_bytes": _workspace_bytes(device, rows)[0],
                "reserved_event": reserved_event,
                "reserved_time_us": _since_start(device, reserved_event),
                "reserved_bytes": reserved,
                "waterfall": causes,
            },
        )
    ]


def _name(device: DeviceTrace, at: str | int, event: int) -> str:
    if not device.num_events:
        return "At the end"
    if at == "peak":
        return "Peak"
    words = {"end": "At the end", "oom": "At the out-of-memory error", "reserved_peak": "At the peak of reserved"}
    return words.get(str(at), f"At {format_duration(_since_start(device, event) or 0)}")


def _why_live(device: DeviceTrace, rows: NDArray[np.int64], shares: list[SiteShare]) -> list[str]:
    if not shares:
        return ["Nothing was allocated."]
    top, whole = shares[0], sum(share.bytes for share in shares)
    parts = [
        f"{format_share(top.bytes, whole)} of it ({format_bytes(top.bytes)}) was asked for by {describe(top.lead)}."
    ]
    size, num_streams = _workspace_bytes(device, rows)
    if size >= 0.05 * whole:
        parts.append(
            f"{format_bytes(size)} have the size of cuBLAS workspaces, one set for each of {plural(num_streams, 'stream')}."
        )
    return parts


def _workspace_bytes(device: DeviceTrace, rows: NDArray[np.int64]) -> tuple[int, int]:
    workspaces = np.intersect1d(rows, find_workspaces(device))
    blocks = device.blocks
    streams = device.segments.stream[blocks.segment[workspaces]]
    return int(blocks.size_bytes[workspaces].sum()), len(np.unique(streams))


def _since_start(device: DeviceTrace, event: int) -> int | None:
    if event == NONE:
        return None
    return int(device.events.time_us[event]) - device.span_us[0]


def _step(device: DeviceTrace, event: int) -> int | None:
    if event == NONE or not len(device.steps):
        return None
    return int(device.steps.step_of(np.asarray([event]))[0])


def _moment(device: DeviceTrace, event: int) -> str:
    since = _since_start(device, event)
    if since is None:
        return " when the recording began" if device.num_events else ""
    step = _step(device, event)
    in_step = f", in step {step} of {len(device.steps)}" if step else ""
    return f", {format_duration(since)} in{in_step}"


def _why_reserved(causes: list[dict[str, Any]], reserved: int, is_own_peak: bool) -> str:
    slack = [cause for cause in causes[1:] if cause["bytes"] > 0]
    if not slack:
        return "Nothing was reserved beyond that."
    largest = max(slack, key=lambda cause: int(cause["bytes"]))
    total = sum(cause["bytes"] for cause in slack)
    when = "at its own peak" if is_own_peak else "then"
    return (
        f"Of {format_bytes(reserved)} reserved {when}, {format_bytes(total)} was in no live tensor: most of it was "
        f"{largest['label']} ({format_bytes(largest['bytes'])})."
    )


def _next_step(device: DeviceTrace, rows: NDArray[np.int64], event: int, shares: list[SiteShare]) -> str:
    if not shares:
        return "Nothing to do here."
    overdue = _overdue_bytes(device, rows, event)
    if overdue * 4 >= sum(share.bytes for share in shares):
        age = "more than five steps old and no part of the set-up" if len(device.steps) else "older than a minute"
        return f"{format_bytes(overdue)} of it is {age}: it should long be gone."
    return f"To lower it, start with {describe(shares[0].lead)}: {format_bytes(shares[0].bytes)}."


def _overdue_bytes(device: DeviceTrace, rows: NDArray[np.int64], event: int) -> int:
    """Sum what was made in the loop, more than five steps before; weights, optimizer state and workspaces are not that."""
    if event == NONE:
        return 0
    blocks = device.blocks
    if len(device.steps):
        born_in = device.steps.step_of(blocks.birth[rows])
        now = int(device.steps.step_of(np.asarray([event]))[0])
        overdue = rows[(born_in > 1) & (now - born_in > 5)]
    else:
        times = device.events.time_us
        known = rows[blocks.birth[rows] != NONE]
        overdue = known[times[event] - times[blocks.birth[known]] > 60_000_000]
    return int(blocks.size_bytes[np.setdiff1d(overdue, find_workspaces(device))].sum())
