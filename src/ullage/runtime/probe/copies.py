"""Copies between host and GPU, from 4 KiB to 256 MiB."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ullage.runtime.probe.gpu import reason_of
from ullage.runtime.probe.parts import Walk, in_turn
from ullage.runtime.probe.result import CopyCurve, CopyKind, CopyPoint, Direction
from ullage.runtime.probe.timing import briefly, timing_of_round

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ullage.runtime.probe.core import CoreWatch
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


@dataclass(frozen=True, kw_only=True)
class _Way:
    """A way to copy: what comes next in a block of the host's memory, to a block of the GPU's or from it."""

    gpu: Gpu
    kind: CopyKind
    direction: Direction
    host: Walk
    device: Block

    def copies(self, size_bytes: int, num: int) -> Run:
        """Prepare that many copies, of which each call makes the next."""
        parts = [self.host.take(size_bytes) for _ in range(num)]
        if self.direction == "to_gpu":
            return in_turn([self.gpu.copying(self.device, part, size_bytes) for part in parts])
        return in_turn([self.gpu.copying(part, self.device, size_bytes) for part in parts])


def measure_copies(gpu: Gpu, kinds: Sequence[CopyKind], sizes: Sizes, watch: CoreWatch) -> tuple[CopyCurve, ...]:
    """Measure copies both ways briefly, for one round, whose size of half speed says nothing yet.

    Each copy takes what comes next in a block of the host's memory.

    Args:
        gpu: The GPU.
        kinds: The kinds of host memory.
        sizes: Of copies and blocks.
        watch: Tells which of the host's own copies count.
    """
    return tuple(curve for kind in kinds for curve in _curves(gpu, kind, sizes, watch))


def _curves(gpu: Gpu, kind: CopyKind, sizes: Sizes, watch: CoreWatch) -> list[CopyCurve]:
    blocks: list[Block] = []
    try:
        blocks.append(gpu.allocate(kind, sizes.block(kind)))
        blocks.append(gpu.allocate("torch", sizes.copies[-1]))
        gpu.touching(blocks[0])()
        host, device = blocks
        ways = [
            _Way(gpu=gpu, kind=kind, direction=direction, host=Walk(host), device=device) for direction in _DIRECTIONS
        ]
        return [_curve(way, sizes.copies, watch) for way in ways]
    except RuntimeError as error:
        return [CopyCurve(kind=kind, direction=direction, why=reason_of(error)) for direction in _DIRECTIONS]
    finally:
        for block in blocks:
            gpu.free(block)


def _curve(way: _Way, sizes: Sequence[int], watch: CoreWatch) -> CopyCurve:
    points = tuple(_point(way, size, watch) for size in sizes)
    return CopyCurve(kind=way.kind, direction=way.direction, points=points)


def _point(way: _Way, size: int, watch: CoreWatch) -> CopyPoint:
    num_runs = max(min(_RUNS_BYTES // size, _MOST_RUNS), 1)
    # The host itself copies pageable memory, so it cannot queue such copies ahead of the GPU.
    is_queued = way.kind == "pinned"

    def stream_ns(num: int, before: Run | None = None) -> list[float]:
        run = way.copies(size, num * num_runs)
        return way.gpu.device_ns(run, num, num_runs=num_runs, before=before, is_queued=is_queued)

    if size < LARGE_COPY:
        in_stream = briefly(stream_ns, budget_ns=_STREAM_NS, least=_LEAST)
    elif is_queued:
        in_stream = timing_of_round(stream_ns(way.host.num_parts(size)))
    else:
        times, loops = watch.timed(lambda look: stream_ns(way.host.num_parts(size), look))
        in_stream = timing_of_round(times, watch.was_free(loops))
    return CopyPoint(
        size_bytes=size,
        latency=briefly(lambda num: way.gpu.host_ns(way.copies(size, num), num), budget_ns=_LATENCY_NS, least=1),
        in_stream=in_stream,
    )
