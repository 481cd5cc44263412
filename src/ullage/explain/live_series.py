"""Bytes live by leading line over time: what the drawings of a recording are made of. Exact at each sample."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from ullage.errors import UllageError
from ullage.explain.attribution import leads_of
from ullage.explain.sampling import (
    column_bounds,
    column_starts,
    counters_after,
    extreme_events,
    highest_events,
)
from ullage.trace import BEFORE_ID, NONE, Frame

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ullage.trace import DeviceTrace

OTHER = Frame("(other lines)", 0, "")
"""Stands for all lines that a series does not name."""

_OTHER_ID = -3
_MIN_SHARE = 0.01  # a line that never has more would be no more than its entry in the legend
_MAX_OOMS = 100


@dataclass(frozen=True, kw_only=True)
class Mark:
    """An instant that a drawing points at.

    Attributes:
        kind: "peak" (of allocated), "oom", or "at": the instant asked for, where that is neither.
        event: The event; the state meant is the one after it.
        time_us: Its time since the first event.
        allocated_bytes: What is allocated then.
        requested_bytes: For an out-of-memory error, what was asked for; else 0.
    """

    kind: Literal["peak", "oom", "at"]
    event: int
    time_us: int
    allocated_bytes: int
    requested_bytes: int = 0


@dataclass(frozen=True, kw_only=True)
class LiveSeries:
    """Live bytes by leading line at sample instants.

    Attributes:
        device: The device's number.
        span_us: From the first event to the last.
        time_us: The time of each sample since the first event. Each state holds until the next sample.
        events: The event that each sample is the state after; `NONE` is the state before the first.
        lines: The leading frames, the longest-lived first, `OTHER` last: the order to stack them in.
        line_bytes: One row for each line, one column for each sample. The rows add up to `allocated_bytes`.
        line_peaks: The most that each line ever holds.
        at: The instant asked for, and `at_bytes` what each line holds after it.
        allocated_bytes: At each sample; so are active and reserved.
        marks: The peak, the first out-of-memory errors, the instant asked for; in the order of time.
        num_ooms: The number of out-of-memory errors.
        step_us: The times of the steps' marks, and `step_source` what made them.
    """

    device: int
    span_us: int
    time_us: NDArray[np.int64]
    events: NDArray[np.int64]
    lines: tuple[Frame, ...]
    line_bytes: NDArray[np.int64]
    line_peaks: tuple[int, ...]
    at: Mark
    at_bytes: tuple[int, ...]
    allocated_bytes: NDArray[np.int64]
    active_bytes: NDArray[np.int64]
    reserved_bytes: NDArray[np.int64]
    marks: tuple[Mark, ...]
    num_ooms: int
    step_us: NDArray[np.int64]
    step_source: str


def live_extremes(
    device: DeviceTrace, num_columns: int, *, num_lines: int = 6, at: str | int | None = None
) -> LiveSeries:
    """Return the series for a drawing of so many columns that has room for several samples in each.

    Args:
        device: The device.
        num_columns: The columns, such as the pixels of an axis: the extremes of each are among the samples.
        num_lines: The largest number of lines that get a name; the rest is `OTHER`.
        at: The instant at which lines are compared, as in `DeviceTrace.event_at`; None: the peak.

    Raises:
        UllageError: The device has no events, or there is no such instant.

    Cost: linear in the events, two passes.
    """
    since, at_event = _begin(device, at)
    marks = _marks(device, since, at_event)
    events = np.union1d(extreme_events(device, num_columns), [mark.event for mark in marks]).astype(np.int64)
    times = np.where(events == NONE, 0, since[np.maximum(events, 0)])
    sums = counters_after(device, events)
    return _series(device, since, at_event, num_lines, events, times, sums.reserved_bytes)


def live_columns(
    device: DeviceTrace, num_columns: int, *, num_lines: int = 5, at: str | int | None = None
) -> LiveSeries:
    """Return one sample for each column of a drawing: the state in which most is allocated there.

    `reserved_bytes` is the largest in each column, which can be at another instant than the sample.

    Args:
        device: The device.
        num_columns: The columns.
        num_lines: As in `live_extremes`.
        at: As in `live_extremes`.

    Raises:
        UllageError: The device has no events, or there is no such instant.

    Cost: linear in the events, two passes.
    """
    since, at_event = _begin(device, at)
    counters, before, bounds = device.counters, device.history.before, column_bounds(since, num_columns)
    events = highest_events(counters.allocated_bytes, before[1], bounds)
    reserved = counters_after(device, highest_events(counters.reserved_bytes, before[3], bounds)).reserved_bytes
    return _series(device, since, at_event, num_lines, events, column_starts(int(since[-1]), num_columns), reserved)


def _begin(device: DeviceTrace, at: str | int | None) -> tuple[NDArray[np.int64], int]:
    if not device.num_events:
        raise UllageError(f"the recording of device {device.number} holds no events: there is no timeline to draw")
    return device.since_start_us, device.event_at("peak" if at is None else at)


def _series(
    device: DeviceTrace,
    since: NDArray[np.int64],
    at_event: int,
    num_lines: int,
    events: NDArray[np.int64],
    time_us: NDArray[np.int64],
    reserved: NDArray[np.int64],
) -> LiveSeries:
    sums = counters_after(device, events)
    names, group = _named_lines(device, since, at_event, num_lines)
    table = _live_by_group(device, group, len(names), events)
    order = _steadiest_first(names, table, time_us, int(since[-1]))
    at_bytes = _live_by_group(device, group, len(names), np.asarray([at_event]))[order, 0]
    frame = device.trace.sites.frame
    return LiveSeries(
        device=device.number,
        span_us=int(since[-1]),
        time_us=time_us,
        events=events,
        lines=tuple(OTHER if names[i] == _OTHER_ID else frame(names[i]) for i in order),
        line_bytes=table[order],
        line_peaks=tuple(_own_peaks(device, group, len(names))[order].tolist()),
        at=_mark(device, since, "at", at_event),
        at_bytes=tuple(at_bytes.tolist()),
        allocated_bytes=sums.allocated_bytes,
        active_bytes=sums.active_bytes,
        reserved_bytes=reserved,
        marks=_marks(device, since, at_event),
        num_ooms=len(device.ooms()),
        step_us=since[device.steps.starts],
        step_source=device.steps.source,
    )


def _ends(device: DeviceTrace) -> NDArray[np.int32]:
    freed = device.blocks.free_requested
    return np.where(freed == NONE, device.num_events, freed)


def _named_lines(
    device: DeviceTrace, since: NDArray[np.int64], at_event: int, num_lines: int
) -> tuple[list[int], NDArray[np.int64]]:
    """Choose the lines that get a name: those with the largest share of the instant, of the whole time, or of the peak.

    Returns:
        The frame ids, and for each block the place of its line among them.
    """
    blocks = device.blocks
    leads, group = np.unique(leads_of(device, np.arange(len(blocks.birth))), return_inverse=True)
    times = np.append(since, since[-1])
    spans = times[np.maximum(_ends(device), 0)] - times[np.maximum(blocks.birth, 0)]
    over_time = np.bincount(group, blocks.size_bytes.astype(np.float64) * spans, minlength=len(leads))
    then = _live_by_group(device, group, len(leads), np.asarray([at_event]))[:, 0]
    own_peaks = _own_peaks(device, group, len(leads)) / max(device.peak.allocated_bytes, 1)
    shares = np.maximum(own_peaks, np.maximum(over_time / max(over_time.sum(), 1), then / max(int(then.sum()), 1)))
    shares[leads == BEFORE_ID] = 0
    largest = np.argsort(-shares, kind="stable")[:num_lines]
    is_named = np.zeros(len(leads), bool)
    is_named[largest[shares[largest] >= _MIN_SHARE]] = True
    is_named |= leads == BEFORE_ID
    if num_lines and int((~is_named).sum()) == 1:
        is_named[:] = True  # "other" would take as much room as its name
    names = leads[is_named].tolist() + ([] if is_named.all() else [_OTHER_ID])
    place = np.where(is_named, np.cumsum(is_named) - 1, len(names) - 1)
    return names, place[group]


def _live_by_group(
    device: DeviceTrace, group: NDArray[np.int64], num_groups: int, events: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Sum the sizes of live blocks by group after each of some ascending events."""
    blocks = device.blocks
    begins = np.searchsorted(events, blocks.birth, side="left")
    ends = np.searchsorted(events, _ends(device), side="left")
    seen = np.flatnonzero(ends > begins)
    changes = np.zeros((num_groups, len(events) + 1), dtype=np.int64)
    np.add.at(changes, (group[seen], begins[seen]), blocks.size_bytes[seen])
    np.subtract.at(changes, (group[seen], ends[seen]), blocks.size_bytes[seen])
    return np.cumsum(changes, axis=1)[:, :-1]


