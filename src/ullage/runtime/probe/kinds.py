"""What each kind of memory gives to a GPU that reads and writes a block of it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ullage.runtime.probe.copies import LARGE_COPY
from ullage.runtime.probe.gpu import reason_of
from ullage.runtime.probe.parts import in_turn, parts_of
from ullage.runtime.probe.result import CopyCurve, CopyKind, Kind, KindFigures, Sample
from ullage.runtime.probe.timing import briefly, repeated, timing_of, timing_of_round

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ullage.runtime.probe.core import CoreWatch
    from ullage.runtime.probe.gpu import Block, Gpu, MemoryKind, Run
    from ullage.runtime.probe.sizes import Sizes

_BUDGET_NS = 150_000_000
_ROUND_NS = 10_000_000  # of the budget in a round
_IN_ROUND = 2  # measurements of what is slow
_IN_PLACE_BYTES = 64 << 20
_FAULTED_PART = 64 << 20  # about a layer's matrix: the less a kernel touches, the faster its faults are served
_READ_PART = 128 << 20  # the larger, the less a launch counts

REACHED_KINDS: tuple[tuple[Kind, MemoryKind], ...] = (
    ("pageable_in_place", "pageable"),
    ("mapped", "mapped"),
    ("managed_by_fault", "managed"),
    ("managed_prefetched", "managed"),
)
_RESIDENT: tuple[tuple[Kind, MemoryKind], ...] = (("stream_ordered", "stream_ordered"), ("device", "device"))
NO_PAGEABLE_ACCESS = "this GPU cannot read pageable memory"
NO_PREFETCH = "this GPU cannot prefetch managed memory"


def measure_reached_kinds(gpu: Gpu, kinds: Sequence[Kind], sizes: Sizes, watch: CoreWatch) -> tuple[KindFigures, ...]:
    """Measure briefly kinds of the host's memory that a kernel reaches, or that move to it; one that fails says why.

    Args:
        gpu: The GPU.
        kinds: Which of `REACHED_KINDS`.
        sizes: Of blocks, which are gone through part by part.
        watch: Tells which measurements count of what the host has a part in; of mapped memory all do.
    """
    return tuple(
        _reached(gpu, kind, memory, sizes.block(memory), watch) for kind, memory in REACHED_KINDS if kind in kinds
    )


def copied_kind(kind: CopyKind, to_gpu: CopyCurve, to_host: CopyCurve) -> KindFigures:
    """Return what memory gives that is copied: copies of 64 MiB to the GPU are its reads, copies back its writes.

    Args:
        kind: The kind.
        to_gpu: Its copies to the GPU; each takes what the host wrote before.
        to_host: Its copies back.
    """
    if not to_gpu.points or not to_host.points:
        return KindFigures(kind=kind, why=to_gpu.why or to_host.why)
    read, write = (
        max((point for point in one.points if point.size_bytes <= LARGE_COPY), key=lambda point: point.size_bytes)
        for one in (to_gpu, to_host)
    )
    return KindFigures(
        kind=kind,
        first_read=Sample(name="first_read", size_bytes=read.size_bytes, timing=read.in_stream),
        read=Sample(name="read", size_bytes=read.size_bytes, timing=read.in_stream),
        write=Sample(name="write", size_bytes=write.size_bytes, timing=write.in_stream),
    )


def measure_resident_kinds(gpu: Gpu, size_bytes: int) -> tuple[KindFigures, ...]:
    """Measure the GPU's own memory, allocated in each way; one that fails says why.

    Args:
        gpu: The GPU.
        size_bytes: A block, much larger than the cache.
    """
    return tuple(_of_block(gpu, kind, memory, size_bytes, partial(_resident, gpu, kind)) for kind, memory in _RESIDENT)


def _reached(gpu: Gpu, kind: Kind, memory: MemoryKind, size_bytes: int, watch: CoreWatch) -> KindFigures:
    if kind == "pageable_in_place" and not gpu.machine.has_pageable_access:
        return KindFigures(kind=kind, why=NO_PAGEABLE_ACCESS)
    if kind == "managed_prefetched" and not gpu.machine.has_concurrent_managed:
        return KindFigures(kind=kind, why=NO_PREFETCH)
    if kind == "pageable_in_place":
        size_bytes = min(size_bytes, _IN_PLACE_BYTES)
    return _of_block(gpu, kind, memory, size_bytes, partial(_moved, gpu, kind, watch))


def _of_block(
    gpu: Gpu, kind: Kind, memory: MemoryKind, size_bytes: int, measure: Callable[[Block], KindFigures]
) -> KindFigures:
    """Measure a fresh block, or say why not."""
    try:
        block = gpu.allocate(memory, size_bytes)
        try:
            return measure(block)
        finally:
            gpu.free(block)
    except RuntimeError as error:
        return KindFigures(kind=kind, why=reason_of(error))


def _resident(gpu: Gpu, kind: Kind, block: Block) -> KindFigures:
    """Measure the GPU's own memory, of which nothing has touched this block."""
    size = block.size_bytes
    other = gpu.allocate(block.kind, size)
    try:
        gpu.device_ns(gpu.reading(other, size), 1)  # compiles
    finally:
        gpu.free(other)
    read, write = gpu.reading(block, size), gpu.writing(block, size)
    first = Sample(name="first_read", size_bytes=size, timing=timing_of(gpu.device_ns(read, 1)))
    return KindFigures(
        kind=kind,
        first_read=first,
        read=_again(gpu, "read", size, read),
        write=_again(gpu, "write", size, write),
    )


def _moved(gpu: Gpu, kind: Kind, watch: CoreWatch, block: Block) -> KindFigures:
    """Measure memory that a kernel reaches where it lies, or that moves to it part by part."""
    parts = parts_of(block, _FAULTED_PART if kind == "managed_by_fault" else _READ_PART)
    size, touch = parts[0].size_bytes, gpu.touching(block)
    for run in (gpu.reading(parts[0], size), gpu.writing(parts[0], size)):
        gpu.device_ns(run, 1)  # compiles

    def moving(name: str, prepare: Callable[[Block, int], Run]) -> Sample:
        runs = [prepare(part, size) for part in parts]
        if kind == "managed_prefetched":
            runs = [_both(gpu.prefetching(part), run) for part, run in zip(parts, runs, strict=True)]
        touch()
        run = in_turn(runs)

        times, loops = watch.timed(lambda look: gpu.device_ns(run, len(parts), before=look, is_queued=False))
        was_free = None if kind == "mapped" else watch.was_free(loops)
        return Sample(name=name, size_bytes=size, timing=timing_of_round(times, was_free))

    return KindFigures(
        kind=kind,
        first_read=moving("first_read", gpu.reading),
        read=_briefly(gpu, "read", block.size_bytes, gpu.reading(block, block.size_bytes)),
        write=moving("write", gpu.writing),
    )


def _both(first: Run, second: Run) -> Run:
    def run() -> None:
        first()
        second()

    return run


def _briefly(gpu: Gpu, name: str, size: int, run: Run) -> Sample:
    """Time runs that follow each other, for one round."""
    timing = briefly(lambda num: gpu.device_ns(run, num), budget_ns=_ROUND_NS, least=_IN_ROUND)
    return Sample(name=name, size_bytes=size, timing=timing)


def _again(gpu: Gpu, name: str, size: int, run: Run) -> Sample:
    """Time runs that follow each other."""
    timing = repeated(lambda num: gpu.device_ns(run, num), budget_ns=_BUDGET_NS)
    return Sample(name=name, size_bytes=size, timing=timing)
