"""What repeated measurements come to: what is typical, and a spread."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_BUDGET_NS = 60_000_000
_MOST_BRIEF = 51
_QUICK = 5  # one round in as many, or more, is not disturbed


@dataclass(frozen=True, kw_only=True)
class Timing:
    """How long something took, in whole nanoseconds.

    Attributes:
        typical_ns: The median; of several rounds, the `p10_ns` of a round which a fifth of them undercut.
        p10_ns: What a tenth of the times are below; of several rounds, the least of theirs.
        p90_ns: What nine tenths of them are below; of several rounds, the largest of theirs.
        num_timed: The number of times measured.
    """

    typical_ns: int
    p10_ns: int
    p90_ns: int
    num_timed: int


def timing_of(times_ns: Sequence[float]) -> Timing:
    """Return the median and the spread of times; none is shorter than a nanosecond.

    Example:
        >>> timing_of([100.0, 110.0, 400.0]).typical_ns
        110
    """
    p10, median, p90 = np.percentile(np.asarray(times_ns, dtype=np.float64), (10, 50, 90))
    return Timing(
        typical_ns=max(round(median), 1), p10_ns=max(round(p10), 1), p90_ns=max(round(p90), 1), num_timed=len(times_ns)
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


def briefly(times_ns: Callable[[int], Sequence[float]], *, budget_ns: float, least: int) -> Timing:
    """Measure as often as the budget allows, and count even the first where there are few.

    Args:
        times_ns: Measures that many times, and returns the times.
        budget_ns: About how long all may take.
        least: The smallest number of measurements, at least two.
    """
    first = list(times_ns(1))
    num = int(min(max(budget_ns / max(first[0], 1.0), least), _MOST_BRIEF)) - 1
    more = list(times_ns(num))
    return timing_of(more if num >= least else first + more)


def undisturbed(rounds: Sequence[Timing]) -> Timing:
    """Join the timings of several rounds: what the quicker ones took, with the spread of all.

    What disturbs a measurement, other work on the host or a block's place in its memory, makes it slower, never faster.

    Example:
        >>> undisturbed([timing_of([time]) for time in (5.0, 9.0, 6.0, 30.0, 7.0)])
        Timing(typical_ns=6, p10_ns=5, p90_ns=30, num_timed=5)
    """
    ordered = sorted(one.p10_ns for one in rounds)
    return Timing(
        typical_ns=ordered[len(ordered) // _QUICK],
        p10_ns=min(one.p10_ns for one in rounds),
        p90_ns=max(one.p90_ns for one in rounds),
        num_timed=sum(one.num_timed for one in rounds),
    )


def bytes_per_s(size_bytes: int, timing: Timing) -> int:
    """Return a speed, from what is typical.

    Example:
        >>> bytes_per_s(4096, timing_of([2048.0]))
        2000000000
    """
    return size_bytes * 1_000_000_000 // timing.typical_ns
