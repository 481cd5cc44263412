"""The GPU's own memory: reads, writes, copies, its cache, and reads of one word in each stride."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ullage.runtime.probe.gpu import reason_of
from ullage.runtime.probe.result import Sample
from ullage.runtime.probe.timing import repeated

if TYPE_CHECKING:
    from collections.abc import Callable

    from ullage.runtime.probe.gpu import Block, Gpu, Run

WORD_BYTES = 4
STRIDES = (4, 8, 16, 32, 64, 128, 256, 1024)
_CACHE_ROUNDS = 64


def measure_bandwidth(gpu: Gpu, size_bytes: int, cached_bytes: int) -> tuple[Sample, ...]:
    """Measure the GPU's memory.

    Args:
        gpu: The GPU.
        size_bytes: What is read and written; larger than the cache.
        cached_bytes: What is read again and again; smaller than it.
    """

    def measured(block: Block) -> tuple[Sample, ...]:
        half = size_bytes // 2
        second = block.part(half, half)
        rounds = _CACHE_ROUNDS
        return (
            _sample(gpu, "read", size_bytes, lambda: gpu.reading(block, size_bytes)),
            _sample(gpu, "write", size_bytes, lambda: gpu.writing(block, size_bytes)),
            _sample(gpu, "copy", size_bytes, lambda: gpu.copying(block, second, half)),
            _sample(gpu, "l2_read", rounds * cached_bytes, lambda: gpu.reading(block, cached_bytes, num_rounds=rounds)),
        )

    return _with_block(gpu, size_bytes, measured, ("read", "write", "copy", "l2_read"))


def measure_strides(gpu: Gpu, size_bytes: int) -> tuple[Sample, ...]:
    """Measure reads of one word in each stride, over as many bytes whatever the stride."""

    def measured(block: Block) -> tuple[Sample, ...]:
        return tuple(_strided(gpu, block, stride) for stride in STRIDES)

    return _with_block(gpu, size_bytes, measured, tuple(str(stride) for stride in STRIDES))


def _strided(gpu: Gpu, block: Block, stride: int) -> Sample:
    useful = block.size_bytes // stride * WORD_BYTES
    return _sample(gpu, str(stride), useful, lambda: gpu.reading_strided(block, block.size_bytes, stride))


def _sample(gpu: Gpu, name: str, size_bytes: int, prepare: Callable[[], Run]) -> Sample:
    try:
        run = prepare()
        timing = repeated(lambda num: gpu.device_ns(run, num, num_runs=2), least=15)
    except RuntimeError as error:
        return Sample(name=name, size_bytes=size_bytes, why=reason_of(error))
    return Sample(name=name, size_bytes=size_bytes, timing=timing)


def _with_block(
    gpu: Gpu, size_bytes: int, measure: Callable[[Block], tuple[Sample, ...]], names: tuple[str, ...]
) -> tuple[Sample, ...]:
    try:
        block = gpu.allocate("torch", size_bytes)
    except RuntimeError as error:
        return tuple(Sample(name=name, size_bytes=size_bytes, why=reason_of(error)) for name in names)
    try:
        return measure(block)
    finally:
        gpu.free(block)
