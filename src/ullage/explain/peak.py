"""The peak: what was live at it, by line, age and step, and why more was reserved than that."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ullage.explain.attribution import describe, share_by_age, share_by_site, share_by_step
from ullage.explain.finding import Finding
from ullage.explain.waterfall import main_stream, waterfall
from ullage.trace import NONE
from ullage.units import format_bytes, format_duration, format_share

if TYPE_CHECKING:
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
    if not len(rows):
        return []
    shares = share_by_site(device, rows, event)
    live_bytes = sum(share.bytes for share in shares)
    stream = main_stream(device)
    layout = device.layouts_after(sorted({event, reserved_event}))[reserved_event]
    causes = waterfall(device, layout, stream)
    reserved = sum(cause["bytes"] for cause in causes)
    top = shares[0]
    by_step = share_by_step(device, rows, event)
    by_age = share_by_age(device, rows, event)
    name = "Peak" if at == "peak" else f"At {at}"
    return [
        Finding(
            kind="peak",
            severity="info",
            device=device.number,
            bytes=live_bytes,
            title=f"{name}: {format_bytes(live_bytes)} allocated in {len(rows):,} blocks"
            f"{_moment(device, event)}; {format_bytes(reserved)} reserved",
            why=f"{format_share(top.bytes, live_bytes)} of it ({format_bytes(top.bytes)}) was asked for by "
            f"{describe(top.lead)}. {_why_reserved(causes, reserved)}",
            next_step=_next_step(by_step or by_age, live_bytes),
            site=top.stack,
            evidence={
                "event": event,
                "time_us": _since_start(device, event),
                "step": _step(device, event),
                "by_site": [share.to_json() for share in shares],
                "by_age": by_age,
                "by_step": by_step,
                "reserved_event": reserved_event,
                "reserved_time_us": _since_start(device, reserved_event),
                "reserved_bytes": reserved,
                "waterfall": causes,
            },
        )
    ]


def _since_start(device: DeviceTrace, event: int) -> int | None:
    if event == NONE:
        return None
    return int(device.events.time_us[event]) - device.span_us[0]


def _step(device: DeviceTrace, event: int) -> int | None:
    if event == NONE or not len(device.steps):
        return None
    import numpy as np

    return int(device.steps.step_of(np.asarray([event]))[0])


def _moment(device: DeviceTrace, event: int) -> str:
    since = _since_start(device, event)
    if since is None:
        return " when the recording began"
    step = _step(device, event)
    in_step = f", in step {step} of {len(device.steps)}" if step else ""
    return f", {format_duration(since)} in{in_step}"


def _why_reserved(causes: list[dict[str, Any]], reserved: int) -> str:
    slack = [cause for cause in causes[1:] if cause["bytes"] > 0]
    if not slack:
        return "Nothing was reserved beyond that."
    largest = max(slack, key=lambda cause: int(cause["bytes"]))
    total = sum(cause["bytes"] for cause in slack)
    return (
        f"Of the {format_bytes(reserved)} reserved at its own peak, {format_bytes(total)} was in no live tensor, "
        f"most of it {largest['label']} ({format_bytes(largest['bytes'])})."
    )


def _next_step(classes: list[dict[str, Any]], live_bytes: int) -> str:
    old = [row for row in classes if row["label"] in ("over 5 steps before", "over 60 s", "10 to 60 s")]
    old_bytes = sum(row["bytes"] for row in old)
    if old_bytes * 4 >= live_bytes:
        return (
            f"{format_bytes(old_bytes)} of it is old ({', '.join(row['label'] for row in old)}): look for what should "
            "long be gone."
        )
    return "To lower it, start with the first lines of the table: they are where the bytes are."
