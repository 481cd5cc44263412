"""The CUDA runtime's calls that torch has no name for, by cuda-bindings where that is installed."""

from __future__ import annotations

import ctypes
import time
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any

from ullage.errors import DeviceError
from ullage.runtime.probe.gpu import NO_BINDINGS

if TYPE_CHECKING:
    from collections.abc import Callable

    from ullage.runtime.probe.gpu import MemoryKind, Run
    from ullage.runtime.probe.result import Temperature, Way

_FIRST_WITH_LOCATIONS = 13  # cudaMemPrefetchAsync takes a place instead of a device's number
_KEEP_ALL = 2**64 - 1


class RuntimeCalls:
    """The calls for one GPU and stream.

    The pool is its own, so that the default one and its release threshold stay as they are.

    Args:
        device: The GPU's number.
        stream: The stream's handle.

    From here to `close` the device is the current one of this thread.

    Attributes:
        version: Of cuda-bindings; "" where it is missing: then all but `close` raises.
    """

    def __init__(self, device: int, stream: int) -> None:
        self._device = device
        self._runtime, self.version = _bindings()
        self._pool: Any = None
        self._stream: Any = None
        self._callers_device: int | None = None
        if self.version:  # the bindings hold a runtime of their own, which does not know torch's choice
            self._stream = self._runtime.cudaStream_t(stream)
            self._callers_device = int(self._done(self._runtime.cudaGetDevice()))
            self._done(self._runtime.cudaSetDevice(device))

    def _needed(self) -> Any:
        if not self.version:
            raise DeviceError(NO_BINDINGS)
        return self._runtime

    def _done(self, answer: tuple[Any, ...]) -> Any:
        """Return what a call gave.

        Raises:
            DeviceError: It failed. The error is taken off the runtime's record, so that torch does not meet it.
        """
        code, *values = answer
        if int(code) != 0:
            self._runtime.cudaGetLastError()
            raise DeviceError(str(getattr(code, "name", code)))
        return values[0] if values else None

    def _pool_handle(self) -> Any:
        runtime = self._needed()
        if self._pool is None:
            wanted = runtime.cudaMemPoolProps()
            wanted.allocType = runtime.cudaMemAllocationType.cudaMemAllocationTypePinned
            wanted.location.type = runtime.cudaMemLocationType.cudaMemLocationTypeDevice
            wanted.location.id = self._device
            self._pool = self._done(runtime.cudaMemPoolCreate(wanted))
            threshold = runtime.cudaMemPoolAttr.cudaMemPoolAttrReleaseThreshold
            everything = import_module("cuda.bindings.driver").cuuint64_t(_KEEP_ALL)
            self._done(runtime.cudaMemPoolSetAttribute(self._pool, threshold, everything))
        return self._pool

    def allocate(self, kind: MemoryKind, size_bytes: int) -> int:
        """Allocate memory, and return its address."""
        allocate, _ = self._pair(kind)
        return int(self._done(allocate(size_bytes)))

    def free(self, kind: MemoryKind, address: int) -> None:
        """Free memory; what the pool had for it goes back to the driver."""
        _, free = self._pair(kind)
        self._done(free(address))
        if kind == "stream_ordered":
            self._trim()

    def _trim(self) -> None:
        """Give what the pool keeps back to the driver, once the stream is done with it."""
        self._done(self._runtime.cudaStreamSynchronize(self._stream))
        self._done(self._runtime.cudaMemPoolTrimTo(self._pool, 0))

    def _pair(self, kind: str) -> tuple[Callable[[int], Any], Callable[[int], Any]]:
        """Return the two calls for a kind of memory or a way to get it."""
        runtime, stream = self._needed(), self._stream
        if kind in ("pinned", "mapped"):
            flags = int(runtime.cudaHostAllocMapped) if kind == "mapped" else int(runtime.cudaHostAllocDefault)
            return lambda size: runtime.cudaHostAlloc(size, flags), runtime.cudaFreeHost
        if kind == "managed":
            anywhere = int(runtime.cudaMemAttachGlobal)
            return lambda size: runtime.cudaMallocManaged(size, anywhere), runtime.cudaFree
        if kind in ("pool", "stream_ordered"):
            pool = self._pool_handle()
            return (
                lambda size: runtime.cudaMallocFromPoolAsync(size, pool, stream),
                lambda address: runtime.cudaFreeAsync(address, stream),
            )
        return runtime.cudaMalloc, runtime.cudaFree

    def allocation_ns(self, way: Way, temperature: Temperature, size_bytes: int) -> tuple[float, float]:
        """Measure by the host's clock one allocation, and its free; a cold pool's gives the memory back, as cudaFree does."""
        allocate, free = self._pair(way)
        is_trimmed = way == "pool" and temperature == "cold"
        self._done(self._runtime.cudaStreamSynchronize(self._stream))
        if is_trimmed:
            self._trim()
        start = time.perf_counter_ns()
        answer = allocate(size_bytes)
        allocated = time.perf_counter_ns()
        address = self._done(answer)
        again = time.perf_counter_ns()
        freed = free(address)
        if is_trimmed:
            self._trim()
        end = time.perf_counter_ns()
        self._done(freed)
        return float(allocated - start), float(end - again)

    def prefetching(self, address: int, size_bytes: int) -> Run:
        """Prepare moving managed memory to the GPU."""
        runtime, stream = self._needed(), self._stream
        if int(self.version.split(".")[0]) < _FIRST_WITH_LOCATIONS:
            return lambda: self._done(runtime.cudaMemPrefetchAsync(address, size_bytes, self._device, stream))
        place = runtime.cudaMemLocation()
        place.type = runtime.cudaMemLocationType.cudaMemLocationTypeDevice
        place.id = self._device
        return lambda: self._done(runtime.cudaMemPrefetchAsync(address, size_bytes, place, 0, stream))

    def host_tensor(self, torch: Any, address: int, size_bytes: int) -> Any:
        """Return memory that the host can reach as a tensor, which does not own it."""
        return torch.frombuffer((ctypes.c_uint8 * size_bytes).from_address(address), dtype=torch.uint8)

    def close(self) -> None:
        """Give the pool back, and the thread its caller's device."""
        if self._pool is not None:
            with suppress(DeviceError):
                self._done(self._runtime.cudaStreamSynchronize(self._stream))
                self._done(self._runtime.cudaMemPoolDestroy(self._pool))
            self._pool = None
        if self._callers_device not in (None, self._device):  # to set a device may make a context on it
            with suppress(DeviceError):
                self._done(self._runtime.cudaSetDevice(self._callers_device))
        self._callers_device = None


def _bindings() -> tuple[Any, str]:
    try:
        package = import_module("cuda.bindings")
        return import_module("cuda.bindings.runtime"), str(package.__version__)
    except ImportError:
        return None, ""
