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

CHAIN_STRIDES = (16 * KIB, 64 * KIB, 256 * KIB, 2 * MIB, 8 * MIB, 32 * MIB)
GATHER_STRIDES = (2 * MIB,)
_LINE_BYTES = 128
# A gather of fewer places has many lanes of a warp in the same lines: it is fast for that, and no two probes agree.
_LEAST_PLACES = {"chain": 8, "gather": 128}
_MOST_PLACES = 65_536
_LEAST_STEPS = 2048  # of a chain in a launch: fewer would time the launch
_GATHERED = 1 << 22
_NUM_LAPS_BEFORE = 2
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
        sizes = footprints(gpu, pattern, stride, block.size_bytes)
        points = tuple(_point(gpu, pattern, stride, block, size) for size in sizes)
    except RuntimeError as error:
        return ReachCurve(pattern=pattern, stride_bytes=stride, why=reason_of(error))
    knee = knee_bytes([(point.footprint_bytes, point.step_ns) for point in points])
    return ReachCurve(pattern=pattern, stride_bytes=stride, points=points, knee_bytes=knee)


def footprints(gpu: Gpu, pattern: Pattern, stride: int, largest_bytes: int) -> list[int]:
    """Return powers of two whose places can all be visited in a launch.

    A cache line each, they stay in a quarter of the cache: no other miss is timed.
    """
    least_places = _LEAST_PLACES[pattern]
    most_places = max(min(gpu.machine.l2_bytes // 4 // _LINE_BYTES, _MOST_PLACES), least_places)
    sizes = []
    size = least_places * stride
    while size <= min(largest_bytes, most_places * stride):
        sizes.append(size)
        size *= 2
    return sizes


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


def tlb_of(curves: tuple[ReachCurve, ...]) -> Tlb | None:
    """Return the model that fits the chains; None where no two of them share a knee."""
    chains = [one for one in curves if one.pattern == "chain"]
    return fitted_tlb(
        [(one.stride_bytes, [(point.footprint_bytes, point.step_ns) for point in one.points]) for one in chains]
    )
