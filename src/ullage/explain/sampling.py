"""Instants that stand for a whole recording in a drawing: few enough for its columns, and no maximum is lost.

A drawing divides the recorded time into columns of equal width. What holds in a column is the state that it begins with,
and the state after each event in it::

    time     |<-- column 0 -->|<-- column 1 -->|<-- column 2 -->|
    events   0 1     2  3                       4        5     6
    states   before, 0-3       3                3, 4, 5, 6
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from ullage.trace import NONE, Counters, CounterSeries

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ullage.trace import DeviceTrace


def column_starts(span_us: int, num_columns: int) -> NDArray[np.int64]:
    """Return the first microsecond of each column of a drawing.

    Example:
        >>> column_starts(100, 4).tolist(), column_starts(1, 3).tolist()
        ([0, 25, 50, 75], [0, 1, 1])
    """
    return np.asarray([-(-span_us * column // num_columns) for column in range(num_columns)], dtype=np.int64)


def column_bounds(since: NDArray[np.int64], num_columns: int) -> NDArray[np.int64]:
    """Return `num_columns` + 1 event indices: those of column k are [bounds[k], bounds[k + 1]).

    Args:
        since: The events' times since the first, ascending.
        num_columns: The columns.

    Example:
        >>> column_bounds(np.asarray([0, 1, 9, 10]), 2).tolist(), column_bounds(np.asarray([0, 0]), 2).tolist()
        ([0, 2, 4], [0, 0, 2])
    """
    span = int(since[-1]) if len(since) else 0
    starts = np.searchsorted(since, column_starts(span, num_columns), side="left")
    starts[0] = 0
    return np.append(starts, len(since)).astype(np.int64)


def counters_after(device: DeviceTrace, events: NDArray[np.int64]) -> CounterSeries:
    """Return the four sums after each of `events`; `NONE` is the state before the first event.

    Cost: another pass over the events, unless `DeviceTrace.counters` was asked for before.
    """
    before, series = Counters(*device.history.before), device.counters
    names = Counters._fields
    columns = {name: _after(getattr(series, name), getattr(before, name), events) for name in names}
    return CounterSeries(**columns)


def _after(values: NDArray[np.int64], before: int, events: NDArray[np.int64]) -> NDArray[np.int64]:
    if not len(values):
        return np.full(len(events), before, np.int64)
    return np.where(events == NONE, before, values[np.maximum(events, 0)])


def extreme_events(device: DeviceTrace, num_columns: int) -> NDArray[np.int64]:
    """Pick from each column the events after which the sums are at their extremes there, and its last.

    Returns:
        Ascending event indices: those at which allocated is largest and smallest, active and reserved are largest; all
        events where there are hardly more than columns. The first is `NONE`, the state before the recording.
    """
    num_events = device.num_events
    if num_events <= 2 * num_columns:
        return np.arange(NONE, num_events, dtype=np.int64)
    series = device.counters
    sums = (series.allocated_bytes, series.active_bytes, series.reserved_bytes)
    bounds = column_bounds(device.since_start_us, num_columns).tolist()
    picked = {NONE}
    for begin, end in pairwise(bounds):
        if begin < end:
            picked.update(begin + int(np.argmax(values[begin:end])) for values in sums)
            picked.add(begin + int(np.argmin(sums[0][begin:end])))
            picked.add(end - 1)
    return np.asarray(sorted(picked), dtype=np.int64)


def highest_events(values: NDArray[np.int64], before: int, bounds: NDArray[np.int64]) -> NDArray[np.int64]:
    """Pick for each column the event after which a sum is largest, the state that it begins with included.

    Args:
        values: The sum after each event.
        before: The sum before the first.
        bounds: What `column_bounds` returns.

    Returns:
        An event index for each column, ascending; `NONE` is the state before the first event.
    """
    picked = []
    for begin, end in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        held = before if begin == 0 else int(values[begin - 1])
        best = begin + int(np.argmax(values[begin:end])) if begin < end else NONE
        picked.append(best if begin < end and int(values[best]) >= held else begin - 1)
    return np.asarray(picked, dtype=np.int64)
