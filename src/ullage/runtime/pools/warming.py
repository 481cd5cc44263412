"""Fills PyTorch's pools before the first step: what a step will need is allocated once, all of it at the same time, and freed.

A cached block serves only the stream that it was allocated on, so each stream's memory is taken on it.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from ullage.errors import RuntimeMemoryError
from ullage.runtime.pools.allocator import (
    NATIVE,
    SMALL_REQUEST_BYTES,
    SMALL_SEGMENT_BYTES,
    Allocator,
    allocator_of,
)
from ullage.runtime.pools.needs import PoolNeeds
from ullage.units import format_bytes, format_duration, plural

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


@dataclass(frozen=True, kw_only=True)
class Prewarmed:
    """What a pool holds now that it did not before.

    Attributes:
        backend: Whose pool: "native", "cudaMallocAsync", or "driver pool".
        asked_bytes: What was asked for.
        reserved_bytes: What was taken from the driver for it; less where enough was there.
        num_device_allocs: How often the driver was asked; 0 where its own pool serves all.
        duration_us: How long that took.
    """

    backend: str
    asked_bytes: int
    reserved_bytes: int
    num_device_allocs: int
    duration_us: int

    def __str__(self) -> str:
        return (
            f"{self.backend}: {format_bytes(self.reserved_bytes)} more reserved for {format_bytes(self.asked_bytes)} asked, in "
            f"{format_duration(self.duration_us)}"
        )


@dataclass(frozen=True, kw_only=True)
class StepAllocations:
    """What a step asked of the driver.

    Attributes:
        num_device_allocs: How often it asked for memory; 0 where the driver's own pool serves all.
        reserved_bytes: By how much the pool has grown.
        duration_us: How long the step took, the GPU waited for.
    """

    num_device_allocs: int
    reserved_bytes: int
    duration_us: int


def prewarm(
    needs: int | Sequence[int] | PoolNeeds,
    *,
    streams: Sequence[torch.cuda.Stream] = (),
    device: torch.device | str = "cuda",
) -> Prewarmed:
    """Fill PyTorch's pool, so that a step that fits in it asks the driver for nothing.

    Prewarm once the model is on the GPU: what was learned is beyond what was held then. Under `use_mem_pool` that pool is
    filled. All of it is taken, or none is.

    Args:
        needs: Bytes in all, which serve requests above 1 MiB; or the sizes of what will be live at the same time, those up to
            1 MiB for the small pool; or what `learn_needs` has learned.
        streams: The streams of the step, in the order in which they were named when it was learned; none: the current one.
            Bytes and sizes are for the first of them.
        device: The GPU.

    Raises:
        DeviceError: There is no GPU.
        RuntimeMemoryError: It does not fit; what was taken was given back, and all else that was cached as well if it was
            PyTorch that found no room. Or there are fewer streams than `needs` has, or a size below 1.

    Cost: waits for the GPU; what `cudaMalloc` takes, which the first step would take else.

    Example:
        >>> from ullage.runtime.pools import prewarm
        >>> print(prewarm(8 << 30))  # doctest: +SKIP
        native: 8 GiB more reserved for 8 GiB asked, in 1.9 ms
    """
    allocator = allocator_of(device)
    requests = _requests(needs, allocator)
    chosen: list[Any] = list(streams) or [None]
    if any(stream >= len(chosen) for _, stream in requests):
        count = max(stream for _, stream in requests) + 1
        raise RuntimeMemoryError(
            f"what was learned is for {plural(count, 'stream')}, and {len(chosen)} given: hand in streams=[...], in the "
            "order in which they were named then"
        )
    asked = sum(size for size, _ in requests)
    allocator.wait()
    before, start = allocator.state(), time.perf_counter()
    _check_room(asked, allocator)
    _take_all(requests, chosen, allocator)
    allocator.wait()
    duration = time.perf_counter() - start
    after = allocator.state()
    return Prewarmed(
        backend=allocator.backend,
        asked_bytes=asked,
        reserved_bytes=after.reserved_bytes - before.reserved_bytes,
        num_device_allocs=after.num_device_allocs - before.num_device_allocs,
        duration_us=round(duration * 1e6),
    )


def allocations_of(step: Callable[[], Any], *, device: torch.device | str = "cuda") -> StepAllocations:
    """Run a step, and count what it asked of the driver: 0 where the pool was warm.

    Args:
        step: What is run, once.
        device: The GPU.

    Raises:
        DeviceError: There is no GPU.
        RuntimeMemoryError: The process has an allocator of its own.

    Cost: waits for the GPU; the step.
    """
    allocator = allocator_of(device)
    allocator.wait()
    before, start = allocator.state(), time.perf_counter()
    step()
    allocator.wait()
    duration, after = time.perf_counter() - start, allocator.state()
    return StepAllocations(
        num_device_allocs=after.num_device_allocs - before.num_device_allocs,
        reserved_bytes=after.reserved_bytes - before.reserved_bytes,
        duration_us=round(duration * 1e6),
    )


def _requests(needs: int | Sequence[int] | PoolNeeds, allocator: Allocator) -> list[tuple[int, int]]:
    """Return the size and the stream's number of each request that fills the pool."""
    if isinstance(needs, PoolNeeds):
        return _requests_for_segments(needs, allocator)
    if isinstance(needs, int):
        sizes = _split(needs, allocator.most_split_bytes or needs)
    else:
        sizes = list(needs)
    if not sizes or min(sizes) < 1:
        raise RuntimeMemoryError("nothing was asked for: give bytes, or sizes of at least 1")
    return [(size, 0) for size in sizes]


