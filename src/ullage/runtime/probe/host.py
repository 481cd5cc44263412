"""The host's memory alone: copies within it, and what the first touch of a page costs."""

from __future__ import annotations

import mmap
import time
from typing import TYPE_CHECKING

import numpy as np

from ullage.runtime.probe.result import HostFigures, Sample
from ullage.runtime.probe.timing import repeated, timing_of
from ullage.units import KIB, MIB

if TYPE_CHECKING:
    from numpy.typing import NDArray

_SIZES = tuple(4 * KIB * 4**step for step in range(9))
_TOUCHED_BYTES = 64 * MIB
_NUM_TOUCHED = 7


def measure_host() -> HostFigures:
    """Measure copies of 4 KiB to 256 MiB by one thread, and fresh pages."""
    return HostFigures(copies=_copies(), first_touch=_first_touch(), page_bytes=mmap.PAGESIZE)


def _copies() -> tuple[Sample, ...]:
    try:
        source = np.ones(_SIZES[-1], np.uint8)
        target = np.ones(_SIZES[-1], np.uint8)
    except MemoryError:
        return tuple(Sample(name="copy", size_bytes=size, why="the host has too little memory") for size in _SIZES)
    return tuple(_copy(target[:size], source[:size]) for size in _SIZES)


def _copy(target: NDArray[np.uint8], source: NDArray[np.uint8]) -> Sample:
    num_runs = max(MIB // len(source), 1)

    def times(num: int) -> list[float]:
        found = []
        for _ in range(num):
            start = time.perf_counter_ns()
            for _ in range(num_runs):
                np.copyto(target, source)
            found.append((time.perf_counter_ns() - start) / num_runs)
        return found

    timing = repeated(times, budget_ns=60_000_000 / num_runs)
    return Sample(name="copy", size_bytes=len(source), timing=timing)


def _first_touch() -> Sample:
    times = []
    try:
        for _ in range(_NUM_TOUCHED):
            with mmap.mmap(-1, _TOUCHED_BYTES) as fresh:
                pages = np.frombuffer(fresh, np.uint8)[:: mmap.PAGESIZE]
                start = time.perf_counter_ns()
                pages[:] = 1
                times.append(time.perf_counter_ns() - start)
                del pages  # a mapping in use cannot be closed
    except (OSError, MemoryError) as error:
        return Sample(name="first_touch", size_bytes=_TOUCHED_BYTES, why=str(error))
    return Sample(name="first_touch", size_bytes=_TOUCHED_BYTES, timing=timing_of(times[1:]))
