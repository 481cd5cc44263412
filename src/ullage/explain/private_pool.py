"""Private pools: the memory of CUDA graphs and MemPools, and pools that could be one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ullage.explain.attribution import describe
from ullage.explain.finding import Finding, frame_json, place
from ullage.trace import NO_STACK, NONE, Action, BlockState
from ullage.units import format_bytes, format_share, plural

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from ullage.trace import DeviceTrace, Frame, Layout

_MIN_SAVING = 16 << 20
_MIN_SHARE = 0.02  # of reserved
_MAX_LOOKED_AT = 200  # blocks, the largest first
_EVENTS_BEFORE = 8  # a capture begins with the releases of empty_cache() and two requests of its own
_CAPTURE_FILES = ("torch/cuda/graphs.py", "torch/_inductor/cudagraph_trees.py")


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
    kept = _kept_over_temporaries(device, groups)
    freed = _freed_after_capture(device, groups)
    site = tuple(device.trace.sites.user_stack(pools[0]["site_id"]))
    for row in pools:
        row.pop("site_id")
    many = f"{len(pools):,} private pools hold" if len(pools) > 1 else "One private pool holds"
    return [
        Finding(
            kind="private_pool",
            severity="warning" if freed or (worth and saving >= 0.1 * device.end.reserved_bytes) else "info",
            device=device.number,
            bytes=reserved,
            title=f"{many} {format_bytes(reserved)}, {format_bytes(free)} of it free inside"
            + _title_end(saving if worth else 0, kept, freed),
            why=_why(device, pools, groups, worth, reserved) + _kept_words(kept) + _freed_words(freed),
            next_step=_next_step(worth, kept, freed, groups, site[0] if site else NO_STACK),
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
        "is_graph": _is_graph(device, ids, rows, first),
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


def _is_graph(device: DeviceTrace, ids: tuple[int, int], rows: NDArray[np.int64], first: int) -> bool:
    """Tell a graph's pool from one that a program made with torch.cuda.MemPool.

    A capture that is given no pool makes one that is numbered in the first place, as (3, 0). One made beforehand, by
    graph_pool_handle() or as a MemPool, is numbered in the second: then only stacks show a capture, those of its own
    requests or those of the events directly before.
    """
    if ids[0] != 0:
        return True
    sites = set(device.blocks.site[rows].tolist())
    if first != NONE:
        sites.update(device.events.site[max(first - _EVENTS_BEFORE, 0) : first].tolist())
    return any(_is_capture(device, site) for site in sites)


def _is_capture(device: DeviceTrace, site: int) -> bool:
    return any(
        frame.function == "capture_begin" or frame.file.endswith(_CAPTURE_FILES)
        for frame in device.trace.sites.stack(site)
    )


def _kept_over_temporaries(device: DeviceTrace, graphs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Find blocks made in a graph's pool that outlive its last request and lie where an earlier one was freed."""
    blocks = device.blocks
    pools = device.segments.pool[blocks.segment]
    found = []
    for row in graphs:
        if row["first_event"] == NONE:
            continue
        rows = np.flatnonzero(pools == device.trace.tables.pools.index(tuple(row["pool"])))
        freed = blocks.free_requested[rows]
        over = _capture_over(device, row["last_event"])
        kept = rows[(blocks.birth[rows] != NONE) & ((freed == NONE) | (freed > over))]
        for lifetime, others in _overlapping(device, _largest(device, kept), rows[freed != NONE]):
            same = blocks.segment[others] == blocks.segment[lifetime]
            below = others[same & (blocks.free_requested[others] < blocks.birth[lifetime])]
            if len(below):
                found.append(_kept_row(device, lifetime, int(below[-1]), row["pool"]))
    return sorted(found, key=lambda row: -int(row["bytes"]))[:100]


