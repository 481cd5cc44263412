"""The recording itself: whatever limits what the other findings could say."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ullage.explain.finding import Finding, Severity
from ullage.trace import NONE, Action
from ullage.units import format_bytes

if TYPE_CHECKING:
    from ullage.trace import DeviceTrace

_RECORD = "torch.cuda.memory._record_memory_history(max_entries=…) before the first CUDA allocation"


def find_recording(device: DeviceTrace) -> list[Finding]:
    """Report a late, wrapped or missing history, missing stacks, and events that contradict each other."""
    found = [finding for check in (_history, _stacks, _conflicts) if (finding := check(device))]
    return found


def _finding(device: DeviceTrace, severity: Severity, size: int, title: str, why: str, next_step: str) -> Finding:
    history = device.history
    return Finding(
        kind="recording",
        severity=severity,
        device=device.number,
        bytes=size,
        title=title,
        why=why,
        next_step=next_step,
        evidence={
            "history": device.completeness.kind,
            "num_events": device.num_events,
            "initial_blocks": history.num_initial_blocks,
            "undetermined_blocks": history.num_undetermined,
            "undetermined_bytes": history.undetermined_bytes,
            "conflicts": history.num_conflicts,
        },
    )


def _history(device: DeviceTrace) -> Finding | None:
    completeness, history = device.completeness, device.history
    before = history.before[1]
    if completeness.kind == "complete":
        return None
    if completeness.kind == "none":
        return _finding(
            device,
            "warning",
            device.end.reserved_bytes,
            "No history: only the layout at the end is known",
            f"{completeness.why[0].upper()}{completeness.why[1:]}: nothing can be said about peaks, growth or time.",
            f"Record with {_RECORD}.",
        )
    open_sizes = ""
    if history.num_undetermined:
        open_sizes = (
            f" For {history.num_undetermined:,} of them the events leave the rounded size open, by "
            f"{format_bytes(history.undetermined_bytes)} at most; figures take the smaller size."
        )
    there = f"{history.num_initial_blocks:,} blocks ({format_bytes(before)}) were there before the first event"
    if completeness.kind == "wrapped":
        return _finding(
            device,
            "warning",
            before,
            f"The ring buffer wrapped: only the last {device.num_events:,} events are known",
            f"{there} ({completeness.why}). Peaks and growth before that are lost.{open_sizes}",
            "Record again with a larger max_entries, or stop nearer to the problem.",
        )
    return _finding(
        device,
        "info",
        before,
        f"The recording began late: {format_bytes(before)} was already allocated",
        f"{there}; where they came from is not recorded. Peaks are those since then.{open_sizes}",
        f"To see them too: {_RECORD}.",
    )


def _stacks(device: DeviceTrace) -> Finding | None:
    events = device.events
    allocs = events.action == Action.ALLOC
    num_allocs = int(allocs.sum())
    if not num_allocs:
        return None
    missing = allocs & (events.site == NONE)
    num_missing = int(missing.sum())
    if num_missing < 0.9 * num_allocs:
        return None
    return _finding(
        device,
        "warning",
        int(events.size_bytes[missing].sum()),
        f"No stacks: {num_missing:,} of {num_allocs:,} requests do not say which line made them",
        "Sites, growth and pinning blocks cannot be named without them.",
        "Record with stacks='python' and context='all' (about 2 µs a request).",
    )


def _conflicts(device: DeviceTrace) -> Finding | None:
    history = device.history
    if not history.num_conflicts:
        return None
    share = history.num_conflicts / max(device.num_events, 1)
    unsure = device.blocks.size_bytes[np.asarray(device.blocks.birth) >= history.first_conflict]
    return _finding(
        device,
        "warning" if share > 0.01 else "info",
        int(unsure.max(initial=0)),
        f"{history.num_conflicts:,} events contradict the state before them",
        f"The first is event {history.first_conflict:,}. The file may be damaged, or made by another allocator; figures "
        "after that event are estimates.",
        "Run ullage info --verify to see how far the rest agrees.",
    )
