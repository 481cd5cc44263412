"""The recording itself: whatever limits what the other findings could say."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ullage.explain.finding import Finding, Severity
from ullage.trace import NONE, Action
from ullage.units import format_bytes, plural

if TYPE_CHECKING:
    from ullage.trace import DeviceTrace

_RECORD = "torch.cuda.memory._record_memory_history(max_entries=…) before the first CUDA allocation"


def find_recording(device: DeviceTrace) -> list[Finding]:
    """Report a late, wrapped or missing history, missing stacks, contradicting events, and an end other than recorded."""
    found = [finding for check in (_history, _stacks, _conflicts, _end) if (finding := check(device))]
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
    num_there = history.num_initial_blocks
    there = (
        f"{plural(num_there, 'block')} ({format_bytes(before)}) {'was' if num_there == 1 else 'were'} there before the "
        "first event"
    )
    if completeness.kind == "wrapped":
        return _finding(
            device,
            "warning",
            before,
            f"The ring buffer wrapped: only the last {plural(device.num_events, 'event')} "
            f"{'is' if device.num_events == 1 else 'are'} known",
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
        f"No stacks: {num_missing:,} of {plural(num_allocs, 'request')} {'does' if num_missing == 1 else 'do'} not say "
        "which line made them",
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
        f"{plural(history.num_conflicts, 'event')} {'contradicts' if history.num_conflicts == 1 else 'contradict'} the "
        "state before",
        f"The first is event {history.first_conflict:,}. Most often the allocator's settings were changed during the run: "
        "the file holds only the last ones (docs/reconstruction.md). Else it was made by another allocator, or is "
        "damaged. Figures after that event are estimates.",
        "Set PYTORCH_CUDA_ALLOC_CONF once, before the program starts, and record again; ullage info --verify shows how far "
        "the rest agrees.",
    )


def _end(device: DeviceTrace) -> Finding | None:
    """Compare what the events lead up to with the final layout that the file gives; the latter is PyTorch's own."""
    history = device.history
    recorded = history.recorded_end
    if recorded is None or history.ends_as_recorded or not device.num_events:
        return None
    off = abs(history.end[1] - recorded[1])
    return _finding(
        device,
        "warning",
        off,
        f"The events do not lead to the recorded end: {format_bytes(off)} of allocated memory apart",
        "Something shaped the blocks that the file does not hold: a pool made with no_split, settings changed during the "
        "run, or other threads that went on while it was written. The end is shown as recorded; figures over time may be "
        "off by as much.",
        "ullage info --verify names the first request that differs; docs/reconstruction.md says what a snapshot leaves out.",
    )
