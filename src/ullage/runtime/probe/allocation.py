"""What it costs to get memory and to give it back, by size."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from ullage.runtime.probe.gpu import reason_of
from ullage.runtime.probe.result import AllocationCurve, AllocationPoint, Temperature, Way
from ullage.runtime.probe.timing import timing_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ullage.runtime.probe.gpu import Gpu
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
_LEAST, _MOST = 5, 51
_BUDGET_S = 0.15  # for each size


def measure_allocations(gpu: Gpu, sizes: Sizes) -> tuple[AllocationCurve, ...]:
    """Measure each way; those that keep no memory are cold."""
    return tuple(
        _curve(gpu, way, temperature, sizes.host_allocations if way in ("pinned", "managed") else sizes.allocations)
        for way, temperature in WAYS
    )


def _curve(gpu: Gpu, way: Way, temperature: Temperature, sizes: Sequence[int]) -> AllocationCurve:
    try:
        points = tuple(_point(gpu, way, temperature, size) for size in sizes)
    except RuntimeError as error:
        return AllocationCurve(way=way, temperature=temperature, why=reason_of(error))
    return AllocationCurve(way=way, temperature=temperature, points=points)


def _point(gpu: Gpu, way: Way, temperature: Temperature, size: int) -> AllocationPoint:
    for _ in range(2):  # the first fills what is warm
        gpu.allocation_ns(way, temperature, size)
    pairs: list[tuple[float, float]] = []
    end = time.monotonic() + _BUDGET_S
    while len(pairs) < _LEAST or (len(pairs) < _MOST and time.monotonic() < end):
        pairs.append(gpu.allocation_ns(way, temperature, size))
    allocations, frees = zip(*pairs, strict=True)
    return AllocationPoint(size_bytes=size, allocate=timing_of(allocations), free=timing_of(frees))