def _own_peaks(device: DeviceTrace, group: NDArray[np.int64], num_groups: int) -> NDArray[np.int64]:
    """Return the most that is live of each group at once."""
    blocks, ends = device.blocks, _ends(device)
    seen = np.flatnonzero(ends > blocks.birth)
    groups = np.concatenate([group[seen], group[seen]])
    changes = np.concatenate([blocks.size_bytes[seen], -blocks.size_bytes[seen]])
    order = np.lexsort((np.concatenate([blocks.birth[seen], ends[seen]]), groups))
    # Each block is counted out again, if only at the end, so the sum is 0 wherever a group ends.
    sums, sorted_groups = np.cumsum(changes[order]), groups[order]
    peaks = np.zeros(num_groups, dtype=np.int64)
    np.maximum.at(peaks, sorted_groups, sums)
    return peaks


def _steadiest_first(names: list[int], table: NDArray[np.int64], time_us: NDArray[np.int64], span_us: int) -> list[int]:
    """Order lines by their mean over time in relation to their maximum, so that what comes and goes lies on top."""
    holds = np.diff(np.append(time_us, span_us)).astype(np.float64) + 1e-3
    means = table @ (holds / holds.sum())
    steadiness = means / np.maximum(table.max(axis=1, initial=0), 1)
    last = {BEFORE_ID: -1, _OTHER_ID: 1}
    return sorted(range(len(names)), key=lambda i: (last.get(names[i], 0), -steadiness[i], i))


def _mark(device: DeviceTrace, since: NDArray[np.int64], kind: Literal["peak", "oom", "at"], event: int) -> Mark:
    return Mark(
        kind=kind,
        event=event,
        time_us=0 if event == NONE else int(since[event]),
        allocated_bytes=int(counters_after(device, np.asarray([event])).allocated_bytes[0]),
        requested_bytes=int(device.events.size_bytes[event]) if kind == "oom" else 0,
    )


def _marks(device: DeviceTrace, since: NDArray[np.int64], at_event: int) -> tuple[Mark, ...]:
    peak, ooms = device.event_at("peak"), device.ooms()[:_MAX_OOMS].tolist()
    marks = [_mark(device, since, "peak", peak), *(_mark(device, since, "oom", event) for event in ooms)]
    if at_event not in (peak, *ooms):
        marks.append(_mark(device, since, "at", at_event))
    return tuple(sorted(marks, key=lambda mark: mark.event))
