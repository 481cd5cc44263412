"""Whether what measures has its core to itself: the core is free, or shared.

A core runs two threads at once. While the other one works, of this machine or of a neighbour that a virtual machine does not
show, this one is slower: on an H200's host a loop took 60 or 105 µs, and a copy of 64 MiB of pageable memory 8.2 or 10.2 ms.
"""

from __future__ import annotations

import time
from itertools import pairwise
from typing import TYPE_CHECKING, TypeVar

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ullage.runtime.probe.gpu import Run

T = TypeVar("T")

_STEPS = 2_000  # of a loop, about 0.1 ms
_NUM_FIRST = 100  # before the first measurement
_QUICK = 2  # percent: what so many of the loops are below, a free core takes
_FREE = 1.3  # of that; a shared core's loop takes 1.6 to 1.9


def loop_ns() -> float:
    """Time a short loop, always the same, which stays within the core."""
    start, total = time.perf_counter_ns(), 0
    for step in range(_STEPS):
        total += step
    return float(time.perf_counter_ns() - start)


def longest_free_ns(loops_ns: Sequence[float]) -> float:
    """Return how long a loop takes at most while the core does nothing else.

    Args:
        loops_ns: What loops took, of which some found the core free.
    """
    return _FREE * float(np.percentile(loops_ns, _QUICK))


class CoreWatch:
    """Tells which measurements were made by a core that did nothing else.

    Args:
        loop_ns: Times a short loop.
    """

    def __init__(self, loop_ns: Callable[[], float] = loop_ns) -> None:
        self._loop_ns = loop_ns
        self._loops = [loop_ns() for _ in range(_NUM_FIRST)]

    def timed(self, measure: Callable[[Run], Sequence[T]]) -> tuple[Sequence[T], list[float]]:
        """Measure, and time the loop before each measurement and after the last.

        Args:
            measure: Measures, calls what it is given before each measurement, and returns what it measured.

        Returns:
            That, and for each measurement the longer of the loops before and after it.
        """
        begin = len(self._loops)
        found = measure(self._look)
        self._look()
        around = self._loops[begin:]
        return found, [max(pair) for pair in pairwise(around)]

    def was_free(self, loops_ns: Sequence[float]) -> list[bool]:
        """Return for each measurement whether the core did nothing else, by all loops until now.

        Args:
            loops_ns: The longer of the loops beside each.
        """
        longest = longest_free_ns(self._loops)
        return [one <= longest for one in loops_ns]

    def _look(self) -> None:
        self._loops.append(self._loop_ns())
