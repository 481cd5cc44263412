"""Churn: memory that goes back to the driver and is asked for again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ullage.explain.attribution import describe
from ullage.explain.finding import Finding
from ullage.trace import NO_STACK, NONE, Action
from ullage.units import format_bytes, format_duration, format_share

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ullage.trace import DeviceTrace

_MIN_FREES = 20
_MIN_SHARE = 0.25  # of the peak, asked for again


def find_churn(device: DeviceTrace) -> list[Finding]:
    """Report retries, and releases that were undone by new driver allocations; silent for a few releases."""
    events = device.events
    frees = np.flatnonzero((events.action == Action.SEGMENT_FREE) | (events.action == Action.SEGMENT_UNMAP))
    if not len(frees):
        return []
    bursts = [_burst(device, run) for run in _runs(frees)]
    retries = [burst for burst in bursts if burst["reason"] == "retry"]
    grows = (events.action == Action.SEGMENT_ALLOC) | (events.action == Action.SEGMENT_MAP)
    again = int(events.size_bytes[int(frees[0]) :][grows[int(frees[0]) :]].sum())
    released = int(events.size_bytes[frees].sum())
    again = min(again, released)
    peak = max(device.peak.reserved_bytes, 1)
    if not retries and (len(frees) < _MIN_FREES or again < _MIN_SHARE * peak):
        return []
    time_us = sum(burst["time_us"] for burst in bursts)
    span_us = max(device.span_us[1] - device.span_us[0], 1)
    worst = max(retries or bursts, key=lambda burst: int(burst["bytes"]))
    site = device.trace.sites.user_stack(worst["site"])
    lead = site[0] if site else NO_STACK
    for burst in bursts:
        burst.pop("site")
    what = _count(len(retries), "allocator retry", "allocator retries")
    if not retries:
        what = f"Memory given back {_count(len(bursts), 'time', 'times')}"
    severity = "warning" if len(retries) >= 3 or again >= peak or time_us >= 0.05 * span_us else "info"
    return [
        Finding(
            kind="churn",
            severity=severity,  # type: ignore[arg-type]
            device=device.number,
            bytes=again,
            title=f"{what}: {_count(len(frees), 'driver release', 'driver releases')}, {format_bytes(again)} asked for again",
            why=f"They took at least {format_duration(time_us)} ({format_share(time_us, span_us)} of the recording); each "
            f"waits for the GPU. The largest, {format_bytes(worst['bytes'])}, was at {describe(lead)}.",
            next_step=_next_step(bool(retries), device),
            site=site,
            evidence={
                "num_device_alloc": device.history.num_device_alloc,
                "num_device_free": device.history.num_device_free,
                "released_bytes": released,
                "retries": len(retries),
                "time_us": time_us,
                "bursts": sorted(bursts, key=lambda burst: -int(burst["bytes"])),
            },
        )
    ]


def _count(number: int, one: str, many: str) -> str:
    return f"{number:,} {one if number == 1 else many}"


def _next_step(has_retries: bool, device: DeviceTrace) -> str:
    if has_retries:
        expandable = "" if device.trace.settings.get("expandable_segments") else ", or set expandable_segments:True"
        return f"The cached blocks never fit the next request: make the largest request first{expandable}."
    return "Drop the torch.cuda.empty_cache() calls between phases, unless another process needs the memory."


def _runs(frees: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    return np.split(frees, np.flatnonzero(np.diff(frees) > 1) + 1)


def _burst(device: DeviceTrace, run: NDArray[np.int64]) -> dict[str, Any]:
    events = device.events
    first, last = int(run[0]), int(run[-1])
    after = min(last + 1, device.num_events - 1)
    reason = _reason(device, first, last)
    # A retry ends with the driver allocation that it was made for.
    until = after if reason in ("retry", "max_split_release", "garbage_collection") else last
    return {
        "reason": reason,
        "event": first,
        "num_releases": len(run),
        "bytes": int(events.size_bytes[run].sum()),
        "time_us": int(events.time_us[until] - events.time_us[first]),
        "since_start_us": int(events.time_us[first]) - device.span_us[0],
        "followed_by": Action(int(events.action[after])).name.lower(),
        "site": int(events.site[first]),
    }


def _reason(device: DeviceTrace, first: int, last: int) -> str:
    """Tell a retry from empty_cache(): a retry has the stack of the request that failed, and that request follows."""
    events = device.events
    site = int(events.site[first])
    if any(frame.function == "empty_cache" for frame in device.trace.sites.stack(site)):
        return "empty_cache"
    if last + 1 >= device.num_events:
        return "release"
    follows = int(events.action[last + 1])
    if follows == Action.OOM:
        return "retry"
    if follows not in (Action.SEGMENT_ALLOC, Action.SEGMENT_MAP):
        return "release"
    same_request = int(events.site[last + 1]) == site if site != NONE else True
    if not same_request:
        return "release"
    # With max_split_size, the allocator first gives back oversize blocks only; torch does not count that as a retry.
    max_split = device.trace.settings.get("max_split_size", -1)
    if isinstance(max_split, int) and 0 < max_split <= int(events.size_bytes[first : last + 1].min()):
        return "max_split_release"
    threshold = device.trace.settings.get("garbage_collection_threshold", 0)
    return "garbage_collection" if isinstance(threshold, float) and threshold > 0 else "retry"
