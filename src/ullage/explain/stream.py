"""Streams: blocks that wait for another stream before they are free, and blocks left on a stream that is done."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ullage.explain.attribution import describe, share_by_site
from ullage.explain.finding import Finding
from ullage.explain.waterfall import main_stream
from ullage.trace import NONE, Action, BlockState
from ullage.units import format_bytes, format_duration, format_share, plural

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ullage.trace import DeviceTrace

_MIN_BYTES = 16 << 20
_MIN_SHARE = 0.01  # of the peak of reserved
_MIN_BYTE_US = _MIN_BYTES * 1000  # 16 MiB for a millisecond: a shorter wait costs nothing


def find_stream(device: DeviceTrace) -> list[Finding]:
    """Report memory that waits on record_stream, and memory stranded on streams that are no longer used."""
    if not device.num_events:
        return []
    floor = max(_MIN_BYTES, int(_MIN_SHARE * device.peak.reserved_bytes))
    return [finding for find in (_waiting, _left_behind) if (finding := find(device, floor))]


def _waiting(device: DeviceTrace, floor: int) -> Finding | None:
    blocks, times = device.blocks, device.events.time_us
    # A free that no stream holds up completes in the very next event; where requests are not recorded, in the same.
    still = blocks.death == NONE
    waited = np.flatnonzero((blocks.free_requested != NONE) & (still | (blocks.death > blocks.free_requested + 1)))
    if not len(waited):
        return None
    begins = np.maximum(blocks.free_requested[waited], 0)
    ends = np.where(blocks.death[waited] == NONE, device.num_events, blocks.death[waited])
    event, most = _highest(begins, ends, blocks.size_bytes[waited])
    if most < floor:
        return None
    wait_us = times[np.minimum(ends, device.num_events - 1)] - times[begins]
    byte_us = float((blocks.size_bytes[waited].astype(np.float64) * wait_us).sum())
    unfinished = blocks.death[waited] == NONE
    costs = byte_us >= _MIN_BYTE_US
    # How long these would have waited is not recorded: worth a word, but no warning.
    if not costs and int(blocks.size_bytes[waited[unfinished]].sum()) < floor:
        return None
    then = waited[(begins <= event) & (ends > event)]
    shares = share_by_site(device, then, event)
    top = shares[0]
    reserved = int(device.layouts_after([event])[event].segment_bytes.sum())
    return Finding(
        kind="stream",
        severity="warning" if costs and most >= 0.05 * reserved else "info",
        device=device.number,
        bytes=most,
        title=f"Up to {format_bytes(most)} freed but waiting for another stream (record_stream)",
        why=f"{_were_waiting(len(then))}, {format_share(most, reserved)} of what was reserved then, most of it from "
        f"{describe(top.lead)}. {_wait_words(wait_us, int(unfinished.sum()))}",
        next_step="Let the allocating stream wait for an event of the other one before the last reference goes, in place "
        "of record_stream; with NCCL before torch 2.8, where it became the default, TORCH_NCCL_AVOID_RECORD_STREAMS=1.",
        site=top.stack,
        evidence={
            "event": event,
            "peak_waiting_bytes": most,
            "num_waiting": len(then),
            "num_waited": len(waited),
            "num_unfinished": int(unfinished.sum()),
            "byte_seconds": round(byte_us / 1e6),
            "median_wait_us": int(np.median(wait_us)),
            "max_wait_us": int(wait_us.max()),
            "by_site": [share.to_json() for share in shares],
        },
    )


def _highest(begins: NDArray[np.int32], ends: NDArray[np.int32], size: NDArray[np.int64]) -> tuple[int, int]:
    """Return the event after which the most bytes lie between their begin and their end, and how many."""
    events = np.concatenate([begins, ends])
    order = np.argsort(events, kind="stable")
    sums = np.cumsum(np.concatenate([size, -size])[order])
    # Only the last change at an event counts.
    settled = np.where(np.append(np.diff(events[order]) > 0, True), sums, 0)
    best = int(np.argmax(settled))
    return int(events[order][best]), int(settled[best])


def _were_waiting(number: int) -> str:
    return "1 block was waiting" if number == 1 else f"{number:,} blocks were waiting at once"


def _wait_words(wait_us: NDArray[np.int64], num_unfinished: int) -> str:
    number, longest = len(wait_us), int(wait_us.max())
    if num_unfinished == number:
        so_far = f", after {format_duration(longest)}{' at most' if number > 1 else ''}" if longest else ""
        are = "was" if number == 1 else "were"
        return f"{plural(number, 'block')} {are} still waiting at the end of the recording{so_far}."
    median = f", {format_duration(int(np.median(wait_us)))} in the median," if number > 1 else ""
    text = f"{plural(number, 'block')} waited{median} {format_duration(longest)} at most"
    return text + (f"; {num_unfinished:,} of them wait still at the end." if num_unfinished else ".")


def _left_behind(device: DeviceTrace, floor: int) -> Finding | None:
    """Find streams whose requests ended long before the recording did, and whose cached blocks nobody else can use."""
    events, segments = device.events, device.segments
    layout = device.layouts_after([device.num_events - 1])[device.num_events - 1]
    is_free = layout.state == BlockState.INACTIVE
    home = layout.segment
    main = main_stream(device)
    allocs = np.flatnonzero(events.action == Action.ALLOC)
    streams = []
    for stream in np.unique(segments.stream):
        if stream == main:
            continue
        mine = is_free & (segments.stream[home] == stream) & (segments.pool[home] == NONE)
        free_bytes = int(layout.size_bytes[mine].sum())
        used = allocs[events.stream[allocs] == stream]
        if not free_bytes or not len(used):
            continue
        last_use = int(used[-1])
        others_since = int((allocs > last_use).sum())
        if others_since < max(len(used) // 4, 8):
            continue
        row = {"stream": int(stream), "free_bytes": free_bytes, "num_requests": len(used), "last_event": last_use}
        streams.append((row, int(events.site[used[np.argmax(events.size_bytes[used])]])))
    total = sum(row["free_bytes"] for row, _ in streams)
    if total < floor:
        return None
    streams.sort(key=lambda pair: -pair[0]["free_bytes"])
    site = device.trace.sites.user_stack(streams[0][1])
    reserved = max(device.end.reserved_bytes, 1)
    return Finding(
        kind="stream",
        severity="warning" if total >= 0.05 * reserved else "info",
        device=device.number,
        bytes=total,
        title=f"{format_bytes(total)} stranded on {plural(len(streams), 'stream')} no longer used",
        why="A cached block serves only the stream that it was made on; the last request on "
        f"{'this one' if len(streams) == 1 else 'each of these'} came long before the end. {format_share(total, reserved)} "
        "of what is reserved at the end lies there.",
        next_step="Reuse one side stream in place of making a new one each time, or call torch.cuda.empty_cache() once "
        "after the stream's work is done.",
        site=site,
        evidence={"streams": [row for row, _ in streams]},
    )
