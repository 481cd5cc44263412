"""Copies between host and GPU, from 4 KiB to 256 MiB."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ullage.runtime.probe.curves import half_speed_bytes
from ullage.runtime.probe.gpu import reason_of
from ullage.runtime.probe.result import CopyCurve, CopyKind, CopyPoint, Direction
from ullage.runtime.probe.timing import briefly

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ullage.runtime.probe.gpu import Block, Gpu
    from ullage.runtime.probe.timing import Timing

_DIRECTIONS: tuple[Direction, ...] = ("to_gpu", "to_host")
_RUNS_BYTES = 4 << 20  # small copies are timed many at once, up to about this much
_MOST_RUNS = 20
_ROUND_NS = 5_000_000  # for a size in a round
_LEAST = 2  # measurements


def measure_copies(gpu: Gpu, kinds: Sequence[CopyKind], sizes: Sequence[int]) -> tuple[CopyCurve, ...]:
    """Measure copies both ways briefly, for one round.

    Args:
        gpu: The GPU.
        kinds: The kinds of host memory.
        sizes: How much is copied, ascending.
    """
    return tuple(curve for kind in kinds for curve in _curves(gpu, kind, sizes))


def _curves(gpu: Gpu, kind: CopyKind, sizes: Sequence[int]) -> list[CopyCurve]:
    blocks: list[Block] = []
    try:
        blocks.append(gpu.allocate(kind, sizes[-1]))
        blocks.append(gpu.allocate("torch", sizes[-1]))
        gpu.touching(blocks[0])()
        host, device = blocks
        return [_curve(gpu, kind, direction, host, device, sizes) for direction in _DIRECTIONS]
    except RuntimeError as error:
        return [CopyCurve(kind=kind, direction=direction, why=reason_of(error)) for direction in _DIRECTIONS]
    finally:
        for block in blocks:
            gpu.free(block)


def _curve(
    gpu: Gpu, kind: CopyKind, direction: Direction, host: Block, device: Block, sizes: Sequence[int]
) -> CopyCurve:
    target, source = (device, host) if direction == "to_gpu" else (host, device)
    points = tuple(_point(gpu, kind, target, source, size) for size in sizes)
    half = half_speed_bytes([(point.size_bytes, point.bytes_per_s) for point in points])
    return CopyCurve(kind=kind, direction=direction, points=points, half_speed_bytes=half)


def _point(gpu: Gpu, kind: CopyKind, target: Block, source: Block, size: int) -> CopyPoint:
    run = gpu.copying(target, source, size)
    num_runs = max(min(_RUNS_BYTES // size, _MOST_RUNS), 1)
    # The host itself copies pageable memory, so it cannot queue such copies ahead of the GPU.
    is_queued = kind == "pinned"
    return CopyPoint(
        size_bytes=size,
        latency=_brief(lambda num: gpu.host_ns(run, num)),
        in_stream=_brief(lambda num: gpu.device_ns(run, num, num_runs=num_runs, is_queued=is_queued)),
    )


def _brief(times_ns: Callable[[int], Sequence[float]]) -> Timing:
    return briefly(times_ns, budget_ns=_ROUND_NS, least=_LEAST)
