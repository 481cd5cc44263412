"""What an access costs as the range of addresses grows: where the TLB's reach ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ullage.runtime.probe.curves import Tlb, fitted_tlb, knee_bytes
from ullage.runtime.probe.gpu import reason_of
from ullage.runtime.probe.result import Pattern, ReachCurve, ReachPoint
from ullage.runtime.probe.timing import timing_of
from ullage.units import KIB, MIB

if TYPE_CHECKING:
    from ullage.runtime.probe.gpu import Block, Gpu

CHAIN_STRIDES = (256 * KIB, 2 * MIB, 8 * MIB, 32 * MIB)
GATHER_STRIDES = (2 * MIB,)
_LINE_BYTES = 128
_LEAST_PLACES = 8
_ACCESSES = {"chain": 2048, "gather": 1 << 22}
_NUM_TIMED = 7


def measure_reach(gpu: Gpu, largest_bytes: int) -> tuple[ReachCurve, ...]:
    """Measure chains of several strides, and gathers.

    Args:
        gpu: The GPU.
        largest_bytes: The largest footprint, a power of two.
    """
    wanted: list[tuple[Pattern, int]] = [
        *(("chain", stride) for stride in CHAIN_STRIDES),
        *(("gather", stride) for stride in GATHER_STRIDES),
    ]
    try:
        block = gpu.allocate("torch", largest_bytes)
    except RuntimeError as error:
        return tuple(ReachCurve(pattern=one, stride_bytes=stride, why=reason_of(error)) for one, stride in wanted)
    try:
        return tuple(_curve(gpu, pattern, stride, block) for pattern, stride in wanted)
    finally:
        gpu.free(block)


def _curve(gpu: Gpu, pattern: Pattern, stride: int, block: Block) -> ReachCurve:
    try:
        points = tuple(_point(gpu, pattern, stride, block, size) for size in footprints(gpu, stride, block.size_bytes))
    except RuntimeError as error:
        return ReachCurve(pattern=pattern, stride_bytes=stride, why=reason_of(error))
    knee = knee_bytes([(point.footprint_bytes, point.step_ns) for point in points])
    return ReachCurve(pattern=pattern, stride_bytes=stride, points=points, knee_bytes=knee)


def footprints(gpu: Gpu, stride: int, largest_bytes: int) -> list[int]:
    """Return powers of two whose places, a cache line each, stay in a quarter of the cache: no other miss is timed."""
    most_places = max(gpu.machine.l2_bytes // 4 // _LINE_BYTES, _LEAST_PLACES)
    sizes = []
    size = _LEAST_PLACES * stride
    while size <= min(largest_bytes, most_places * stride):
        sizes.append(size)
        size *= 2
    return sizes


def _point(gpu: Gpu, pattern: Pattern, stride: int, block: Block, footprint: int) -> ReachPoint:
    num_accesses = _ACCESSES[pattern]
    run = gpu.accessing(pattern, block, footprint, stride, num_accesses)
    gpu.device_ns(run, 2)
    timing = timing_of(gpu.device_ns(run, _NUM_TIMED))
    return ReachPoint(footprint_bytes=footprint, num_accesses=num_accesses, timing=timing)


def tlb_of(curves: tuple[ReachCurve, ...]) -> Tlb | None:
    """Return the model that fits the chains; None where they have no knee."""
    chains = [one for one in curves if one.pattern == "chain"]
    return fitted_tlb(
        [(one.stride_bytes, [(point.footprint_bytes, point.step_ns) for point in one.points]) for one in chains]
    )
