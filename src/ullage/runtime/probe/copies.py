"""Copies between host and GPU, from 4 KiB to 256 MiB."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ullage.runtime.probe.gpu import reason_of
from ullage.runtime.probe.parts import Walk, in_turn
from ullage.runtime.probe.result import CopyCurve, CopyKind, CopyPoint, Direction
from ullage.runtime.probe.timing import briefly, timing_of_round

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ullage.runtime.probe.gpu import Block, Gpu, Run
    from ullage.runtime.probe.sizes import Sizes

LARGE_COPY = 64 << 20
"""From this size on, about a layer's matrix, a copy says how fast memory is: the whole block is gone through."""

_DIRECTIONS: tuple[Direction, ...] = ("to_gpu", "to_host")
_RUNS_BYTES = 4 << 20  # small copies are timed many at once, up to about this much
_MOST_RUNS = 20
_LATENCY_NS = 4_000_000  # for a size in a round
_STREAM_NS = 6_000_000
_LEAST = 2  # measurements of a speed; of a latency one does


def measure_copies(gpu: Gpu, kinds: Sequence[CopyKind], sizes: Sizes) -> tuple[CopyCurve, ...]:
    """Measure copies both ways briefly, for one round, whose size of half speed says nothing yet.

    Each copy takes what comes next in a block of the host's memory.

    Args:
        gpu: The GPU.
        kinds: The kinds of host memory.
        sizes: Of copies and blocks.
    """
    return tuple(curve for kind in kinds for curve in _curves(gpu, kind, sizes))


def _curves(gpu: Gpu, kind: CopyKind, sizes: Sizes) -> list[CopyCurve]:
    blocks: list[Block] = []
    try:
        blocks.append(gpu.allocate(kind, sizes.block(kind)))
        blocks.append(gpu.allocate("torch", sizes.copies[-1]))
        gpu.touching(blocks[0])()
        host, device = blocks
        return [_curve(gpu, kind, direction, Walk(host), device, sizes.copies) for direction in _DIRECTIONS]
    except RuntimeError as error:
        return [CopyCurve(kind=kind, direction=direction, why=reason_of(error)) for direction in _DIRECTIONS]
    finally:
        for block in blocks:
            gpu.free(block)


def _curve(
    gpu: Gpu, kind: CopyKind, direction: Direction, walk: Walk, device: Block, sizes: Sequence[int]
) -> CopyCurve:
    points = tuple(_point(gpu, kind, direction, walk, device, size) for size in sizes)
    return CopyCurve(kind=kind, direction=direction, points=points)


def _point(gpu: Gpu, kind: CopyKind, direction: Direction, walk: Walk, device: Block, size: int) -> CopyPoint:
    num_runs = max(min(_RUNS_BYTES // size, _MOST_RUNS), 1)
    # The host itself copies pageable memory, so it cannot queue such copies ahead of the GPU.
    is_queued = kind == "pinned"

    def copies(num: int) -> Run:
        parts = [walk.take(size) for _ in range(num)]
        if direction == "to_gpu":
            return in_turn([gpu.copying(device, part, size) for part in parts])
        return in_turn([gpu.copying(part, device, size) for part in parts])

    def stream_ns(num: int) -> list[float]:
        return gpu.device_ns(copies(num * num_runs), num, num_runs=num_runs, is_queued=is_queued)

    if size >= LARGE_COPY:
        in_stream = timing_of_round(stream_ns(walk.num_parts(size)))
    else:
        in_stream = briefly(stream_ns, budget_ns=_STREAM_NS, least=_LEAST)
    return CopyPoint(
        size_bytes=size,
        latency=briefly(lambda num: gpu.host_ns(copies(num), num), budget_ns=_LATENCY_NS, least=1),
        in_stream=in_stream,
    )