def _requests_for_segments(needs: PoolNeeds, allocator: Allocator) -> list[tuple[int, int]]:
    """Ask for segments as they were; where they grow, or the driver's pool serves, for as many bytes."""
    requests = list[tuple[int, int]]()
    grown: Counter[int] = Counter()
    grows = allocator.backend != NATIVE or allocator.is_expandable  # asked once, which takes a snapshot
    for one in needs.segments:
        if one.is_small and allocator.backend == NATIVE:
            count = -(-one.size_bytes // SMALL_SEGMENT_BYTES) * SMALL_SEGMENT_BYTES // SMALL_REQUEST_BYTES
            requests += [(SMALL_REQUEST_BYTES, one.stream)] * count
        elif grows:
            grown[one.stream] += one.size_bytes
        else:
            requests.append((one.size_bytes, one.stream))
    return requests + [(size, stream) for stream, size in sorted(grown.items())]


def _split(size_bytes: int, most: int) -> list[int]:
    """Cut bytes into pieces that the allocator is willing to split further: larger ones would serve large requests only."""
    if size_bytes < 1:
        return []
    whole, rest = divmod(size_bytes, most)
    return [most] * whole + ([rest] if rest else [])


def _check_room(asked: int, allocator: Allocator) -> None:
    state = allocator.state()
    free, cached = allocator.free_gpu_bytes(), state.reserved_bytes - state.allocated_bytes
    if asked > free + cached:
        raise RuntimeMemoryError(
            f"{format_bytes(asked)} do not fit: the GPU has {format_bytes(free)} free, and the pool {format_bytes(cached)}; "
            "nothing was taken"
        )


def _take_all(requests: list[tuple[int, int]], streams: list[Any], allocator: Allocator) -> None:
    """Take all at the same time, so that each has memory of its own, and leave it in the pool."""
    held = []
    try:
        for size, stream in sorted(requests, reverse=True):
            held.append(allocator.take(size, streams[stream]))
    except torch.OutOfMemoryError as error:
        taken, wanted = len(held), format_bytes(sum(size for size, _ in requests))
        held.clear()
        allocator.give_back()
        raise RuntimeMemoryError(
            f"{wanted} do not fit: {taken} of {len(requests)} pieces did, and were given back to the driver "
            f"({str(error).splitlines()[0]})"
        ) from None
