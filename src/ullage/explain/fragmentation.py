"""Fragmentation: reserved memory that is free and cannot be used, and the blocks that pin it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ullage.explain.attribution import describe, share_by_age, share_by_site
from ullage.explain.finding import Finding, Severity
from ullage.explain.waterfall import CAUSES, free_space, main_stream
from ullage.trace import NONE, Action, BlockState, PoolSize
from ullage.units import format_bytes, format_share

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ullage.trace import DeviceTrace, Layout

_MIN_BYTES = 32 << 20
_MIN_SHARE = 0.02  # of reserved: below, it is not worth a word
_BAD_SHARE = 0.05


def find_fragmentation(device: DeviceTrace) -> list[Finding]:
    """Report free space stranded beside live blocks, at an OOM, else at the peak of reserved; silent below 2 %."""
    if not device.num_events:
        return []
    instants = _instants(device)
    layouts = device.layouts_after(list(instants.values()))
    looks = {name: _look(device, layouts[event], event) for name, event in instants.items()}
    name = "oom" if "oom" in looks else "reserved_peak"
    look = looks[name]
    waste, reserved = look["stranded_bytes"], look["reserved_bytes"]
    asked = look["request_bytes"]
    if waste < max(_MIN_BYTES, _MIN_SHARE * reserved):
        return []
    bad = waste >= _BAD_SHARE * reserved or name == "oom"
    severity: Severity = "warning" if bad else "info"
    layout, event = layouts[instants[name]], instants[name]
    rows, held_back = pinning(device, layout)
    shares = share_by_site(device, rows, event, held_back)
    live = {share.lead: share.bytes for share in share_by_site(device, rows, event)}
    pinning_json = [share.to_json() | {"held_back_bytes": share.bytes, "live_bytes": live[share.lead]} for share in shares]
    top = shares[0]
    when = {"oom": "at the out-of-memory error", "reserved_peak": "at the peak of reserved"}[name]
    hole = f"the largest hole is {format_bytes(look['largest_hole_bytes'])}"
    request = f", the request was {format_bytes(asked)}" if asked else ""
    return [
        Finding(
            kind="fragmentation",
            severity=severity,
            device=device.number,
            bytes=waste,
            title=f"{format_bytes(waste)} reserved but stranded beside live blocks {when}"
            f" ({format_share(waste, reserved)} of reserved)",
            why=f"{len(rows):,} blocks pin it, {hole}{request}. {describe(top.lead)} holds back "
            f"{format_bytes(top.bytes)} with {format_bytes(live[top.lead])} of live blocks.",
            next_step=_next_step(device, look),
            site=top.stack,
            evidence={
                "at": name,
                "pinning": pinning_json,
                "pinning_by_age": share_by_age(device, rows, event, held_back),
                "instants": looks,
            },
        )
    ]


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
    large = free.is_free & (device.segments.pool_size[layout.segment] != PoolSize.SMALL)
    usable = large & (device.segments.pool[layout.segment] == NONE) & (device.segments.stream[layout.segment] == stream)
    return {
        "event": event,
        "reserved_bytes": int(layout.segment_bytes.sum()),
        "active_bytes": int(layout.size_bytes[~free.is_free].sum()),
        "stranded_bytes": int(stuck.sum()),
        "largest_hole_bytes": int(layout.size_bytes[usable].max(initial=0)),
        "request_bytes": request,
        "free_by_cause": [
            {"cause": cause, "label": CAUSES[cause], "bytes": free.bytes_of(cause)} for cause in free.cause
        ],
    }


def _request_at(device: DeviceTrace, event: int) -> tuple[int, int]:
    """Return the size and the stream of the request that an instant is about; size 0 where there is none."""
    if event == NONE:
        return 0, main_stream(device)
    events = device.events
    stream = int(events.stream[event])
    if events.action[event] in (Action.ALLOC, Action.OOM):
        return int(events.size_bytes[event]), stream
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


def _next_step(device: DeviceTrace, look: dict[str, Any]) -> str:
    settings = device.trace.settings
    steps = ["Allocate what lives long (the pinning lines) before what comes and goes, or free it before the peak"]
    if not settings.get("expandable_segments"):
        steps.append("or try PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, which lets holes be returned")
    return ", ".join(steps) + "."
