"""What it costs to get memory and to give it back, by size."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

from ullage.runtime.probe.gpu import reason_of
from ullage.runtime.probe.result import AllocationCurve, AllocationPoint, Temperature, Way
from ullage.runtime.probe.timing import timing_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ullage.runtime.probe.core import CoreWatch
    from ullage.runtime.probe.gpu import Gpu, Run
    from ullage.runtime.probe.sizes import Sizes

WAYS: tuple[tuple[Way, Temperature], ...] = (
    ("cuda_malloc", "cold"),
    ("pool", "cold"),
    ("pool", "warm"),
    ("torch", "cold"),
    ("torch", "warm"),
    ("managed", "cold"),
    ("pinned", "cold"),
)
_NUM_PASSES = 3
_LEAST, _MOST = 2, 17  # in a pass
_BUDGET_S = 0.05  # for each size in a pass


def measure_allocations(gpu: Gpu, sizes: Sizes, watch: CoreWatch) -> tuple[AllocationCurve, ...]:
    """Measure each way; those that keep no memory are cold.

    Args:
        gpu: The GPU.
        sizes: Of allocations.
        watch: Tells which measurements count.
    """
    curves: dict[tuple[Way, Temperature], _Curve] = {
        (way, temperature): _Curve(sizes.host_allocations if way in ("pinned", "managed") else sizes.allocations)
        for way, temperature in WAYS
    }
    for _ in range(_NUM_PASSES):  # apart, since a core is shared for seconds at a time
        for (way, temperature), curve in curves.items():
            curve.measure(gpu, way, temperature, watch)
    return tuple(curve.result(way, temperature, watch) for (way, temperature), curve in curves.items())


class _Curve:
    """What allocations and frees of each size took, and the loops beside them."""

    def __init__(self, sizes: Sequence[int]) -> None:
        self._pairs: dict[int, list[tuple[float, float]]] = {size: [] for size in sizes}
        self._loops: dict[int, list[float]] = {size: [] for size in sizes}
        self._why: str | None = None

    def measure(self, gpu: Gpu, way: Way, temperature: Temperature, watch: CoreWatch) -> None:
        if self._why is not None:
            return
        try:
            for size, pairs in self._pairs.items():
                more, loops = watch.timed(partial(_pairs_of, gpu, way, temperature, size))
                pairs.extend(more)
                self._loops[size].extend(loops)
        except RuntimeError as error:
            self._why = reason_of(error)

    def result(self, way: Way, temperature: Temperature, watch: CoreWatch) -> AllocationCurve:
        if self._why is not None:
            return AllocationCurve(way=way, temperature=temperature, why=self._why)
        points = []
        for size, pairs in self._pairs.items():
            was_free = watch.was_free(self._loops[size])
            allocate, free = (timing_of(times, was_free) for times in zip(*pairs, strict=True))
            points.append(AllocationPoint(size_bytes=size, allocate=allocate, free=free))
        return AllocationCurve(way=way, temperature=temperature, points=tuple(points))


def _pairs_of(gpu: Gpu, way: Way, temperature: Temperature, size: int, look: Run) -> list[tuple[float, float]]:
    gpu.allocation_ns(way, temperature, size)  # fills what is warm
    pairs: list[tuple[float, float]] = []
    end = time.monotonic() + _BUDGET_S
    while len(pairs) < _LEAST or (len(pairs) < _MOST and time.monotonic() < end):
        look()
        pairs.append(gpu.allocation_ns(way, temperature, size))
    return pairs
