"""What curves of measurements say: the size of half speed, the knee, and the model of a TLB that fits them.

The model: a TLB with `num_entries` entries, each for a page of `page_bytes`, reaches their product. Within it an access costs
`hit`; beyond it a share 1 - reach / footprint of accesses misses, and costs `miss` more. Where places lie further apart than a
page, each takes an entry, and the reach is as many strides as there are entries.

    cost | hit                     ____------ hit + miss
         |____________________.---'
         +--------------------|------------------ footprint
                            reach
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

KNEE = 1.5
"""An access that costs this many times the least is beyond the knee."""

_REACHES_PER_OCTAVE = 16
_FINER = 33  # reaches between two of those, on both sides
_LEAST_MISS = 0.1  # of a hit: less is no miss
_LEAST_GAIN = 2.0  # a model without misses has errors this many times as large, or there is none with
_LEAST_PLACES = 4  # with fewer entries than this, the reach is one of places


@dataclass(frozen=True, kw_only=True)
class Tlb:
    """The simplest TLB that explains how the curves of one pattern rise.

    Attributes:
        pattern: "chain" or "gather": what was measured.
        page_bytes: What an entry is for.
        num_entries: How many there are.
        reach_bytes: Their product.
        hit_ps: What an access costs within that, in picoseconds.
        miss_ps: What a miss adds, in picoseconds.
        error_percent: The root mean square of the model's errors, in per cent of what was measured.
    """

    pattern: str
    page_bytes: int
    num_entries: int
    reach_bytes: int
    hit_ps: int
    miss_ps: int
    error_percent: int


def half_speed_bytes(points: Sequence[tuple[int, float]]) -> int | None:
    """Return the size at which the speed first is half of the largest, between two points on a log-log line.

    Larger sizes may be slower again: those that leave the host's cache are.

    Args:
        points: Sizes, ascending, with their speeds.

    Returns:
        The smallest size measured, where it is fast enough; None for no points.

    Example:
        >>> half_speed_bytes([(1000, 1.0), (4000, 4.0), (16000, 4.0)])
        2000
    """
    if not points:
        return None
    wanted = max(speed for _, speed in points) / 2
    index = next(index for index, (_, speed) in enumerate(points) if speed >= wanted)
    if index == 0:
        return points[0][0]
    (low, slow), (high, fast) = points[index - 1], points[index]
    share = math.log(wanted / slow) / math.log(fast / slow)
    return round(low * math.exp(share * math.log(high / low)))


def knee_bytes(points: Sequence[tuple[int, float]], times: float = KNEE) -> int | None:
    """Return the footprint from which on a step costs this many times the least; between two points on a log scale.

    Args:
        points: Footprints, ascending, with what a step costs.
        times: How many times.

    Returns:
        None where the largest footprint is cheaper than that.

    Example:
        >>> knee_bytes([(1000, 100.0), (2000, 100.0), (8000, 200.0)])
        4000
    """
    if len(points) < 2:
        return None
    wanted = times * min(cost for _, cost in points)
    index = _first_for_good([cost >= wanted for _, cost in points])
    if index in (0, len(points)):
        return None
    (low, cheap), (high, dear) = points[index - 1], points[index]
    share = (wanted - cheap) / (dear - cheap)
    return round(low * math.exp(share * math.log(high / low)))


def _first_for_good(flags: Sequence[bool]) -> int:
    """Return the first index from which on all flags are set, so that no single odd point counts."""
    index = len(flags)
    while index and flags[index - 1]:
        index -= 1
    return index


def fitted_tlb(pattern: str, curves: Sequence[tuple[int, Sequence[tuple[int, float]]]]) -> Tlb | None:
    """Fit the model to the curves of several strides at once.

    The page is one of the strides: the longest that has the first ones' reach. Where it is the first or the last of all, that
    one's reach is all that is known, or it hangs on the number of places alone, and there is no model.

    Args:
        pattern: What was measured.
        curves: Strides, ascending, with their points: footprints, ascending, and the nanoseconds of a step.

    Returns:
        None where the curves do not rise, or show no page.
    """
    known = [(stride, np.array(points, dtype=np.float64).T) for stride, points in curves if len(points) > 2]
    if len(known) < 3:
        return None
    near = _nearest_of_all(known)
    finer = near.reach * np.geomspace(2 ** (-1 / _REACHES_PER_OCTAVE), 2 ** (1 / _REACHES_PER_OCTAVE), _FINER)
    best = _nearest(known, near.page, finer)
    flat = _nearest(known, known[0][0], np.array([math.inf]))
    is_better = flat.error > _LEAST_GAIN * best.error and best.miss > _LEAST_MISS * best.hit
    if not is_better or best.page in (known[0][0], known[-1][0]) or best.reach < _LEAST_PLACES * best.page:
        return None
    return Tlb(
        pattern=pattern,
        page_bytes=best.page,
        num_entries=round(best.reach / best.page),
        reach_bytes=round(best.reach),
        hit_ps=round(1000 * best.hit),
        miss_ps=round(1000 * best.miss),
        error_percent=round(100 * best.error),
    )


@dataclass(frozen=True, kw_only=True)
class _Model:
    page: int
    reach: float
    hit: float
    miss: float
    error: float


def _nearest_of_all(curves: Sequence[tuple[int, NDArray[np.float64]]]) -> _Model:
    """Return the nearest model, whatever its page and its reach."""
    least = min(points[0][0] for _, points in curves)
    most = max(points[0][-1] for _, points in curves)
    reaches = np.geomspace(least, most, int(math.log2(most / least) * _REACHES_PER_OCTAVE) + 1)
    return min((_nearest(curves, page, reaches) for page, _ in curves), key=lambda one: one.error)


def _nearest(curves: Sequence[tuple[int, NDArray[np.float64]]], page: int, reaches: NDArray[np.float64]) -> _Model:
    """Return the nearest model with this page and one of these reaches. A miss adds the same for all; a hit is each curve's.

    Squares of relative errors are least: with weights 1 / cost squared, each curve's hit is a mean, and the rest is linear.
    """
    rises, above = np.zeros((2, len(reaches)))
    parts = []
    for stride, (footprints, costs) in curves:
        share = np.maximum(1 - np.outer(reaches * max(stride / page, 1), 1 / footprints), 0)  # a row for each reach
        weights = costs**-2
        mean_share, mean_cost = np.average(share, 1, weights), np.average(costs, weights=weights)
        centred = share - mean_share[:, None]
        rises += centred @ (weights * (costs - mean_cost))
        above += centred**2 @ weights
        parts.append((share, costs, mean_share, mean_cost))
    miss = np.maximum(np.divide(rises, above, out=np.zeros_like(rises), where=above > 0), 0)
    hits = np.array([cost - miss * share for _, _, share, cost in parts])
    squares = [
        ((hit[:, None] + miss[:, None] * share) / costs - 1) ** 2
        for hit, (share, costs, _, _) in zip(hits, parts, strict=True)
    ]
    errors = np.sqrt(np.mean(np.concatenate(squares, 1), 1))
    best = int(np.argmin(errors))
    return _Model(
        page=page,
        reach=float(reaches[best]),
        hit=float(np.mean(hits[:, best])),
        miss=float(miss[best]),
        error=float(errors[best]),
    )
