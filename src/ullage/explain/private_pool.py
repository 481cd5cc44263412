"""Private pools: the memory of CUDA graphs and MemPools, and pools that could be one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ullage.explain.attribution import describe
from ullage.explain.finding import Finding, frame_json
from ullage.trace import NO_STACK, NONE, Action, BlockState
from ullage.units import format_bytes, format_share

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ullage.trace import DeviceTrace, Frame, Layout

_MIN_SAVING = 16 << 20
_MIN_SHARE = 0.02  # of reserved
_MAX_LOOKED_AT = 1000


def find_private_pool(device: DeviceTrace) -> list[Finding]:
    """Report private pools by bytes, and what sharing them would save; silent without private pools."""
    if not (device.segments.pool != NONE).any():
        return []
    end = device.num_events - 1
    layout = device.layouts_after([end])[end]
    pools = [
        row for pool in np.unique(device.segments.pool) if pool != NONE and (row := _pool(device, layout, int(pool)))
    ]
    if not pools:
        return []
    pools.sort(key=lambda row: -int(row["reserved_bytes"]))
    reserved = sum(row["reserved_bytes"] for row in pools)
    free = sum(row["free_bytes"] for row in pools)
    groups = [row for row in pools if row["is_graph"]]
    saving = _saving(groups)
    worth = saving >= max(_MIN_SAVING, _MIN_SHARE * device.end.reserved_bytes)
    kept = _kept_over_temporaries(device)
    freed = _freed_after_capture(device, pools)
    site = tuple(device.trace.sites.user_stack(pools[0].pop("site_id")))
    for row in pools[1:]:
        row.pop("site_id")
    many = f"{len(pools)} private pools hold" if len(pools) > 1 else "One private pool holds"
    return [
        Finding(
            kind="private_pool",
            severity="warning" if worth and saving >= 0.1 * device.end.reserved_bytes else "info",
            device=device.number,
            bytes=reserved,
            title=f"{many} {format_bytes(reserved)}, {format_bytes(free)} of it free inside"
            + (f"; sharing would save about {format_bytes(saving)}" if worth else ""),
            why=_why(device, pools, groups, saving, worth, reserved) + _kept_words(kept) + _freed_words(freed),
            next_step=_next_step(worth, kept, freed, site[0] if site else NO_STACK),
            site=site,
            evidence={
                "pools": pools,
                "estimated_saving_bytes": saving,
                "kept_over_temporaries": kept,
                "freed_after_capture": freed,
            },
        )
    ]


def _pool(device: DeviceTrace, layout: Layout, pool: int) -> dict[str, Any] | None:
    segments, blocks = device.segments, device.blocks
    inside = segments.pool[layout.segment] == pool
    is_free = layout.state == BlockState.INACTIVE
    size = layout.size_bytes
    held = int(size[inside].sum())
    if not held:
        return None
    ids = device.trace.tables.pools[pool]
    rows = np.flatnonzero(segments.pool[blocks.segment] == pool)
    births = blocks.birth[rows]
    births = births[births != NONE]
    first = int(births.min()) if len(births) else NONE
    last = int(births.max()) if len(births) else NONE  # its frees can come much later, with the graph's end
    largest = rows[np.argmax(blocks.size_bytes[rows])] if len(rows) else None
    return {
        "pool": list(ids),
        "is_graph": ids[0] != 0 or ids[1] != 0,
        "reserved_bytes": held,
        "live_bytes": int(size[inside & ~is_free].sum()),
        "free_bytes": int(size[inside & is_free].sum()),
        "num_segments": int((segments.pool[layout.segment_rows] == pool).sum()),
        "num_requests": len(rows),
        "first_event": first,
        "last_event": last,
        "site_id": int(blocks.site[largest]) if largest is not None else NONE,
    }


def _saving(pools: list[dict[str, Any]]) -> int:
    """Estimate what one pool for all would save: each capture's free space could serve all the others.

    One pool would need the live blocks of all, and the free space of the hungriest. An estimate: it takes graphs to be
    replayed one at a time, and blocks to pack as they do now.
    """
    apart = [row for i, row in enumerate(pools) if not any(_overlap(row, other) for other in pools[:i])]
    if len(apart) < 2:
        return 0
    free: list[int] = [row["free_bytes"] for row in apart]
    return sum(free) - max(free)


def _overlap(one: dict[str, Any], other: dict[str, Any]) -> bool:
    if NONE in (one["first_event"], other["first_event"]):
        return False
    return bool(one["first_event"] <= other["last_event"] and other["first_event"] <= one["last_event"])


def _kept_over_temporaries(device: DeviceTrace) -> list[dict[str, Any]]:
    """Find blocks made in a private pool that outlive the pool's last request and lie where an earlier one was freed."""
    segments, blocks = device.segments, device.blocks
    pools = segments.pool[blocks.segment]
    found = []
    for pool in np.unique(pools[pools != NONE]):
        rows = np.flatnonzero((pools == pool) & (blocks.birth != NONE))
        if not len(rows):
            continue
        over = _capture_over(device, int(blocks.birth[rows].max()))
        freed = blocks.free_requested[rows]
        for lifetime in rows[(freed == NONE) | (freed > over)].tolist():
            below = _freed_below(device, lifetime)
            if below is not None:
                found.append(_kept_row(device, lifetime, below, int(pool)))
    return sorted(found, key=lambda row: -int(row["bytes"]))[:100]


def _capture_over(device: DeviceTrace, last: int) -> int:
    """Return the first request after a pool's last: by then the capture is over, and its temporaries are gone."""
    later = np.flatnonzero(device.events.action[last + 1 :] == Action.ALLOC)
    return last + 1 + int(later[0]) if len(later) else device.num_events


