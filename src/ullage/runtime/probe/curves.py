"""What curves of measurements say: the size of half speed, the knee, and the model of a TLB that fits it.

The model: a TLB with `num_entries` entries, each for a page of `page_bytes`, reaches their product. Within it an access costs
`hit`; beyond it a share 1 - reach / footprint of accesses misses, and costs `miss` more.

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

KNEE = 1.5
"""An access that costs this many times the least is beyond the knee."""

_REACHES_PER_OCTAVE = 16
_SAME_KNEE = 1.5  # two knees that are closer than this by their ratio are one


@dataclass(frozen=True, kw_only=True)
class Tlb:
    """The simplest TLB that explains the knees.

    Attributes:
        page_bytes: What an entry is for.
        num_entries: How many there are.
        reach_bytes: Their product.
        hit_ns: What an access costs within that.
        miss_ns: What a miss adds.
        error_percent: The root mean square of the model's errors, in per cent of what was measured.
    """

    page_bytes: int
    num_entries: int
    reach_bytes: int
    hit_ns: int
    miss_ns: int
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


def fitted_tlb(curves: Sequence[tuple[int, Sequence[tuple[int, float]]]]) -> Tlb | None:
    """Fit the model to the curves of several strides.

    A stride up to a page has the knee at the reach. Where it is longer than a page, each access takes an entry, and the knee
    comes at as many strides as there are entries. So the page is the longest stride with the first one's knee. A knee that no
    other stride shares says nothing of a page: it may come from the number of places.

    Args:
        curves: Strides, ascending, with their points: footprints and the nanoseconds of a step.

    Returns:
        None where no other stride shares the knee of the first that has one.
    """
    kneed = [(stride, points, knee) for stride, points in curves if (knee := knee_bytes(points)) is not None]
    if not kneed:
        return None
    first = kneed[0][2]
    sharing = [one for one in kneed if first / _SAME_KNEE <= one[2] <= first * _SAME_KNEE]
    if len(sharing) < 2:
        return None
    page, points, _ = sharing[-1]
    reach, hit, miss, error = _fitted(points)
    return Tlb(
        page_bytes=page,
        num_entries=max(round(reach / page), 1),
        reach_bytes=round(reach),
        hit_ns=round(hit),
        miss_ns=round(miss),
        error_percent=round(100 * error),
    )


def _fitted(points: Sequence[tuple[int, float]]) -> tuple[float, float, float, float]:
    """Return reach, hit, miss and the relative error of the model that is nearest to one curve."""
    footprints = np.array([footprint for footprint, _ in points], dtype=np.float64)
    costs = np.array([cost for _, cost in points])
    num_octaves = np.log2(footprints[-1] / footprints[0])
    best = (footprints[0], costs[0], 0.0, np.inf)
    for reach in np.geomspace(footprints[0], footprints[-1], int(num_octaves * _REACHES_PER_OCTAVE) + 1):
        share = np.maximum(1 - reach / footprints, 0)
        design = np.stack([np.ones_like(share), share], 1) / costs[:, None]
        (hit, miss), *_ = np.linalg.lstsq(design, np.ones_like(costs), rcond=None)
        error = float(np.sqrt(np.mean((design @ np.array([hit, miss]) - 1) ** 2)))
        if error < best[3]:
            best = (float(reach), float(hit), float(miss), error)
    return best
