"""Fills a pool of the driver's, from which `cudaMallocAsync` serves, for programs that use it beside PyTorch or without.

Such a pool gives what is free back to the system whenever a stream is waited for, unless its release threshold says how much
to keep. PyTorch's own backend `cudaMallocAsync` sets that itself: `prewarm` fills its pool.
"""

from __future__ import annotations

import time
from typing import Any, Protocol

import torch

from ullage.errors import RuntimeMemoryError
from ullage.runtime.managed.bindings import checked, cuda_runtime
from ullage.runtime.managed.gpus import gpu_named
from ullage.runtime.pools.warming import Prewarmed
from ullage.units import format_bytes


class PoolCalls(Protocol):
    """The calls of one pool, on one stream."""

    def reserved_bytes(self) -> int:
        """Return what the pool holds from the system."""

    def threshold_bytes(self) -> int:
        """Return how much it keeps when a stream is waited for."""

    def set_threshold(self, size_bytes: int) -> None:
        """Say how much it is to keep."""

    def allocate(self, size_bytes: int) -> int:
        """Take memory."""

    def free(self, address: int) -> None:
        """Free it."""

    def trim(self, size_bytes: int) -> None:
        """Give what is free above a size back to the system."""

    def wait(self) -> None:
        """Wait for the stream."""


class CudaPoolCalls:
    """The calls, by cuda-bindings."""

    def __init__(self, device: torch.device | str, pool: Any, stream: torch.cuda.Stream | None) -> None:
        """Prepare.

        Args:
            device: The GPU.
            pool: A pool of cuda-bindings; None: the GPU's current one.
            stream: The stream; None: the current one.

        Raises:
            DeviceError: There is no such GPU, it has no pools, or cuda-bindings is missing.
        """
        self._device = gpu_named(device, "pools are a GPU's", "nothing has to be warmed")
        self._cuda = cuda_runtime()
        torch.cuda.synchronize(self._device)  # its context is there from now on
        self._stream = stream or torch.cuda.current_stream(self._device)
        what = "asking for the GPU's pool"
        self._pool = pool or checked(self._cuda.cudaDeviceGetMemPool(self._device.index), what)

    def reserved_bytes(self) -> int:
        """Return what the pool holds from the system."""
        return self._get(self._cuda.cudaMemPoolAttr.cudaMemPoolAttrReservedMemCurrent)

    def threshold_bytes(self) -> int:
        """Return how much it keeps when a stream is waited for."""
        return self._get(self._cuda.cudaMemPoolAttr.cudaMemPoolAttrReleaseThreshold)

    def set_threshold(self, size_bytes: int) -> None:
        """Say how much it is to keep."""
        from cuda.bindings.driver import cuuint64_t

        attribute = self._cuda.cudaMemPoolAttr.cudaMemPoolAttrReleaseThreshold
        checked(
            self._cuda.cudaMemPoolSetAttribute(self._pool, attribute, cuuint64_t(size_bytes)), "setting what it keeps"
        )

    def allocate(self, size_bytes: int) -> int:
        """Take memory."""
        with torch.cuda.device(self._device):  # the handle 0 is the default stream of whichever GPU is the current one
            call = self._cuda.cudaMallocFromPoolAsync(size_bytes, self._pool, self._stream.cuda_stream)
        return int(checked(call, f"{format_bytes(size_bytes)} of a pool"))

    def free(self, address: int) -> None:
        """Free it."""
        with torch.cuda.device(self._device):
            checked(self._cuda.cudaFreeAsync(address, self._stream.cuda_stream), "freeing memory of a pool")

    def trim(self, size_bytes: int) -> None:
        """Give what is free above a size back to the system."""
        checked(self._cuda.cudaMemPoolTrimTo(self._pool, size_bytes), "trimming a pool")

    def wait(self) -> None:
        """Wait for the stream."""
        with torch.cuda.device(self._device):
            self._stream.synchronize()

    def _get(self, attribute: Any) -> int:
        return int(checked(self._cuda.cudaMemPoolGetAttribute(self._pool, attribute), "asking a pool"))


def prewarm_driver_pool(
    size_bytes: int,
    *,
    device: torch.device | str = "cuda",
    pool: Any = None,
    stream: torch.cuda.Stream | None = None,
    keep_bytes: int | None = None,
) -> Prewarmed:
    """Fill a pool of the driver's, and let it keep what it has.

    Args:
        size_bytes: How much is to be free in it.
        device: The GPU.
        pool: A `cudaMemPool_t` of cuda-bindings; None: the GPU's current one.
        stream: On which stream; None: the current one. The memory serves all streams.
        keep_bytes: The release threshold; None: all that it then holds, or what it has if that is more. What is free above
            it goes back to the system at once, also what was there before.

    Raises:
        DeviceError: There is no such GPU, it has no pools, or cuda-bindings is missing.
        RuntimeMemoryError: It does not fit; the pool is as it was.

    Cost: waits for the stream; what taking the memory takes.
    """
    return fill(CudaPoolCalls(device, pool, stream), size_bytes, keep_bytes)


def fill(calls: PoolCalls, size_bytes: int, keep_bytes: int | None) -> Prewarmed:
    """Fill the pool behind some calls; see `prewarm_driver_pool`.

    Raises:
        RuntimeMemoryError: It does not fit; the pool is as it was.
    """
    if size_bytes < 1:
        raise RuntimeMemoryError("nothing was asked for: give the bytes that the pool is to have free")
    before, threshold = calls.reserved_bytes(), calls.threshold_bytes()
    start = time.perf_counter()
    try:
        calls.set_threshold(max(threshold, before + size_bytes) if keep_bytes is None else keep_bytes)
        calls.free(calls.allocate(size_bytes))
        calls.wait()
    except RuntimeMemoryError:
        calls.set_threshold(threshold)
        calls.trim(before)
        raise
    duration, after = time.perf_counter() - start, calls.reserved_bytes()
    if keep_bytes is None and after > max(threshold, before + size_bytes):
        calls.set_threshold(after)  # the driver takes whole granules
    return Prewarmed(
        backend="driver pool",
        asked_bytes=size_bytes,
        reserved_bytes=max(after - before, 0),  # less is held than before where it is to keep less
        num_device_allocs=0,
        duration_us=round(duration * 1e6),
    )
