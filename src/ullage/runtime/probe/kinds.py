"""What each kind of memory gives to a GPU that reads and writes a block of it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ullage.runtime.probe.gpu import reason_of
from ullage.runtime.probe.result import Kind, KindFigures, Sample
from ullage.runtime.probe.timing import median_of, repeated, timing_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from ullage.runtime.probe.gpu import Block, Gpu, MemoryKind, Run

_BUDGET_NS = 150_000_000
_NUM_MOVED = 7  # a block that moves between host and GPU is slow to measure
_IN_PLACE_BYTES = 64 << 20

KINDS: tuple[tuple[Kind, MemoryKind], ...] = (
    ("pageable", "pageable"),
    ("pageable_in_place", "pageable"),
    ("pinned", "pinned"),
    ("mapped", "mapped"),
    ("managed_by_fault", "managed"),
    ("managed_prefetched", "managed"),
    ("stream_ordered", "stream_ordered"),
    ("device", "device"),
)
_BY_PLACE = ("pageable", "managed_by_fault", "managed_prefetched")  # faster or slower by where the system put a block
_NUM_BLOCKS = 5
_RESIDENT = ("stream_ordered", "device")
NO_PAGEABLE_ACCESS = "this GPU cannot read pageable memory"
NO_PREFETCH = "this GPU cannot prefetch managed memory"


def measure_kinds(gpu: Gpu, size_bytes: int, device_bytes: int) -> tuple[KindFigures, ...]:
    """Measure each kind; one that fails says why.

    Args:
        gpu: The GPU.
        size_bytes: A block that the host reaches.
        device_bytes: A block of the GPU's own memory, much larger than its cache.
    """
    return tuple(
        _median(
            [
                _figures(gpu, kind, memory, device_bytes if kind in _RESIDENT else size_bytes)
                for _ in range(_NUM_BLOCKS if kind in _BY_PLACE else 1)
            ]
        )
        for kind, memory in KINDS
    )


def _median(found: list[KindFigures]) -> KindFigures:
    """Return the median of what several blocks of a kind gave."""
    if len(found) == 1 or any(one.why for one in found):
        return next((one for one in found if one.why), found[0])

    def joined(samples: list[Sample | None]) -> Sample | None:
        there = [one for one in samples if one is not None]
        return replace(there[0], timing=median_of([one.timing for one in there if one.timing])) if there else None

    return replace(
        found[0],
        first_read=joined([one.first_read for one in found]),
        read=joined([one.read for one in found]),
        write=joined([one.write for one in found]),
    )


def _figures(gpu: Gpu, kind: Kind, memory: MemoryKind, size_bytes: int) -> KindFigures:
    if kind == "pageable_in_place" and not gpu.machine.has_pageable_access:
        return KindFigures(kind=kind, why=NO_PAGEABLE_ACCESS)
    if kind == "managed_prefetched" and not gpu.machine.has_concurrent_managed:
        return KindFigures(kind=kind, why=NO_PREFETCH)
    if kind == "pageable_in_place":
        size_bytes = min(size_bytes, _IN_PLACE_BYTES)
    blocks: list[Block] = []
    try:
        blocks.append(gpu.allocate(memory, size_bytes))
        if kind in ("pageable", "pinned"):
            blocks.append(gpu.allocate("torch", size_bytes))
            return _copied(gpu, kind, *blocks)
        if kind in _RESIDENT:
            gpu.device_ns(gpu.reading(blocks[0], size_bytes), 1)  # compiles
            blocks.append(gpu.allocate(memory, size_bytes))
            return _resident(gpu, kind, blocks[1])
        return _moved(gpu, kind, blocks[0])
    except RuntimeError as error:
        return KindFigures(kind=kind, why=reason_of(error))
    finally:
        for block in blocks:
            gpu.free(block)


def _copied(gpu: Gpu, kind: Kind, host: Block, device: Block) -> KindFigures:
    """Measure memory that a copy brings to the GPU and back."""
    is_queued = kind == "pinned"
    size = host.size_bytes
    gpu.touching(host)()
    there, back = gpu.copying(device, host, size), gpu.copying(host, device, size)
    return KindFigures(
        kind=kind,
        first_read=_moving(gpu, "first_read", size, there, before=gpu.touching(host)),
        read=_again(gpu, "read", size, there, is_queued=is_queued),
        write=_again(gpu, "write", size, back, is_queued=is_queued),
    )


def _resident(gpu: Gpu, kind: Kind, block: Block) -> KindFigures:
    """Measure the GPU's own memory."""
    size = block.size_bytes
    read, write = gpu.reading(block, size), gpu.writing(block, size)
    first = Sample(name="first_read", size_bytes=size, timing=timing_of(gpu.device_ns(read, 1)))
    return KindFigures(
        kind=kind,
        first_read=first,
        read=_again(gpu, "read", size, read),
        write=_again(gpu, "write", size, write),
    )


def _moved(gpu: Gpu, kind: Kind, block: Block) -> KindFigures:
    """Measure memory that a kernel reaches where it lies, or that moves to it."""
    size = block.size_bytes
    touch, read, write = gpu.touching(block), gpu.reading(block, size), gpu.writing(block, size)
    touch()
    gpu.device_ns(read, 1)  # compiles
    gpu.device_ns(write, 1)
    prefetch: Callable[[], object] = gpu.prefetching(block) if kind == "managed_prefetched" else lambda: None

    def first_read() -> None:
        prefetch()
        read()

    def first_write() -> None:
        prefetch()
        write()

    return KindFigures(
        kind=kind,
        first_read=_moving(gpu, "first_read", size, first_read, before=touch),
        read=_again(gpu, "read", size, read),
        write=_moving(gpu, "write", size, first_write, before=touch),
    )


def _moving(gpu: Gpu, name: str, size: int, run: Run, *, before: Run) -> Sample:
    """Time runs after each of which the host takes the block back."""
    gpu.device_ns(run, 1, before=before, is_queued=False)
    times = gpu.device_ns(run, _NUM_MOVED, before=before, is_queued=False)
    return Sample(name=name, size_bytes=size, timing=timing_of(times))


def _again(gpu: Gpu, name: str, size: int, run: Run, *, is_queued: bool = True) -> Sample:
    """Time runs that follow each other."""
    timing = repeated(lambda num: gpu.device_ns(run, num, is_queued=is_queued), budget_ns=_BUDGET_NS)
    return Sample(name=name, size_bytes=size, timing=timing)
