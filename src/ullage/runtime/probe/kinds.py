"""What each kind of memory gives to a GPU that reads and writes a block of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ullage.runtime.probe.gpu import reason_of
from ullage.runtime.probe.parts import in_turn, parts_of
from ullage.runtime.probe.result import Kind, KindFigures, Sample
from ullage.runtime.probe.timing import briefly, quickest_of, repeated, timing_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ullage.runtime.probe.gpu import Block, Gpu, MemoryKind, Run
    from ullage.runtime.probe.sizes import Sizes

_BUDGET_NS = 150_000_000
_ROUND_NS = 10_000_000  # of the budget in a round
_IN_ROUND = 2  # measurements of what is slow
_IN_PLACE_BYTES = 64 << 20
_COPIED_PART = 32 << 20  # what is timed at once: the smaller, the more likely in a moment in which nothing disturbs
_FAULTED_PART = 64 << 20  # about a layer's matrix: the less a kernel touches, the faster its faults are served
_READ_PART = 128 << 20  # the larger, the less a launch counts

HOST_KINDS: tuple[tuple[Kind, MemoryKind], ...] = (
    ("pageable", "pageable"),
    ("pageable_in_place", "pageable"),
    ("pinned", "pinned"),
    ("mapped", "mapped"),
    ("managed_by_fault", "managed"),
    ("managed_prefetched", "managed"),
)
_RESIDENT: tuple[tuple[Kind, MemoryKind], ...] = (("stream_ordered", "stream_ordered"), ("device", "device"))
NO_PAGEABLE_ACCESS = "this GPU cannot read pageable memory"
NO_PREFETCH = "this GPU cannot prefetch managed memory"


def measure_host_kinds(gpu: Gpu, kinds: Sequence[Kind], sizes: Sizes) -> tuple[KindFigures, ...]:
    """Measure briefly kinds that the host reaches, or has a part in; one that fails says why.

    Args:
        gpu: The GPU.
        kinds: Which of `HOST_KINDS`.
        sizes: Of blocks, which are gone through part by part.
    """
    return tuple(_figures(gpu, kind, memory, sizes.block(memory)) for kind, memory in HOST_KINDS if kind in kinds)


def measure_resident_kinds(gpu: Gpu, size_bytes: int) -> tuple[KindFigures, ...]:
    """Measure the GPU's own memory, allocated in each way; one that fails says why.

    Args:
        gpu: The GPU.
        size_bytes: A block, much larger than the cache.
    """
    return tuple(_figures(gpu, kind, memory, size_bytes) for kind, memory in _RESIDENT)


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
            blocks.append(gpu.allocate("torch", min(size_bytes, _COPIED_PART)))
            return _copied(gpu, kind, *blocks)
        if (kind, memory) in _RESIDENT:
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
    """Measure memory that a copy brings to the GPU and back, part by part."""
    is_queued = kind == "pinned"
    size, parts = device.size_bytes, parts_of(host, device.size_bytes)
    there = in_turn([gpu.copying(device, part, size) for part in parts])
    back = in_turn([gpu.copying(part, device, size) for part in parts])
    gpu.touching(host)()

    def timed(name: str, run: Run) -> Sample:
        return _each(gpu, name, size, len(parts), run, is_queued=is_queued)

    return KindFigures(
        kind=kind, first_read=timed("first_read", there), read=timed("read", there), write=timed("write", back)
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
    """Measure memory that a kernel reaches where it lies, or that moves to it part by part."""
    parts = parts_of(block, _FAULTED_PART if kind == "managed_by_fault" else _READ_PART)
    size, touch = parts[0].size_bytes, gpu.touching(block)
    read = gpu.reading(block, block.size_bytes)
    touch()
    gpu.device_ns(read, 1)  # compiles
    gpu.device_ns(gpu.writing(block, block.size_bytes), 1)

    def moving(name: str, prepare: Callable[[Block, int], Run]) -> Sample:
        runs = [prepare(part, size) for part in parts]
        if kind == "managed_prefetched":
            runs = [_both(gpu.prefetching(part), run) for part, run in zip(parts, runs, strict=True)]
        touch()
        return _each(gpu, name, size, len(parts), in_turn(runs), is_queued=False)

    return KindFigures(
        kind=kind,
        first_read=moving("first_read", gpu.reading),
        read=_briefly(gpu, "read", block.size_bytes, read, is_queued=True),
        write=moving("write", gpu.writing),
    )


def _both(first: Run, second: Run) -> Run:
    def run() -> None:
        first()
        second()

    return run


def _each(gpu: Gpu, name: str, size: int, num_parts: int, run: Run, *, is_queued: bool) -> Sample:
    """Time each part once."""
    timing = quickest_of(gpu.device_ns(run, num_parts, is_queued=is_queued))
    return Sample(name=name, size_bytes=size, timing=timing)


def _briefly(gpu: Gpu, name: str, size: int, run: Run, *, is_queued: bool) -> Sample:
    """Time runs that follow each other, for one round."""
    timing = briefly(lambda num: gpu.device_ns(run, num, is_queued=is_queued), budget_ns=_ROUND_NS, least=_IN_ROUND)
    return Sample(name=name, size_bytes=size, timing=timing)


def _again(gpu: Gpu, name: str, size: int, run: Run) -> Sample:
    """Time runs that follow each other."""
    timing = repeated(lambda num: gpu.device_ns(run, num), budget_ns=_BUDGET_NS)
    return Sample(name=name, size_bytes=size, timing=timing)
