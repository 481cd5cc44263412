"""What an access costs as the range of addresses grows: where the TLB's reach ends."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ullage.runtime.probe.curves import Tlb, fitted_tlb, knee_bytes
from ullage.runtime.probe.gpu import reason_of
from ullage.runtime.probe.result import Pattern, ReachCurve, ReachPoint
from ullage.runtime.probe.timing import timing_of
from ullage.units import KIB, MIB

if TYPE_CHECKING:
    from ullage.runtime.probe.gpu import Block, Gpu

CHAIN_STRIDES = (256 * KIB, 2 * MIB, 8 * MIB, 16 * MIB, 32 * MIB, 64 * MIB)
GATHER_STRIDES = (128 * KIB, 512 * KIB, 2 * MIB, 4 * MIB, 8 * MIB, 16 * MIB, 32 * MIB, 64 * MIB)
_LINE_BYTES = 128
_LEAST_PLACES = 16
_MOST_PLACES = 65_536
_LEAST_STEPS = 2048  # of a chain in a launch: fewer would time the launch
_GATHERED = 1 << 22
_NUM_LAPS_BEFORE = 2
_NUM_TIMED = 7


def measure_reach(gpu: Gpu, largest_bytes: int) -> tuple[ReachCurve, ...]:
    """Measure chains of several strides, and gathers.

    Args:
        gpu: The GPU.
        largest_bytes: The largest footprint, a multiple of the longest stride where it is larger than that.
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
        sizes = footprints(gpu, stride, block.size_bytes)
        points = tuple(_point(gpu, pattern, stride, block, size) for size in sizes)
    except RuntimeError as error:
        return ReachCurve(pattern=pattern, stride_bytes=stride, why=reason_of(error))
    knee = knee_bytes([(point.footprint_bytes, point.step_ns) for point in points])
    return ReachCurve(pattern=pattern, stride_bytes=stride, points=points, knee_bytes=knee)


def footprints(gpu: Gpu, stride: int, largest_bytes: int) -> list[int]:
    """Return footprints, two an octave and the largest, whose places can all be visited in a launch.

    A cache line each, they stay in a quarter of the cache: no other miss is timed.
    """
    most_places = max(min(gpu.machine.l2_bytes // 4 // _LINE_BYTES, _MOST_PLACES), _LEAST_PLACES)
    most = min(largest_bytes // stride, most_places)
    wanted = {_LEAST_PLACES << octave for octave in range(most.bit_length())}
    wanted |= {3 * one // 2 for one in wanted} | {most}
    return [one * stride for one in sorted(wanted) if _LEAST_PLACES <= one <= most]


def _point(gpu: Gpu, pattern: Pattern, stride: int, block: Block, footprint: int) -> ReachPoint:
    """Time visits of places that were all visited before: the first visit of a place costs more than a miss does."""
    num_accesses = _whole_laps(footprint // stride) if pattern == "chain" else _GATHERED
    run = gpu.accessing(pattern, block, footprint, stride, num_accesses)
    gpu.device_ns(run, _NUM_LAPS_BEFORE)
    timing = timing_of(gpu.device_ns(run, _NUM_TIMED))
    return ReachPoint(footprint_bytes=footprint, num_accesses=num_accesses, timing=timing)


def _whole_laps(num_places: int) -> int:
    """Return the steps of as many whole laps as a launch needs."""
    return num_places * -(-_LEAST_STEPS // num_places)


def tlbs_of(curves: tuple[ReachCurve, ...]) -> tuple[Tlb, ...]:
    """Return the models that fit: of gathers, whose first level counts most, and of chains, which see the last one.

    Where a chain's reach ends, gathers rise a second time; what lies beyond is not of their first level.
    """
    chain = fitted_tlb("chain", _points(curves, "chain", None))
    gather = fitted_tlb("gather", _points(curves, "gather", chain))
    if gather is None and chain is not None:
        gather = fitted_tlb("gather", _points(curves, "gather", None))
    return tuple(one for one in (gather, chain) if one is not None)


def _points(
    curves: tuple[ReachCurve, ...], pattern: Pattern, within: Tlb | None
) -> list[tuple[int, list[tuple[int, float]]]]:
    most = math.inf if within is None else within.reach_bytes
    return [
        (
            curve.stride_bytes,
            [(one.footprint_bytes, one.step_ns) for one in curve.points if one.footprint_bytes <= most],
        )
        for curve in curves
        if curve.pattern == pattern
    ]
