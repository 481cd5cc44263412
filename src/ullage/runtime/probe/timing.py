"""What repeated measurements come to: a median and a spread."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_BUDGET_NS = 60_000_000


@dataclass(frozen=True, kw_only=True)
class Timing:
    """How long something took, in whole nanoseconds.

    Attributes:
        median_ns: The median.
        p10_ns: What a tenth of the times are below.
        p90_ns: What nine tenths of them are below.
        num_timed: The number of times measured.
    """

    median_ns: int
    p10_ns: int
    p90_ns: int
    num_timed: int


def timing_of(times_ns: Sequence[float]) -> Timing:
    """Return the median and the spread of times; none is shorter than a nanosecond.

    Example:
        >>> timing_of([100.0, 110.0, 400.0]).median_ns
        110
    """
    p10, median, p90 = np.percentile(np.asarray(times_ns, dtype=np.float64), (10, 50, 90))
    return Timing(
        median_ns=max(round(median), 1), p10_ns=max(round(p10), 1), p90_ns=max(round(p90), 1), num_timed=len(times_ns)
    )


def repeated(
    times_ns: Callable[[int], Sequence[float]], *, budget_ns: float = _BUDGET_NS, least: int = 7, most: int = 101
) -> Timing:
    """Measure as often as the budget allows.

    Args:
        times_ns: Measures that many times, and returns the times.
        budget_ns: About how long all may take.
        least: The smallest number of measurements.
        most: The largest.

    Cost: two measurements more, which warm up.
    """
    one_ns = max(times_ns(2)[-1], 1.0)
    return timing_of(times_ns(int(min(max(budget_ns / one_ns, least), most))))


def median_of(timings: Sequence[Timing]) -> Timing:
    """Return the median of several timings' medians, with the spread of all.

    Example:
        >>> median_of([timing_of([5.0]), timing_of([9.0]), timing_of([6.0])])
        Timing(median_ns=6, p10_ns=5, p90_ns=9, num_timed=3)
    """
    ordered = sorted(one.median_ns for one in timings)
    return Timing(
        median_ns=ordered[len(ordered) // 2],
        p10_ns=min(one.p10_ns for one in timings),
        p90_ns=max(one.p90_ns for one in timings),
        num_timed=sum(one.num_timed for one in timings),
    )


def bytes_per_s(size_bytes: int, timing: Timing) -> int:
    """Return a speed, from the median.

    Example:
        >>> bytes_per_s(4096, timing_of([2048.0]))
        2000000000
    """
    return size_bytes * 1_000_000_000 // timing.median_ns