def _largest(device: DeviceTrace, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    order = np.argsort(-device.blocks.size_bytes[rows], kind="stable")
    return rows[order[:_MAX_LOOKED_AT]]


def _overlapping(
    device: DeviceTrace, lifetimes: NDArray[np.int64], others: NDArray[np.int64]
) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Yield each of `lifetimes` with those of `others` that have an address in common with it, in their order.

    Cost: O(others x log(lifetimes)); then, for each lifetime, as many as have an address in common with any of them.
    """
    if not len(lifetimes):
        return
    begin = device.blocks.address
    end = begin + device.blocks.size_bytes.astype(np.uint64)
    order = np.argsort(begin[lifetimes])
    begins, farthest = begin[lifetimes][order], np.maximum.accumulate(end[lifetimes][order])
    # Of the lifetimes that begin before another block's end, one reaches into it if the farthest end does.
    before = np.searchsorted(begins, end[others], side="left") - 1
    others = others[(before >= 0) & (farthest[before] > begin[others])]
    for lifetime in lifetimes.tolist():
        yield lifetime, others[(begin[others] < end[lifetime]) & (end[others] > begin[lifetime])]


def _capture_over(device: DeviceTrace, last: int) -> int:
    """Return the first request after a pool's last: by then the capture is over, and its temporaries are gone."""
    later = np.flatnonzero(device.events.action[last + 1 :] == Action.ALLOC)
    return last + 1 + int(later[0]) if len(later) else device.num_events


def _kept_row(device: DeviceTrace, lifetime: int, below: int, pool: list[int]) -> dict[str, Any]:
    blocks = device.blocks
    return {
        "bytes": int(blocks.size_bytes[lifetime]),
        "address": int(blocks.address[lifetime]),
        "pool": pool,
        "site": _stack_json(device, lifetime),
        "temporary_site": _stack_json(device, below),
    }


def _stack_json(device: DeviceTrace, lifetime: int) -> list[dict[str, Any]]:
    return [frame_json(frame) for frame in device.trace.sites.user_stack(int(device.blocks.site[lifetime]))]


def _freed_after_capture(device: DeviceTrace, graphs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Find default-pool blocks that lived through a capture, were freed while its pool lives, and were overwritten.

    A graph that reads one reads what lies there now. The file does not say what a graph reads.
    """
    segments, blocks = device.segments, device.blocks
    ordinary = (segments.pool[blocks.segment] == NONE) & (blocks.free_requested != NONE)
    pool_of: dict[int, list[int]] = {}
    for row in graphs:
        first, last = row["first_event"], row["last_event"]
        if first != NONE:
            through = np.flatnonzero(ordinary & (blocks.birth < first) & (blocks.free_requested > last))
            for lifetime in _largest(device, through).tolist():
                pool_of.setdefault(lifetime, row["pool"])
    candidates = _largest(device, np.asarray(list(pool_of), dtype=np.int64))
    found: list[dict[str, Any]] = []
    for lifetime, others in _overlapping(device, candidates, np.flatnonzero(blocks.birth != NONE)):
        over = others[blocks.birth[others] > blocks.free_requested[lifetime]]
        # What the capture itself asked for goes with its graph.
        if not len(over) or _is_capture(device, int(blocks.site[lifetime])):
            continue
        found.append(
            {
                "bytes": int(blocks.size_bytes[lifetime]),
                "address": int(blocks.address[lifetime]),
                "pool": pool_of[lifetime],
                "freed_event": int(blocks.free_requested[lifetime]),
                "site": _stack_json(device, lifetime),
                "over_site": _stack_json(device, int(over[0])),
            }
        )
    return sorted(found, key=lambda row: -int(row["bytes"]))[:100]


def _title_end(saving: int, kept: list[dict[str, Any]], freed: list[dict[str, Any]]) -> str:
    parts = []
    if freed:
        parts.append(f"{_amount(freed)} freed after a capture and overwritten: does a graph read {_them(freed)}?")
    if kept:
        parts.append(f"{_amount(kept)} kept where replays write: {_outputs(kept)}?")
    if saving:
        parts.insert(0, f"sharing would save about {format_bytes(saving)}")
    return "".join(f"; {part}" for part in parts)


def _amount(rows: list[dict[str, Any]]) -> str:
    return f"{plural(len(rows), 'block')} ({format_bytes(sum(row['bytes'] for row in rows))})"


def _them(rows: list[dict[str, Any]]) -> str:
    return "it" if len(rows) == 1 else "them"


def _outputs(rows: list[dict[str, Any]]) -> str:
    return "an output" if len(rows) == 1 else "outputs"


def _freed_words(freed: list[dict[str, Any]]) -> str:
    if not freed:
        return ""
    one = len(freed) == 1
    return (
        f" {_amount(freed)}, {'' if one else 'the largest '}from {place(freed[0]['site'])}, lived through a capture, "
        f"{'was' if one else 'were'} freed later, and {'its' if one else 'their'} addresses were handed out again (first to "
        f"{place(freed[0]['over_site'])}): a graph that reads {_them(freed)} now reads something else."
    )


def _why(
    device: DeviceTrace,
    pools: list[dict[str, Any]],
    groups: list[dict[str, Any]],
    worth: bool,
    reserved: int,
) -> str:
    share = format_share(reserved, device.end.reserved_bytes)
    serves = "the graphs captured into it" if groups else "what is requested under it"
    text = f"That is {share} of what is reserved at the end. Blocks of a private pool serve only {serves}"
    if not groups:
        return text + "; no capture is recorded, so it is most likely a torch.cuda.MemPool."
    if worth:
        return (
            text + f"; {len(groups)} pools were filled one after the other, never at once, so one could serve them all."
        )
    return text + "."


def _kept_words(kept: list[dict[str, Any]]) -> str:
    if not kept:
        return ""
    one = len(kept) == 1
    return (
        f" {_amount(kept)}, {'' if one else 'the largest '}from {place(kept[0]['site'])}, outlived the capture and "
        f"{'lies' if one else 'lie'} where temporaries of it had been (first {place(kept[0]['temporary_site'])}): each replay "
        f"writes over {_them(kept)}, which is right for {_outputs(kept)} of the graph only."
    )


def _next_step(
    worth: bool,
    kept: list[dict[str, Any]],
    freed: list[dict[str, Any]],
    groups: list[dict[str, Any]],
    lead: Frame,
) -> str:
    steps = []
    if freed:
        steps.append("Keep whatever a graph reads alive as long as the graph, or capture it inside the pool")
    if worth:
        steps.append(
            "Capture all graphs into one pool: pool = torch.cuda.graph_pool_handle(), then torch.cuda.graph(g, pool=pool) "
            "(the graphs must not be replayed at the same time); with one graph for each length, pad to a few lengths"
        )
    if kept:
        steps.append(
            "Check that the blocks that replays write over are outputs of the graph; a workspace or cache first made during "
            "a capture is not: make it before"
        )
    if not steps and groups:
        steps.append(f"Nothing, if the graphs of {describe(lead)} are in use; deleting them and empty_cache() frees it")
    if not steps:
        steps.append(
            f"Nothing, if the pool of {describe(lead)} is in use; deleting it and its tensors frees the memory"
        )
    return ". ".join(steps) + "."
