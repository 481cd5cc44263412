"""Whether what measures has its core to itself.

A core runs two threads at once. While the other one works, of this machine or of a neighbour that a virtual machine does not
show, this one is slower: on an H200's host a loop took 60 or 105 µs, and a copy of 64 MiB of pageable memory 8.2 or 10.3 ms.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np

from ullage.runtime.probe.timing import Timing, timing_of_round

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ullage.runtime.probe.gpu import Run

_STEPS = 2_000  # of a loop, about 0.1 ms
_NUM_FIRST = 100  # looks that tell how long a loop takes, before the first measurement
_QUICK = 2  # percent: what so many of the looks are below took the core alone
_ALONE = 1.3  # of that; a shared core's loop takes 1.6 to 1.9


def loop_ns() -> float:
    """Time a short loop, always the same, which stays within the core."""
    start, total = time.perf_counter_ns(), 0
    for step in range(_STEPS):
        total += step
    return float(time.perf_counter_ns() - start)


class CoreWatch:
    """Tells which measurements of a round were made by a core that did nothing else.

    Args:
        loop_ns: Times a short loop.
    """

    def __init__(self, loop_ns: Callable[[], float]) -> None:
        self._loop_ns = loop_ns
        self._looks = [loop_ns() for _ in range(_NUM_FIRST)]

    def timing_of_round(self, measure: Callable[[Run], Sequence[float]]) -> Timing:
        """Measure, and count what was measured between two looks at a core that was free.

        Args:
            measure: Measures, calls what it is given before each measurement, and returns the times.
        """
        begin = len(self._looks)
        times = measure(self._look)
        self._look()
        looks = np.asarray(self._looks)
        around = np.maximum(looks[begin:-1], looks[begin + 1 :])
        return timing_of_round(times, list(around <= _ALONE * np.percentile(looks, _QUICK)))

    def _look(self) -> None:
        self._looks.append(self._loop_ns())