def _kept_row(device: DeviceTrace, lifetime: int, below: int, pool: int) -> dict[str, Any]:
    blocks = device.blocks
    return {
        "bytes": int(blocks.size_bytes[lifetime]),
        "address": int(blocks.address[lifetime]),
        "pool": list(device.trace.tables.pools[pool]),
        "site": _stack_json(device, lifetime),
        "temporary_site": _stack_json(device, below),
    }


def _stack_json(device: DeviceTrace, lifetime: int) -> list[dict[str, Any]]:
    return [frame_json(frame) for frame in device.trace.sites.user_stack(int(device.blocks.site[lifetime]))]


def _freed_after_capture(device: DeviceTrace, pools: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Find default-pool blocks that lived through a capture, were freed while its pool lives, and were overwritten.

    A graph that reads one reads what lies there now. The file does not say what a graph reads.
    """
    segments, blocks = device.segments, device.blocks
    ordinary = (segments.pool[blocks.segment] == NONE) & (blocks.free_requested != NONE)
    found: dict[int, dict[str, Any]] = {}
    for row in pools:
        first, last = row["first_event"], row["last_event"]
        if first == NONE:
            continue
        through = ordinary & (blocks.birth < first) & (blocks.free_requested > last)
        for lifetime in np.flatnonzero(through)[:_MAX_LOOKED_AT].tolist():
            if lifetime in found:
                continue
            over = _made_over(device, lifetime)
            if over is not None:
                found[lifetime] = {
                    "bytes": int(blocks.size_bytes[lifetime]),
                    "address": int(blocks.address[lifetime]),
                    "pool": row["pool"],
                    "freed_event": int(blocks.free_requested[lifetime]),
                    "site": _stack_json(device, lifetime),
                    "over_site": _stack_json(device, over),
                }
    return sorted(found.values(), key=lambda row: -int(row["bytes"]))[:100]


def _made_over(device: DeviceTrace, lifetime: int) -> int | None:
    """Return the first block that was made over this one's addresses after it was freed."""
    blocks = device.blocks
    begin = blocks.address[lifetime]
    end = begin + blocks.size_bytes[lifetime].astype(np.uint64)
    over = (
        (blocks.birth > blocks.free_requested[lifetime])
        & (blocks.address < end)
        & (blocks.address + blocks.size_bytes.astype(np.uint64) > begin)
    )
    rows = np.flatnonzero(over)
    return int(rows[0]) if len(rows) else None


def _freed_words(freed: list[dict[str, Any]]) -> str:
    if not freed:
        return ""
    return (
        f" {len(freed)} block{'s' * (len(freed) > 1)} that lived through a capture "
        f"({format_bytes(sum(row['bytes'] for row in freed))}, the largest from {_place(freed[0])}) were freed later and "
        f"their addresses handed out again (first to {_place(freed[0], 'over_site')}): a graph that reads them now reads "
        "something else."
    )


def _freed_below(device: DeviceTrace, lifetime: int) -> int | None:
    """Return the last block of the same segment that was freed before this one was made, over the same addresses."""
    blocks = device.blocks
    begin = blocks.address[lifetime]
    end = begin + blocks.size_bytes[lifetime].astype(np.uint64)
    same: NDArray[np.bool_] = (
        (blocks.segment == blocks.segment[lifetime])
        & (blocks.free_requested != NONE)
        & (blocks.free_requested < blocks.birth[lifetime])
        & (blocks.address < end)
        & (blocks.address + blocks.size_bytes.astype(np.uint64) > begin)
    )
    rows = np.flatnonzero(same)
    return int(rows[-1]) if len(rows) else None


def _why(
    device: DeviceTrace,
    pools: list[dict[str, Any]],
    groups: list[dict[str, Any]],
    saving: int,
    worth: bool,
    reserved: int,
) -> str:
    share = format_share(reserved, device.end.reserved_bytes)
    text = f"That is {share} of what is reserved at the end. Blocks of a private pool serve only the graphs captured into it"
    if worth:
        return (
            text + f"; {len(groups)} pools were filled one after the other, never at once, so one could serve them all."
        )
    return text + "."


def _kept_words(kept: list[dict[str, Any]]) -> str:
    if not kept:
        return ""
    total = sum(row["bytes"] for row in kept)
    return (
        f" {len(kept)} block{'s' * (len(kept) > 1)} ({format_bytes(total)}), the largest from {_place(kept[0])}, outlived "
        f"the capture where temporaries of it had been (first {_place(kept[0], 'temporary_site')}): each replay writes "
        "over them."
    )


def _place(row: dict[str, Any], key: str = "site") -> str:
    frames = row[key]
    return f"{frames[0]['file'].rpartition('/')[2]}:{frames[0]['line']}" if frames else "a request without a stack"


def _next_step(worth: bool, kept: list[dict[str, Any]], freed: list[dict[str, Any]], lead: Frame) -> str:
    steps = []
    if worth:
        steps.append(
            "Capture all graphs into one pool: pool = torch.cuda.graph_pool_handle(), then torch.cuda.graph(g, pool=pool) "
            "(the graphs must not be replayed at the same time); with one graph for each length, pad to a few lengths"
        )
    if kept:
        steps.append(
            "The blocks that replays write over are fine as a graph's outputs; a workspace or cache first made during a "
            "capture is not: make it before"
        )
    if freed:
        steps.append("Keep whatever a graph reads alive as long as the graph, or capture it inside the pool")
    if not steps:
        steps.append(f"Nothing, if the graphs of {describe(lead)} are in use; deleting them and empty_cache() frees it")
    return ". ".join(steps) + "."
