"""The CUDA runtime's calls, against a stand-in for cuda-bindings that notes what it is asked."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from ullage.errors import DeviceError
from ullage.runtime.probe.runtime_calls import RuntimeCalls


class Noted(ModuleType):
    """A module whose functions note their arguments and succeed, or fail as told."""

    def __init__(self, fails: dict[str, int]) -> None:
        super().__init__("cuda.bindings.runtime")
        self.calls: list[tuple[Any, ...]] = []
        self.fails = fails
        self.cudaHostAllocMapped, self.cudaHostAllocDefault, self.cudaMemAttachGlobal = 2, 0, 1
        self.cudaMemAllocationType = SimpleNamespace(cudaMemAllocationTypePinned=1)
        self.cudaMemLocationType = SimpleNamespace(cudaMemLocationTypeDevice=1)
        self.cudaMemPoolAttr = SimpleNamespace(cudaMemPoolAttrReleaseThreshold=4)
        self.cudaStream_t = lambda handle: ("stream", handle)
        self.cudaMemPoolProps = lambda: SimpleNamespace(location=SimpleNamespace())
        self.cudaMemLocation = SimpleNamespace

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("cuda"):
            raise AttributeError(name)

        def call(*arguments: Any) -> tuple[Any, ...]:
            self.calls.append((name, *arguments))
            return (self.fails.get(name, 0), 4096)

        return call


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> Any:
    def install(version: str = "13.0.3", **fails: int) -> Noted:
        noted = Noted(fails)
        package = ModuleType("cuda.bindings")
        package.__dict__["__version__"] = version
        driver = ModuleType("cuda.bindings.driver")
        driver.__dict__["cuuint64_t"] = int
        parts = {"cuda": ModuleType("cuda"), "cuda.bindings": package, noted.__name__: noted, driver.__name__: driver}
        for name, module in parts.items():
            monkeypatch.setitem(sys.modules, name, module)
        return noted

    return install


def names(noted: Noted) -> list[str]:
    return [name for name, *_ in noted.calls]


def test_without_bindings_every_call_says_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    calls = RuntimeCalls(0, 7)
    assert calls.version == ""
    for run in (lambda: calls.allocate("managed", 1), lambda: calls.prefetching(1, 1)):
        with pytest.raises(DeviceError, match="needs cuda-bindings"):
            run()
    calls.close()


def test_an_error_has_its_name_and_is_taken_off_the_record(runtime: Any) -> None:
    noted = runtime(cudaMallocManaged=801)
    calls = RuntimeCalls(0, 7)
    with pytest.raises(DeviceError, match="801"):
        calls.allocate("managed", 100)
    assert names(noted)[-1] == "cudaGetLastError"


def test_each_kind_goes_through_its_own_pair_of_calls(runtime: Any) -> None:
    noted = runtime()
    calls = RuntimeCalls(1, 7)
    for kind in ("device", "managed", "pinned", "mapped"):
        calls.free(kind, calls.allocate(kind, 100))
    assert noted.calls == [
        ("cudaGetDevice",),
        ("cudaSetDevice", 1),
        ("cudaMalloc", 100),
        ("cudaFree", 4096),
        ("cudaMallocManaged", 100, 1),
        ("cudaFree", 4096),
        ("cudaHostAlloc", 100, 0),
        ("cudaFreeHost", 4096),
        ("cudaHostAlloc", 100, 2),
        ("cudaFreeHost", 4096),
    ]


def test_a_block_of_the_pool_goes_back_to_the_driver(runtime: Any) -> None:
    noted = runtime()
    calls = RuntimeCalls(0, 7)
    calls.free("stream_ordered", calls.allocate("stream_ordered", 100))
    assert names(noted)[-4:] == [
        "cudaMallocFromPoolAsync",
        "cudaFreeAsync",
        "cudaStreamSynchronize",
        "cudaMemPoolTrimTo",
    ]


def test_the_pool_is_its_own_and_goes_at_the_end(runtime: Any) -> None:
    noted = runtime()
    calls = RuntimeCalls(0, 7)
    calls.allocation_ns("pool", "warm", 100)
    assert "cudaMemPoolTrimTo" not in names(noted)
    calls.allocation_ns("pool", "cold", 100)
    calls.close()
    calls.close()
    assert names(noted).count("cudaMemPoolCreate") == names(noted).count("cudaMemPoolDestroy") == 1
    assert ("cudaMemPoolTrimTo", 4096, 0) in noted.calls
    assert ("cudaMallocFromPoolAsync", 100, 4096, ("stream", 7)) in noted.calls
    assert not any(
        name.startswith(("cudaDeviceSet", "cudaMallocAsync", "cudaDeviceGetDefault")) for name in names(noted)
    )


def test_the_callers_device_is_set_again_at_the_end(runtime: Any) -> None:
    noted = runtime()
    calls = RuntimeCalls(1, 7)
    calls.close()
    calls.close()
    assert noted.calls == [("cudaGetDevice",), ("cudaSetDevice", 1), ("cudaSetDevice", 4096)]


def test_a_device_that_was_the_callers_stays(runtime: Any) -> None:
    noted = runtime()
    RuntimeCalls(4096, 7).close()
    assert names(noted) == ["cudaGetDevice", "cudaSetDevice"]


def test_a_cold_pools_free_gives_the_memory_back_as_cudafree_does(runtime: Any) -> None:
    noted = runtime()
    RuntimeCalls(0, 7).allocation_ns("pool", "cold", 100)
    assert names(noted)[-3:] == ["cudaFreeAsync", "cudaStreamSynchronize", "cudaMemPoolTrimTo"]


@pytest.mark.parametrize(("version", "num_arguments"), [("12.9.0", 4), ("13.0.3", 5)])
def test_prefetches_name_their_place_as_the_bindings_release_has_it(
    version: str, num_arguments: int, runtime: Any
) -> None:
    noted = runtime(version)
    RuntimeCalls(0, 7).prefetching(4096, 100)()
    name, *arguments = noted.calls[-1]
    assert (name, len(arguments)) == ("cudaMemPrefetchAsync", num_arguments)
