"""Churn: memory that goes back to the driver and is asked for again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ullage.explain.attribution import describe
from ullage.explain.finding import Finding, Severity
from ullage.trace import NO_STACK, NONE, Action
from ullage.units import format_bytes, format_duration, format_share, plural

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ullage.trace import DeviceTrace

_MIN_FREES = 20
_MIN_SHARE = 0.25  # of the peak, asked for again
_COSTLY = 0.05  # of the time
_COSTLY_WITH_THE_PEAK_AGAIN = 0.01
_MANY_RETRIES = 3

_NEXT_STEP = {
    "garbage_collection": "garbage_collection_threshold gives blocks back before they are asked for again: raise it, or "
    "remove it.",
    "max_split_release": "max_split_size_mb keeps blocks above it whole, so that they come and go with each size: raise it, or "
    "remove it.",
    "empty_cache": "Drop the torch.cuda.empty_cache() calls between phases, unless another process needs the memory.",
    "release": "The file does not say what released them: look for torch.cuda.empty_cache(), and for graphs or pools that "
    "come and go.",
}


def find_churn(device: DeviceTrace) -> list[Finding]:
    """Report retries, and releases that were undone by new driver allocations; silent for a few releases.

    What torch.cuda.graph releases when a capture begins is left out: the user has no say in it.
    """
    events = device.events
    frees = np.flatnonzero((events.action == Action.SEGMENT_FREE) | (events.action == Action.SEGMENT_UNMAP))
    if not len(frees):
        return []
    bursts = [burst for run in _runs(frees) if (burst := _burst(device, run))["reason"] != "graph_capture"]
    retries = [burst for burst in bursts if burst["reason"] == "retry"]
    num_frees = sum(burst["num_releases"] for burst in bursts)
    again = _asked_again(device, bursts)
    peak = max(device.peak.reserved_bytes, 1)
    if not retries and (num_frees < _MIN_FREES or again < _MIN_SHARE * peak):
        return []
    time_us = sum(burst["time_us"] for burst in bursts)
    span_us = max(device.span_us[1] - device.span_us[0], 1)
    reason = _main_reason(bursts)
    worst = max((burst for burst in bursts if burst["reason"] == reason), key=lambda burst: int(burst["bytes"]))
    site = device.trace.sites.user_stack(worst["site"])
    for burst in bursts:
        burst.pop("site")
    num_retries = len(retries) + _unseen_retries(device, bursts)
    return [
        Finding(
            kind="churn",
            severity=_severity(len(retries), again >= peak, time_us / span_us),
            device=device.number,
            bytes=again,
            title=f"{_what(reason, bursts, num_retries)}: {plural(num_frees, 'driver release')}, "
            f"{format_bytes(again)} asked for again",
            why=f"They took at least {format_duration(time_us)} ({format_share(time_us, span_us)} of the recording); each "
            f"waits for the GPU. The largest{' retry' if reason == 'retry' else ''}, {format_bytes(worst['bytes'])}, was at "
            f"{describe(site[0] if site else NO_STACK)}.",
            next_step=_next_step(reason, device),
            site=site,
            evidence={
                "num_device_alloc": device.history.num_device_alloc,
                "num_device_free": device.history.num_device_free,
                "released_bytes": sum(burst["bytes"] for burst in bursts),
                "retries": num_retries,
                "time_us": time_us,
                "reason": reason,
                "bursts": sorted(bursts, key=lambda burst: -int(burst["bytes"])),
            },
        )
    ]


def _asked_again(device: DeviceTrace, bursts: list[dict[str, Any]]) -> int:
    """Return how much of what was released the driver was asked for afterwards."""
    if not bursts:
        return 0
    events, first = device.events, bursts[0]["event"]
    actions = events.action[first:]
    grows = (actions == Action.SEGMENT_ALLOC) | (actions == Action.SEGMENT_MAP)
    released: int = sum(burst["bytes"] for burst in bursts)
    return min(int(events.size_bytes[first:][grows].sum()), released)


def _main_reason(bursts: list[dict[str, Any]]) -> str:
    sums: dict[str, int] = {}
    for burst in bursts:
        sums[burst["reason"]] = sums.get(burst["reason"], 0) + burst["bytes"]
    return max(sums, key=lambda reason: sums[reason])


def _unseen_retries(device: DeviceTrace, bursts: list[dict[str, Any]]) -> int:
    """Count the retries that released nothing: each out-of-memory event comes after one."""
    after_a_retry = {burst["event"] + burst["num_releases"] for burst in bursts if burst["reason"] == "retry"}
    return sum(event not in after_a_retry for event in device.ooms().tolist())


def _severity(num_retries: int, is_peak_again: bool, time_share: float) -> Severity:
    if num_retries >= _MANY_RETRIES or time_share >= _COSTLY:
        return "warning"
    return "warning" if is_peak_again and time_share >= _COSTLY_WITH_THE_PEAK_AGAIN else "info"


def _what(reason: str, bursts: list[dict[str, Any]], num_retries: int) -> str:
    retries = plural(num_retries, "allocator retry", "allocator retries")
    if reason == "retry":
        return retries
    return f"Memory given back {plural(len(bursts), 'time')}" + (f", with {retries}" if num_retries else "")


def _next_step(reason: str, device: DeviceTrace) -> str:
    if reason == "retry":
        expandable = "" if device.trace.settings.get("expandable_segments") else ", or set expandable_segments:True"
        return f"The cached blocks never fit the next request: make the largest request first{expandable}."
    return _NEXT_STEP[reason]


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
    stack = device.trace.sites.stack(site)
    called = next((i for i, frame in enumerate(stack) if frame.function == "empty_cache"), None)
    if called is not None:
        by_graph = any(frame.file.endswith("torch/cuda/graphs.py") for frame in stack[called:])
        return "graph_capture" if by_graph else "empty_cache"
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
