"""What repeated measurements come to: what is typical, and a spread."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import mean, median
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_BUDGET_NS = 60_000_000
_MOST_BRIEF = 51
_LUCKY = 10  # percent: so many of the times are thought lucky, in a round as among rounds


@dataclass(frozen=True, kw_only=True)
class Timing:
    """How long something took, in whole nanoseconds.

    Attributes:
        time_ns: The one that counts: of repetitions the median, of a round what a tenth of the times are below, of several
            rounds what a tenth of theirs are below. So of rounds it is less than `p10_ns`.
        p10_ns: What a tenth of the times are below; of several rounds, the median of theirs: a usual round's.
        p90_ns: What nine tenths of them are below; of several rounds, the median of theirs.
        num_timed: The number of times measured.
        drift_percent: By how many percent the slowest third of the rounds took longer than the quickest, thirds in the order in
            which they were made: how steady the machine was meanwhile. 0: not of rounds.
        shared_percent: In how many percent of the measurements something else worked on the host's core too; they do not count,
            unless nearly all are such. None: the core has no part in it, or was not looked at.
    """

    time_ns: int
    p10_ns: int
    p90_ns: int
    num_timed: int
    drift_percent: int = 0
    shared_percent: int | None = None

    def __post_init__(self) -> None:
        if self.time_ns < 1:
            raise ValueError(f"nothing takes {self.time_ns} ns")


def timing_of(times_ns: Sequence[float], was_free: Sequence[bool] | None = None, *, percent: int = 50) -> Timing:
    """Return which of the times counts, and their spread; none is shorter than a nanosecond.

    Args:
        times_ns: The times.
        was_free: For each whether the host's core did nothing else; only such count, where there are any. None: all of them.
        percent: How many in a hundred of those that count are below the one that does: the median.

    Example:
        >>> timing_of([100.0, 110.0, 400.0]).time_ns
        110
        >>> timing_of([100.0, 110.0, 400.0], [True, False, True]).time_ns
        250
    """
    free = times_ns if was_free is None else [one for one, counts in zip(times_ns, was_free, strict=True) if counts]
    p10, p90 = np.percentile(times_ns, (10, 90))
    time_ns, p10_ns, p90_ns = (max(round(one), 1) for one in (np.percentile(free or times_ns, percent), p10, p90))
    return Timing(
        time_ns=time_ns,
        p10_ns=p10_ns,
        p90_ns=p90_ns,
        num_timed=len(times_ns),
        shared_percent=None if was_free is None else round(100 * (1 - len(free) / len(times_ns))),
    )


def timing_of_round(times_ns: Sequence[float], was_free: Sequence[bool] | None = None) -> Timing:
    """Return which of the times of a round counts, and their spread: the least that are not thought lucky.

    Args:
        times_ns: The times.
        was_free: As of `timing_of`.

    Example:
        >>> timing_of_round([float(one) for one in range(100, 201)]).time_ns
        110
    """
    return timing_of(times_ns, was_free, percent=_LUCKY)


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
        least: The smallest number of measurements.
    """
    first = list(times_ns(1))
    num = int(min(max(budget_ns / max(first[0], 1.0), least), _MOST_BRIEF)) - 1
    more = list(times_ns(num))
    return timing_of_round(more if num >= least else first + more)


def timing_of_rounds(rounds: Sequence[Timing]) -> Timing:
    """Join the timings of several rounds: what the quick ones took, with the spread that is usual.

    What disturbs a measurement, other work on the host or a block's place in its memory, makes it slower, and most are
    disturbed somewhat: a quick one says what the memory gives. The very quickest is another each time. Rounds in which the core
    was never free are left out, unless fewer than a tenth are others.

    Example:
        >>> timing_of_rounds([timing_of_round([time]) for time in (50.0, 90.0, 60.0, 300.0, 70.0)])
        Timing(time_ns=54, p10_ns=70, p90_ns=70, num_timed=5, drift_percent=56, shared_percent=None)
    """
    free = [one.time_ns for one in rounds if one.shared_percent != 100]
    times = free if 100 * len(free) >= _LUCKY * len(rounds) else [one.time_ns for one in rounds]
    shared = [one.shared_percent for one in rounds if one.shared_percent is not None]
    thirds = [float(np.percentile(third, _LUCKY)) for third in np.array_split(times, 3) if len(third)]
    return Timing(
        time_ns=round(np.percentile(times, _LUCKY)),
        p10_ns=round(median(one.p10_ns for one in rounds)),
        p90_ns=round(median(one.p90_ns for one in rounds)),
        num_timed=sum(one.num_timed for one in rounds),
        drift_percent=round(100 * (max(thirds) / min(thirds) - 1)),
        shared_percent=round(mean(shared)) if shared else None,
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
