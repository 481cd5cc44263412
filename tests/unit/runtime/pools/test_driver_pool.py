"""A pool of the driver's is filled and keeps what it has; where it cannot be, it is left as it was."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from ullage.errors import DeviceError, RuntimeMemoryError
from ullage.runtime.pools import driver_pool, prewarm_driver_pool
from ullage.runtime.pools.driver_pool import CudaPoolCalls, fill

GRANULE = 100


class FakePool:
    """A pool that takes whole granules from the system, and gives them back when it is waited for."""

    def __init__(self, reserved: int = 0, threshold: int = 0, most: int = 10_000) -> None:
        self.reserved, self.threshold, self.most, self.used = reserved, threshold, most, 0

    def reserved_bytes(self) -> int:
        return self.reserved

    def threshold_bytes(self) -> int:
        return self.threshold

    def set_threshold(self, size_bytes: int) -> None:
        self.threshold = size_bytes

    def allocate(self, size_bytes: int) -> int:
        if size_bytes > self.most:
            raise RuntimeMemoryError("the fake is full")
        self.used += size_bytes
        self.reserved = max(self.reserved, -(-self.used // GRANULE) * GRANULE)
        return size_bytes

    def free(self, address: int) -> None:
        self.used -= address

    def trim(self, size_bytes: int) -> None:
        self.reserved = min(self.reserved, max(size_bytes, self.used))

    def wait(self) -> None:
        if self.reserved - self.threshold >= GRANULE:
            self.trim(self.threshold)


def test_a_filled_pool_keeps_its_memory() -> None:
    pool = FakePool()
    done = fill(pool, 950, None)
    assert (done.asked_bytes, done.reserved_bytes, done.num_device_allocs) == (950, 1000, 0)
    assert pool.threshold == 1000
    pool.free(pool.allocate(950))
    pool.wait()
    assert pool.reserved == 1000


def test_a_larger_threshold_is_left_alone() -> None:
    pool = FakePool(threshold=1 << 62)
    fill(pool, 950, None)
    assert pool.threshold == 1 << 62


def test_a_threshold_can_be_given() -> None:
    pool = FakePool()
    fill(pool, 950, 300)
    assert (pool.threshold, pool.reserved) == (300, 300)


def test_a_pool_that_is_to_keep_less_than_it_had_reports_nothing_taken() -> None:
    pool = FakePool(reserved=2000, threshold=2000)
    done = fill(pool, 950, 300)
    assert (pool.reserved, done.reserved_bytes) == (300, 0)


class FakeCuda:
    """Stands in for torch.cuda and cuda-bindings: two GPUs, of which the first is the current one.

    Attributes:
        current: The current GPU.
        log: The calls, each with the GPU that was current.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.current, self.log = 0, list[tuple[str, int]]()
        stream = SimpleNamespace(cuda_stream=0, synchronize=lambda: self.log.append(("synchronize", self.current)))
        for name, value in {
            "is_available": lambda: True,
            "device_count": lambda: 2,
            "synchronize": lambda device: None,
            "current_stream": lambda device: stream,
            "device": self.device,
        }.items():
            monkeypatch.setattr(torch.cuda, name, value)
        monkeypatch.setattr(driver_pool, "cuda_runtime", lambda: self)

    @contextmanager
    def device(self, device: torch.device) -> Iterator[None]:
        before, self.current = self.current, device.index
        yield
        self.current = before

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any) -> tuple[int, int]:
            self.log.append((name, self.current))
            return (0, 4096)

        return call


def test_memory_of_another_gpus_pool_goes_by_that_gpus_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeCuda(monkeypatch)
    calls = CudaPoolCalls("cuda:1", None, None)
    calls.free(calls.allocate(100))
    calls.wait()
    assert fake.log[1:] == [("cudaMallocFromPoolAsync", 1), ("cudaFreeAsync", 1), ("synchronize", 1)]
    assert fake.current == 0


def test_a_pool_that_cannot_be_filled_is_as_it_was() -> None:
    pool = FakePool(reserved=200, threshold=7, most=500)
    with pytest.raises(RuntimeMemoryError, match="full"):
        fill(pool, 501, None)
    assert (pool.reserved, pool.threshold) == (200, 7)
    with pytest.raises(RuntimeMemoryError, match="nothing was asked for"):
        fill(pool, 0, None)


def test_without_a_gpu_it_says_so() -> None:
    with pytest.raises(DeviceError, match="cpu is none"):
        prewarm_driver_pool(100, device="cpu")
