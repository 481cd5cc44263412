"""Copies and kinds of memory, measured in rounds: fresh blocks each time, spread over the time that a probe takes.

What the host has a part in is disturbed: by where the system puts a block, by what caches hold of it, and by what else runs,
on the same core above all. So each round goes through a large block, part by part, many rounds are made, and what was measured
while the core had other work does not count. What the link or the GPU alone decides is steady, and is measured in some of the
rounds, in smaller blocks.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from ullage.runtime.probe.copies import measure_copies
from ullage.runtime.probe.curves import half_speed_bytes
from ullage.runtime.probe.kinds import REACHED_KINDS, copied_kind, measure_reached_kinds
from ullage.runtime.probe.result import CopyCurve, CopyKind, CopyPoint, Kind, KindFigures, Sample
from ullage.runtime.probe.timing import timing_of_rounds

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ullage.runtime.probe.core import CoreWatch
    from ullage.runtime.probe.gpu import Gpu
    from ullage.runtime.probe.sizes import Sizes

T = TypeVar("T")

_MOST, _LEAST = 64, 6
_BUDGET_S = 38
_COPIES: dict[CopyKind, int] = {"pageable": 1, "pinned": 5}
"""In how many rounds each is measured once; the less the host has to do, the steadier."""
_KINDS: dict[Kind, int] = {"pageable_in_place": 1, "managed_by_fault": 1, "managed_prefetched": 2, "mapped": 5}


def measure_rounds(
    gpu: Gpu, sizes: Sizes, watch: CoreWatch, say: Callable[[str], None]
) -> tuple[tuple[CopyCurve, ...], tuple[KindFigures, ...]]:
    """Measure copies, and the kinds of memory that the host has a part in.

    Args:
        gpu: The GPU.
        sizes: Of copies and blocks.
        watch: Tells which measurements count.
        say: Told which round is next. How long that takes is not of the budget.

    Returns:
        A curve for each kind of copy and direction, and each kind's figures.
    """
    copies: dict[tuple[str, str], list[CopyCurve]] = {}
    kinds: dict[Kind, list[KindFigures]] = {kind: [] for kind, _ in REACHED_KINDS}
    num_rounds, spent = 0, 0.0
    while num_rounds < _LEAST or (num_rounds < _MOST and spent < _BUDGET_S):
        say(f"copies and kinds of memory, round {num_rounds + 1}")
        start = time.monotonic()
        for curve in measure_copies(gpu, _due(_COPIES, num_rounds), sizes, watch):
            copies.setdefault((curve.kind, curve.direction), []).append(curve)
        for one in measure_reached_kinds(gpu, _due(_KINDS, num_rounds), sizes, watch):
            kinds[one.kind].append(one)
        num_rounds += 1
        spent += time.monotonic() - start
    curves = {key: _joined_curve(found) for key, found in copies.items()}
    copied = (copied_kind(kind, curves[kind, "to_gpu"], curves[kind, "to_host"]) for kind in _COPIES)
    return tuple(curves.values()), (*copied, *map(_joined_kind, kinds.values()))


def _due(kinds: dict[T, int], num_rounds: int) -> list[T]:
    """Return what is measured in the next round."""
    return [kind for kind, every in kinds.items() if num_rounds % every == 0]


def _joined_curve(rounds: Sequence[CopyCurve]) -> CopyCurve:
    if any(one.why for one in rounds):
        return next(one for one in rounds if one.why)
    points = tuple(
        CopyPoint(
            size_bytes=found[0].size_bytes,
            latency=timing_of_rounds([one.latency for one in found]),
            in_stream=timing_of_rounds([one.in_stream for one in found]),
        )
        for found in zip(*(one.points for one in rounds), strict=True)
    )
    half = half_speed_bytes([(point.size_bytes, point.bytes_per_s) for point in points])
    return replace(rounds[0], points=points, half_speed_bytes=half)


def _joined_kind(rounds: Sequence[KindFigures]) -> KindFigures:
    if any(one.why for one in rounds):
        return next(one for one in rounds if one.why)
    return replace(
        rounds[0],
        first_read=_joined_sample([one.first_read for one in rounds]),
        read=_joined_sample([one.read for one in rounds]),
        write=_joined_sample([one.write for one in rounds]),
    )


def _joined_sample(rounds: Sequence[Sample | None]) -> Sample | None:
    there = [one for one in rounds if one is not None]
    if not there:
        return None
    return replace(there[0], timing=timing_of_rounds([one.timing for one in there if one.timing is not None]))
