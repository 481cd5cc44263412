"""Fragmentation: reserved memory that is free and cannot be used, and the blocks that pin it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ullage.explain.attribution import SiteShare, describe, share_by_age, share_by_site
from ullage.explain.finding import Finding, Severity
from ullage.explain.waterfall import CAUSES, free_space, main_stream
from ullage.trace import NONE, Action, BlockState, PoolSize
from ullage.units import format_bytes, plural

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ullage.trace import DeviceTrace, Frame, Layout

_MIN_BYTES = 16 << 20
_MIN_SHARE = 0.01  # of reserved: below, it is not worth a word
_BAD_BYTES = 128 << 20
_SMALL = 1 << 20  # a request up to this is served from a small pool
_BAD_SHARE = 0.05  # of reserved, stuck beside live blocks or on another stream
_BAD_SPARE_SHARE = 0.25  # of reserved, beyond what was ever live at once


def find_fragmentation(device: DeviceTrace) -> list[Finding]:
    """Report reserved memory that was free and did not serve: at an OOM, else at the peak of reserved.

    Silent where it is under 1 % of what was reserved.
    """
    instants = _instants(device)
    layouts = device.layouts_after(sorted(set(instants.values())))
    looks = {name: _look(device, layouts[event], event) for name, event in instants.items()}
    name = "oom" if "oom" in looks else "reserved_peak"
    look, layout = looks[name], layouts[instants[name]]
    reserved, free = look["reserved_bytes"], look["free_bytes"]
    stuck = look["stranded_bytes"] + _by_cause(look)["other_stream"]
    # What was cached while little was live serves again later: it is waste only beyond what was ever live at once.
    spare = min(free, reserved - device.peak.active_bytes)
    if stuck < max(_MIN_BYTES, _MIN_SHARE * reserved) and spare < max(_BAD_BYTES, _BAD_SPARE_SHARE * reserved):
        return []
    is_bad = free >= _BAD_BYTES and (stuck >= _BAD_SHARE * reserved or spare >= _BAD_SPARE_SHARE * reserved)
    return [_finding(device, name, looks, layout, "warning" if is_bad else "info")]


def _finding(
    device: DeviceTrace, name: str, looks: dict[str, dict[str, Any]], layout: Layout, severity: Severity
) -> Finding:
    look, event = looks[name], layout.event
    rows, held_back = pinning(device, layout)
    shares = share_by_site(device, rows, event, held_back)
    live = {share.lead: share.bytes for share in share_by_site(device, rows, event)}
    refused = _refused(device, look if name == "oom" else None)
    when = {"oom": "at the out-of-memory error", "reserved_peak": "at its peak"}[name]
    return Finding(
        kind="fragmentation",
        severity=severity,
        device=device.number,
        bytes=look["stranded_bytes"],
        title=f"{format_bytes(look['free_bytes'])} of {format_bytes(look['reserved_bytes'])} reserved was free {when} "
        f"({_split(look)})",
        why=_why(device, look, refused, len(rows), shares[0] if shares else None, live),
        next_step=_next_step(device, look, bool(shares)),
        site=shares[0].stack if shares else (),
        evidence={
            "at": name,
            "stranded_bytes": look["stranded_bytes"],
            "refused": refused,
            "pinning": [
                share.to_json() | {"held_back_bytes": share.bytes, "live_bytes": live[share.lead]} for share in shares
            ],
            "pinning_by_age": share_by_age(device, rows, event, held_back),
            "instants": looks,
        },
    )


def _by_cause(look: dict[str, Any]) -> dict[str, int]:
    return {row["cause"]: row["bytes"] for row in look["free_by_cause"]}


_CAUSE_WORDS = {
    "stranded": "stranded beside live blocks",
    "small_pool": "in the small pool",
    "other_stream": "on other streams",
    "private_pool": "in private pools",
    "cached": "in whole segments",
}


def _split(look: dict[str, Any]) -> str:
    rows = sorted(look["free_by_cause"], key=lambda row: -int(row["bytes"]))
    told = [row for row in rows if row["bytes"] >= 0.02 * look["free_bytes"]]
    return ", ".join(f"{format_bytes(row['bytes'])} {_CAUSE_WORDS[row['cause']]}" for row in told)


def _why(
    device: DeviceTrace,
    look: dict[str, Any],
    refused: dict[str, int] | None,
    num_pins: int,
    top: SiteShare | None,
    live: dict[Frame, int],
) -> str:
    parts = [f"At most {format_bytes(device.peak.active_bytes)} was ever live at once."]
    if refused is not None:
        asked, hole = refused["request_bytes"], refused["largest_hole_bytes"]
        largest = f" (the largest: {format_bytes(hole)})" if hole else ""
        parts.append(f"No free block of the right pool and stream could serve {format_bytes(asked)}{largest}.")
    if top is not None and look["stranded_bytes"]:
        parts.append(
            f"{plural(num_pins, 'live block')} pin{'s' * (num_pins == 1)} {format_bytes(look['stranded_bytes'])} beside "
            f"{'it' if num_pins == 1 else 'them'}: {format_bytes(live[top.lead])} from {describe(top.lead)} hold back "
            f"{format_bytes(top.bytes)} of it."
        )
    return " ".join(parts)


def _refused(device: DeviceTrace, oom: dict[str, Any] | None) -> dict[str, int] | None:
    """Return the request that no free block served: at an OOM, else when reserved last grew; None if it never did."""
    if oom is not None:
        return {
            "event": oom["event"],
            "request_bytes": oom["request_bytes"],
            "largest_hole_bytes": oom["largest_hole_bytes"],
        }
    grown, event = device.history.peak_event[3], device.last_growth()
    if grown == NONE or device.events.action[event] != Action.ALLOC:
        return None
    size, stream = int(device.events.size_bytes[event]), int(device.events.stream[event])
    before = device.layouts_after([grown - 1])[grown - 1]
    hole = _largest_hole(device, before, stream, size <= _SMALL)
    if hole >= size:
        return None  # a private pool grew, or another pool than the one that the size says
    return {"event": event, "request_bytes": size, "largest_hole_bytes": hole}


def _largest_hole(device: DeviceTrace, layout: Layout, stream: int, small: bool) -> int:
    segments, home = device.segments, layout.segment
    usable = (layout.state == BlockState.INACTIVE) & (segments.pool[home] == NONE) & (segments.stream[home] == stream)
    usable &= (segments.pool_size[home] == PoolSize.SMALL) == small
    return int(layout.size_bytes[usable].max(initial=0))


def _instants(device: DeviceTrace) -> dict[str, int]:
    instants = {"reserved_peak": device.event_at("reserved_peak"), "end": device.num_events - 1}
    ooms = device.ooms()
    if len(ooms):
        instants["oom"] = int(ooms[0])
    return instants


def _look(device: DeviceTrace, layout: Layout, event: int) -> dict[str, Any]:
    """Sum up one instant."""
    request, stream = _request_at(device, event)
    free = free_space(device, layout, stream)
    stuck = free.cause["stranded"] + free.cause["small_pool"]
    return {
        "event": event,
        "reserved_bytes": int(layout.segment_bytes.sum()),
        "active_bytes": int(layout.size_bytes[~free.is_free].sum()),
        "free_bytes": int(layout.size_bytes[free.is_free].sum()),
        "stranded_bytes": int(stuck.sum()),
        "largest_hole_bytes": _largest_hole(device, layout, stream, 0 < request <= _SMALL),
        "request_bytes": request,
        "free_by_cause": [
            {"cause": cause, "label": CAUSES[cause], "bytes": free.bytes_of(cause)} for cause in free.cause
        ],
    }


def _request_at(device: DeviceTrace, event: int) -> tuple[int, int]:
    """Return the size and the stream of the request that failed at an event; size 0 and the main stream elsewhere."""
    if event != NONE and device.events.action[event] == Action.OOM:
        return int(device.events.size_bytes[event]), int(device.events.stream[event])
    return 0, main_stream(device)


def pinning(device: DeviceTrace, layout: Layout) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Share the stranded free bytes out among the live blocks beside them.

    A hole between two live blocks counts half for each; at the edge of a segment it counts for the one beside it.

    Args:
        device: The device.
        layout: The layout.

    Returns:
        Rows of `device.blocks`, and the bytes that each holds back. Their sum is the stranded bytes.
    """
    _, stream = _request_at(device, layout.event)
    free = free_space(device, layout, stream)
    stuck = free.cause["stranded"] + free.cause["small_pool"]
    holes = np.flatnonzero(stuck > 0)
    count = len(layout.size_bytes)
    home = layout.segment_of_block
    before, after = holes - 1, holes + 1
    # Free blocks never touch, so a hole's neighbour in the same segment is live.
    has_before = (holes > 0) & (home[np.maximum(before, 0)] == home[holes])
    has_after = (after < count) & (home[np.minimum(after, count - 1)] == home[holes])
    amount = stuck[holes]
    to_before = np.where(has_before & has_after, amount // 2, np.where(has_before, amount, 0))
    to_after = amount - to_before
    held = np.zeros(count, dtype=np.int64)
    np.add.at(held, before[has_before], to_before[has_before])
    np.add.at(held, after[has_after], to_after[has_after])
    pins = np.flatnonzero(held)
    live = layout.state[pins] != BlockState.INACTIVE
    pins = pins[live]
    return layout.lifetime[pins].astype(np.int64), held[pins]


def _next_step(device: DeviceTrace, look: dict[str, Any], has_pins: bool) -> str:
    by_cause = _by_cause(look)
    largest = max(by_cause, key=lambda cause: by_cause[cause])
    steps = []
    if largest == "other_stream":
        steps.append("use fewer streams for tensors of this size: a block serves only the stream it was made on")
    elif has_pins and by_cause["stranded"] >= by_cause["cached"]:
        steps.append("make what lives long (the pinning lines) before what comes and goes")
    movable = by_cause["stranded"] + by_cause["small_pool"] + by_cause["cached"]
    if not device.trace.settings.get("expandable_segments") and 2 * movable >= look["free_bytes"]:
        steps.append("set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, so that free space of any size can serve")
    if largest == "cached" or not steps:
        steps.append("where sizes change from step to step, run the largest once first, or pad to a few sizes")
    text = "; ".join(steps)
    return text[0].upper() + text[1:] + "."
