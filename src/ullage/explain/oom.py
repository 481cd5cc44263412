"""Out of memory: what was asked, why no free block served it, and which blocks were in the way."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ullage.explain.attribution import age_us, describe, share_by_age, share_by_site
from ullage.explain.finding import Finding, frame_json, place
from ullage.explain.waterfall import waterfall
from ullage.trace import NO_STACK, BlockState, PoolSize
from ullage.units import format_bytes, format_share, plural

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ullage.explain.attribution import SiteShare
    from ullage.trace import DeviceTrace, Layout

_MIB = 1 << 20
_SMALL = _MIB
_MAX_FINDINGS = 5
_MAX_NAMED = 3


def find_oom(device: DeviceTrace) -> list[Finding]:
    """Explain each out-of-memory error, at most the first five."""
    ooms = device.ooms().tolist()
    layouts = device.layouts_after(ooms[:_MAX_FINDINGS])
    return [_explain(device, event, layouts[event], len(ooms)) for event in ooms[:_MAX_FINDINGS]]


def _explain(device: DeviceTrace, event: int, layout: Layout, num_ooms: int) -> Finding:
    events = device.events
    asked, stream = int(events.size_bytes[event]), int(events.stream[event])
    small = asked <= _SMALL
    causes = waterfall(device, layout, stream)
    by_cause = {cause["cause"]: cause["bytes"] for cause in causes}
    reserved = sum(by_cause.values())
    usable = _usable(device, layout, stream, int(events.pool[event]), small)
    is_free = layout.state == BlockState.INACTIVE
    free_bytes = int(layout.size_bytes[is_free].sum())
    hole = int(layout.size_bytes[is_free & usable].max(initial=0))
    rows = device.live_after(event)
    window = _cheapest_window(layout, usable, asked)
    blockers = _describe_blockers(device, layout, window, event) if window is not None else []
    in_the_way = sum(row["bytes"] for row in blockers)
    device_free = device.device_free(event)
    shares = share_by_site(device, rows, event)
    stack = device.trace.sites.user_stack(int(events.site[event]))
    really_full = not blockers or (2 * in_the_way > asked and free_bytes < asked)
    live_bytes = device.allocated_after(event)
    title = (
        f"Out of memory: {format_bytes(asked)} asked by {describe(stack[0] if stack else NO_STACK)}; "
        f"{format_bytes(live_bytes)} allocated, {format_bytes(free_bytes)} free in "
        + ("all" if really_full else f"holes of {format_bytes(hole)} at most")
    )
    return Finding(
        kind="oom",
        severity="error",
        device=device.number,
        bytes=asked,
        title=title,
        why=_why(device, by_cause, reserved, asked, hole, device_free, num_ooms),
        next_step=_fits_not(shares[0] if shares else None, live_bytes)
        if really_full
        else _in_the_way(device, asked, blockers),
        site=stack,
        evidence={
            "event": event,
            "requested_bytes": asked,
            "stream": stream,
            "device_free_bytes": device_free,
            "allocated_bytes": live_bytes,
            "reserved_bytes": reserved,
            "free_bytes": free_bytes,
            "largest_hole_bytes": hole,
            "num_holes": int((is_free & usable).sum()),
            "waterfall": causes,
            "in_the_way": blockers,
            "in_the_way_bytes": in_the_way,
            "by_site": [share.to_json() for share in shares],
            "by_age": share_by_age(device, rows, event),
        },
    )


def _usable(device: DeviceTrace, layout: Layout, stream: int, pool: int, small: bool) -> NDArray[np.bool_]:
    """Mark the blocks that lie where the request could have been served: same pool, same stream.

    Before torch 2.12 events do not name their pool; then it is taken for the default one.
    """
    segments = device.segments
    home = layout.segment
    usable: NDArray[np.bool_] = (segments.pool[home] == pool) & (segments.stream[home] == stream)
    usable &= (segments.pool_size[home] == PoolSize.SMALL) == small
    return usable


def _cheapest_window(layout: Layout, usable: NDArray[np.bool_], asked: int) -> tuple[int, int] | None:
    """Find neighbouring blocks that together hold the request, with the fewest live bytes among them."""
    best: tuple[int, int, int, int] | None = None
    size = layout.size_bytes.tolist()
    free = (layout.state == BlockState.INACTIVE).tolist()
    home = layout.segment_of_block.tolist()
    inside = usable.tolist()
    first, room, live, count = 0, 0, 0, 0
    for last in range(len(size)):
        if not inside[last] or (last > first and home[last] != home[first]):
            first, room, live, count = last, 0, 0, 0
        if not inside[last]:
            first = last + 1
            continue
        room += size[last]
        if not free[last]:
            live += size[last]
            count += 1
        while first <= last and room - size[first] >= asked:
            room -= size[first]
            if not free[first]:
                live -= size[first]
                count -= 1
            first += 1
        if room >= asked and (best is None or (live, count) < best[:2]):
            best = (live, count, first, last)
    return None if best is None or best[1] == 0 else (best[2], best[3])


def _describe_blockers(
    device: DeviceTrace, layout: Layout, window: tuple[int, int], event: int
) -> list[dict[str, Any]]:
    first, last = window
    rows = []
    for i in range(first, last + 1):
        if layout.state[i] == BlockState.INACTIVE:
            continue
        lifetime = int(layout.lifetime[i])
        stack = device.trace.sites.user_stack(int(device.blocks.site[lifetime]))
        rows.append(
            {
                "address": int(layout.address[i]),
                "bytes": int(layout.size_bytes[i]),
                "age_us": age_us(device, int(device.blocks.birth[lifetime]), event),
                "site": [frame_json(frame) for frame in stack],
            }
        )
    return sorted(rows, key=lambda row: -int(row["bytes"]))


def _why(
    device: DeviceTrace,
    by_cause: dict[str, int],
    reserved: int,
    asked: int,
    hole: int,
    device_free: int | None,
    num_ooms: int,
) -> str:
    parts = []
    names = {
        "stranded": "beside live blocks",
        "small_pool": "in the small pool",
        "other_stream": "on other streams",
        "private_pool": "in private pools",
        "pending": "waiting for a stream",
        "cached": "in whole segments",
    }
    free = {name: by_cause[name] for name in names if by_cause[name]}
    if free:
        split = ", ".join(f"{format_bytes(size)} {names[name]}" for name, size in free.items())
        parts.append(f"Of {format_bytes(reserved)} reserved, free: {split}.")
    if hole and hole < asked:
        parts.append(f"No hole of its pool and stream is larger than {format_bytes(hole)}.")
    if device_free is not None and device_free >= _segment_bytes(asked):
        parts.append(
            f"The GPU itself had {format_bytes(device_free)} free: a limit set for this process (a memory fraction) was in "
            "the way."
        )
    elif device_free is not None:
        parts.append(f"The GPU had {format_bytes(device_free)} left.")
    if num_ooms > 1:
        parts.append(f"It was one of {plural(num_ooms, 'such error')}.")
    return " ".join(parts) or "Every reserved byte was in use, and the driver had no more to give."


def _segment_bytes(asked: int) -> int:
    """Return the size of the segment that the driver is asked for.

    Source: get_allocation_size in c10/cuda/CUDACachingAllocator.cpp, torch 2.11.

    Example:
        >>> [_segment_bytes(size * _MIB) // _MIB for size in (1, 3, 11)]
        [2, 20, 12]
    """
    if asked <= _SMALL:
        return 2 * _MIB
    return 20 * _MIB if asked < 10 * _MIB else -(-asked // (2 * _MIB)) * 2 * _MIB


def _in_the_way(device: DeviceTrace, asked: int, blockers: list[dict[str, Any]]) -> str:
    total = sum(row["bytes"] for row in blockers)
    hint = "" if device.trace.settings.get("expandable_segments") else " expandable_segments:True avoids such holes."
    return (
        f"{plural(len(blockers), 'block')} in the way: had {_places(blockers, total)} been freed or placed elsewhere, "
        f"{format_bytes(asked)} would have fitted.{hint}"
    )


def _places(blockers: list[dict[str, Any]], total: int) -> str:
    """Name the lines of the blocks in the way, the largest first, each once."""
    by_place: dict[str, tuple[int, int]] = {}
    for row in blockers:
        name = place(row["site"])
        size, number = by_place.get(name, (0, 0))
        by_place[name] = (size + row["bytes"], number + 1)
    ranked = sorted(by_place.items(), key=lambda item: -item[1][0])
    if len(ranked) == 1:
        return f"{format_bytes(total)} from {ranked[0][0]}"
    named = [
        f"{name} ({format_bytes(size)} in {plural(number, 'block')})" for name, (size, number) in ranked[:_MAX_NAMED]
    ]
    if len(ranked) > _MAX_NAMED:
        named.append(plural(len(ranked) - _MAX_NAMED, "other line"))
    return f"{format_bytes(total)} from {', '.join(named[:-1])} and {named[-1]}"


def _fits_not(top: SiteShare | None, live_bytes: int) -> str:
    if top is None:
        return "It does not fit at all: ask for less."
    return (
        f"It does not fit at all: lower what is live, first {describe(top.lead)} "
        f"({format_bytes(top.bytes)}, {format_share(top.bytes, live_bytes)})."
    )
