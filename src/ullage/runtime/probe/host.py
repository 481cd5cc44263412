"""The host's memory alone: copies within it, and what the first touch of a page costs."""

from __future__ import annotations

import mmap
import time
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from ullage.runtime.probe.core import CoreWatch
from ullage.runtime.probe.result import HostFigures, Sample
from ullage.runtime.probe.timing import timing_of
from ullage.units import KIB, MIB

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ullage.runtime.probe.gpu import Run

_SIZES = tuple(4 * KIB * 4**step for step in range(9))
_NUM_ROUNDS = 12
_TIMED_BYTES = MIB  # small copies are timed many at once
_IN_ROUND_BYTES = 16 * MIB
_CACHED_BYTES = 16 * MIB  # up to this size a copy may find both of its blocks in caches
_MOST_IN_ROUND = 8
_TOUCHED_BYTES = 64 * MIB
_NUM_TOUCHED = 7


def measure_host() -> HostFigures:
    """Measure copies of 4 KiB to 256 MiB by one thread, and fresh pages."""
    watch = CoreWatch()
    return HostFigures(copies=_copies(watch), first_touch=_first_touch(watch), page_bytes=mmap.PAGESIZE)


def _copies(watch: CoreWatch) -> tuple[Sample, ...]:
    try:
        source = np.ones(_SIZES[-1], np.uint8)
        target = np.ones(_SIZES[-1], np.uint8)
    except MemoryError:
        return tuple(Sample(name="copy", size_bytes=size, why="the host has too little memory") for size in _SIZES)
    times: dict[int, list[float]] = {size: [] for size in _SIZES}
    loops: dict[int, list[float]] = {size: [] for size in _SIZES}
    for _ in range(_NUM_ROUNDS):  # of all sizes, since a core is shared for seconds at a time
        for size in _SIZES:
            more, beside = watch.timed(partial(_copies_ns, target[:size], source[:size]))
            times[size].extend(more)
            loops[size].extend(beside)
    return tuple(
        Sample(name="copy", size_bytes=size, timing=timing_of(times[size], watch.was_free(loops[size])))
        for size in _SIZES
    )


def _copies_ns(target: NDArray[np.uint8], source: NDArray[np.uint8], look: Run) -> list[float]:
    num_runs = max(_TIMED_BYTES // len(source), 1)
    for _ in range(2 if len(source) <= _CACHED_BYTES else 0):  # larger copies went before, and took its place in caches
        np.copyto(target, source)
    found = []
    for _ in range(min(max(_IN_ROUND_BYTES // len(source), 1), _MOST_IN_ROUND)):
        look()
        start = time.perf_counter_ns()
        for _ in range(num_runs):
            np.copyto(target, source)
        found.append((time.perf_counter_ns() - start) / num_runs)
    return found


def _first_touch(watch: CoreWatch) -> Sample:
    try:
        times, loops = watch.timed(_touches_ns)
    except (OSError, MemoryError) as error:
        return Sample(name="first_touch", size_bytes=_TOUCHED_BYTES, why=str(error))
    return Sample(name="first_touch", size_bytes=_TOUCHED_BYTES, timing=timing_of(times[1:], watch.was_free(loops[1:])))


def _touches_ns(look: Run) -> list[float]:
    times = []
    for _ in range(_NUM_TOUCHED):
        with mmap.mmap(-1, _TOUCHED_BYTES) as fresh:
            pages = np.frombuffer(fresh, np.uint8)[:: mmap.PAGESIZE]
            look()
            start = time.perf_counter_ns()
            pages[:] = 1
            times.append(float(time.perf_counter_ns() - start))
            del pages  # a mapping in use cannot be closed
    return times
