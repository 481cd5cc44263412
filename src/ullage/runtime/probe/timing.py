"""What repeated measurements come to: what is typical, and a spread."""

from __future__ import annotations

from dataclasses import dataclass, replace
from statistics import median
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_BUDGET_NS = 60_000_000
_MOST_BRIEF = 51
_QUICK = 10  # one round in as many is thought lucky, and one in any case


@dataclass(frozen=True, kw_only=True)
class Timing:
    """How long something took, in whole nanoseconds.

    Attributes:
        time_ns: The one that counts: of repetitions the median, of a round the least, of several rounds the least of the first
            that is not thought lucky. So of rounds it is less than `p10_ns`.
        p10_ns: What a tenth of the times are below; of several rounds, the median of theirs: a usual round's.
        p90_ns: What nine tenths of them are below; of several rounds, the median of theirs.
        num_timed: The number of times measured.
    """

    time_ns: int
    p10_ns: int
    p90_ns: int
    num_timed: int


def timing_of(times_ns: Sequence[float]) -> Timing:
    """Return the median and the spread of times; none is shorter than a nanosecond.

    Example:
        >>> timing_of([100.0, 110.0, 400.0]).time_ns
        110
    """
    p10, middle, p90 = (max(round(one), 1) for one in np.percentile(np.asarray(times_ns, np.float64), (10, 50, 90)))
    return Timing(time_ns=middle, p10_ns=p10, p90_ns=p90, num_timed=len(times_ns))


def quickest_of(times_ns: Sequence[float]) -> Timing:
    """Return the shortest of the times of a round, and their spread.

    Example:
        >>> quickest_of([100.0, 110.0, 400.0]).time_ns
        100
    """
    return replace(timing_of(times_ns), time_ns=max(round(min(times_ns)), 1))


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


def briefly(times_ns: Callable[[int], Sequence[float]], *, budget_ns: float, least: int) -> Timing:
    """Measure for one round as often as the budget allows, and count even the first where there are few.

    Args:
        times_ns: Measures that many times, and returns the times.
        budget_ns: About how long all may take.
        least: The smallest number of measurements, at least two.
    """
    first = list(times_ns(1))
    num = int(min(max(budget_ns / max(first[0], 1.0), least), _MOST_BRIEF)) - 1
    more = list(times_ns(num))
    return quickest_of(more if num >= least else first + more)


def undisturbed(rounds: Sequence[Timing]) -> Timing:
    """Join the timings of several rounds: what the quickest took, with the spread that is usual.

    What disturbs a measurement, other work on the host or a block's place in its memory, makes it slower. Only what a cache
    still holds makes it faster, so that the quickest round does not count.

    Example:
        >>> undisturbed([quickest_of([time, 2 * time]) for time in (5.0, 9.0, 6.0, 30.0, 7.0)])
        Timing(time_ns=6, p10_ns=8, p90_ns=13, num_timed=10)
    """
    ordered = sorted(one.time_ns for one in rounds)
    num_lucky = min(max(len(ordered) // _QUICK, 1), len(ordered) - 1)
    return Timing(
        time_ns=ordered[num_lucky],
        p10_ns=round(median(one.p10_ns for one in rounds)),
        p90_ns=round(median(one.p90_ns for one in rounds)),
        num_timed=sum(one.num_timed for one in rounds),
    )


def bytes_per_s(size_bytes: int, time_ns: int) -> int:
    """Return a speed, rounded down.

    Args:
        size_bytes: How much.
        time_ns: In how long.

    Example:
        >>> bytes_per_s(4096, 2048)
        2000000000
    """
    return size_bytes * 1_000_000_000 // time_ns
