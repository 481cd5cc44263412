"""Lanes: rows for spans of time, so that those in one row nest or do not meet."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_MAX_NESTING_LANES = 16


def separate_lanes(starts: NDArray[np.int64], ends: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return a lane for each span [start, end); spans in one lane do not meet, and there are as few lanes as can be.

    Example:
        >>> separate_lanes(np.asarray([0, 2, 5]), np.asarray([4, 6, 9])).tolist()
        [0, 1, 0]

    Cost: O(n log n).
    """
    lanes = np.zeros(len(starts), np.int64)
    in_use: list[tuple[int, int]] = []  # (end, lane)
    free: list[int] = []
    num_lanes = 0
    for index in np.lexsort((ends, starts)).tolist():
        while in_use and in_use[0][0] <= starts[index]:
            heapq.heappush(free, heapq.heappop(in_use)[1])
        if not free:
            heapq.heappush(free, num_lanes)
            num_lanes += 1
        lane = heapq.heappop(free)
        lanes[index] = lane
        heapq.heappush(in_use, (int(ends[index]), lane))
    return lanes


def nesting_lanes(starts: NDArray[np.int64], ends: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return a lane for each span [start, end); of two spans in one lane that meet, one lies inside the other.

    Sixteen lanes are for spans that nest; what is left then, which no ordinary program brings about, lies in lanes of
    its own, so that the cost stays linear.

    Example:
        >>> nesting_lanes(np.asarray([0, 1, 3]), np.asarray([9, 4, 12])).tolist()
        [0, 0, 1]

    Cost: O(n log n).
    """
    lanes = np.full(len(starts), -1, np.int64)
    open_ends: list[list[int]] = []  # by lane: the ends of the spans that are open, outermost first
    for index in np.lexsort((-ends, starts)).tolist():
        start, end = int(starts[index]), int(ends[index])
        for stack in open_ends:
            while stack and stack[-1] <= start:
                stack.pop()
        lane = next((i for i, stack in enumerate(open_ends) if not stack or stack[-1] >= end), len(open_ends))
        if lane == _MAX_NESTING_LANES:
            continue
        if lane == len(open_ends):
            open_ends.append([])
        open_ends[lane].append(end)
        lanes[index] = lane
    left = np.flatnonzero(lanes < 0)
    lanes[left] = _MAX_NESTING_LANES + separate_lanes(starts[left], ends[left])
    return lanes


def nesting_order(
    lanes: NDArray[np.int64], starts: NDArray[np.int64], ends: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return the order in which spans begin and end, lane by lane, each inside the one that began before it.

    Returns:
        The span of each begin or end, and whether it is a begin.

    Example:
        >>> rows, begins = nesting_order(*(np.asarray(x) for x in ([0, 0, 0], [0, 1, 5], [9, 5, 5])))
        >>> [f"{'begin' if begin else 'end'} {row}" for row, begin in zip(rows.tolist(), begins.tolist())]
        ['begin 0', 'begin 1', 'end 1', 'begin 2', 'end 2', 'end 0']
    """
    rows: list[int] = []
    begins: list[bool] = []
    open_rows: list[int] = []

    def end_until(lane: int, start: int) -> None:
        while open_rows and (lanes[open_rows[-1]] != lane or ends[open_rows[-1]] <= start):
            rows.append(open_rows.pop())
            begins.append(False)

    for row in np.lexsort((-ends, starts, lanes)).tolist():
        end_until(int(lanes[row]), int(starts[row]))
        open_rows.append(row)
        rows.append(row)
        begins.append(True)
    end_until(-1, 0)
    return np.asarray(rows, dtype=np.int64), np.asarray(begins, dtype=np.bool_)
