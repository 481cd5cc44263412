"""What is asked of CUDA is asked as CUDA 13 has it: batches where they are, never the legacy stream, errors in words."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from enum import IntEnum
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from ullage.errors import DeviceError, RuntimeMemoryError
from ullage.runtime.managed import bindings, cuda_calls
from ullage.runtime.managed.bindings import NotOfferedError, checked, cuda_runtime
from ullage.runtime.managed.cuda_calls import CudaCalls, Span
from ullage.runtime.managed.roles import HOST, Advice

SPANS = [Span(4096, 10), Span(8192, 20)]


class Error(IntEnum):
    cudaSuccess = 0
    cudaErrorMemoryAllocation = 2
    cudaErrorInsufficientDriver = 35
    cudaErrorCallRequiresNewerDriver = 36
    cudaErrorNotSupported = 801


class FakeRuntime:
    """Stands in for `cuda.bindings.runtime`: it writes down its calls, and answers with a code for each.

    Attributes:
        log: The names and arguments of the calls; a location is its type and number.
        codes: What calls answer other than success, by name.
        values: What they return beside it, by name.
    """

    cudaMemAttachGlobal = 1
    cudaDeviceAttr = SimpleNamespace(cudaDevAttrConcurrentManagedAccess=89)
    cudaMemLocationType = SimpleNamespace(cudaMemLocationTypeDevice=1, cudaMemLocationTypeHost=2)

    def __init__(self) -> None:
        self.log: list[tuple[Any, ...]] = []
        self.codes: dict[str, Error] = {}
        self.values: dict[str, Any] = {"cudaDeviceGetAttribute": 1, "cudaMallocManaged": 4096}

    cudaMemoryAdvise = staticmethod("advice {}".format)
    cudaMemLocation = SimpleNamespace

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any) -> tuple[Any, ...]:
            self.log.append((name, *(_shown(one) for one in arguments)))
            return (self.codes.get(name, Error.cudaSuccess), self.values.get(name))

        return call


def _shown(argument: Any) -> Any:
    if isinstance(argument, list):
        return [_shown(one) for one in argument]
    return (argument.type, argument.id) if isinstance(argument, SimpleNamespace) else argument


class FakeStream:
    """A stream: its handle, and what it was told to wait for."""

    def __init__(self, handle: int) -> None:
        self.cuda_stream, self.waits = handle, list[int]()

    def wait_stream(self, other: FakeStream) -> None:
        self.waits.append(other.cuda_stream)


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> FakeRuntime:
    fake = FakeRuntime()
    monkeypatch.setattr(cuda_calls, "cuda_runtime", lambda: fake)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device=None: None)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device=None: "a fake")
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    return fake


@pytest.fixture
def real(runtime: FakeRuntime) -> CudaCalls:
    made = CudaCalls(torch.device("cuda", 1))
    runtime.log.clear()
    return made


def test_memory_is_taken_on_its_gpu_and_the_current_one_stays(runtime: FakeRuntime, real: CudaCalls) -> None:
    assert real.allocate(100) == 4096
    real.free(4096)
    assert runtime.log == [
        ("cudaSetDevice", 1),
        ("cudaMallocManaged", 100, 1),
        ("cudaSetDevice", 0),
        ("cudaFree", 4096),
    ]


def test_advice_names_a_place(runtime: FakeRuntime, real: CudaCalls) -> None:
    real.advise(SPANS[0], Advice.PREFERRED_LOCATION, HOST)
    real.advise(SPANS[0], Advice.ACCESSED_BY, 1)
    assert runtime.log == [
        ("cudaMemAdvise", 4096, 10, "advice 3", (2, 0)),
        ("cudaMemAdvise", 4096, 10, "advice 5", (1, 1)),
    ]


def test_many_ranges_are_one_call(runtime: FakeRuntime, real: CudaCalls) -> None:
    real.prefetch(SPANS, 1, 7)
    real.prefetch(SPANS, HOST, 7)
    real.discard(SPANS, 7)
    real.discard_and_prefetch(SPANS, 1, 7)
    real.prefetch([], 1, 7)
    where = [4096, 8192], [10, 20], 2
    assert runtime.log == [
        ("cudaMemPrefetchBatchAsync", *where, [(1, 1)], [0], 1, 0, 7),
        ("cudaMemPrefetchBatchAsync", *where, [(2, 0)], [0], 1, 0, 7),
        ("cudaMemDiscardBatchAsync", *where, 0, 7),
        ("cudaMemDiscardAndPrefetchBatchAsync", *where, [(1, 1)], [0], 1, 0, 7),
    ]


def test_a_driver_without_batches_gets_a_call_for_each_range(runtime: FakeRuntime, real: CudaCalls) -> None:
    runtime.codes["cudaMemPrefetchBatchAsync"] = Error.cudaErrorNotSupported
    for _ in range(2):
        real.prefetch(SPANS, 1, 7)
    real.discard(SPANS, 7)
    real.discard_and_prefetch(SPANS[:1], 1, 7)
    names = [one[0] for one in runtime.log]
    assert names == ["cudaMemPrefetchBatchAsync"] + ["cudaMemPrefetchAsync"] * 5
    assert runtime.log[1] == ("cudaMemPrefetchAsync", 4096, 10, (1, 1), 0, 7)
    assert not real.has_batches


@pytest.mark.parametrize("handle", [0, 1])
def test_the_legacy_stream_is_never_used(real: CudaCalls, monkeypatch: pytest.MonkeyPatch, handle: int) -> None:
    current, side = FakeStream(handle), FakeStream(55)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device=None: current)
    monkeypatch.setattr(torch.cuda, "Stream", lambda device=None: side)
    with real.stream() as stream:
        assert stream == 55
        assert side.waits == [handle]
        assert current.waits == []
    assert current.waits == [55]


def test_another_stream_is_used_itself(real: CudaCalls, monkeypatch: pytest.MonkeyPatch) -> None:
    current = FakeStream(99)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device=None: current)
    with real.stream() as stream:
        assert stream == 99
    assert current.waits == []


def test_a_gpu_that_cannot_share_is_refused_with_what_to_do(runtime: FakeRuntime) -> None:
    runtime.values["cudaDeviceGetAttribute"] = 0
    with pytest.raises(DeviceError, match=r"a fake cannot use managed memory while the host does.*runtime\.weights"):
        CudaCalls(torch.device("cuda", 0))


def test_errors_name_the_call_and_the_code() -> None:
    assert checked((Error.cudaSuccess, 5), "asking") == 5
    assert checked((Error.cudaSuccess,), "asking") is None
    with pytest.raises(RuntimeMemoryError, match="3 GiB: CUDA says cudaErrorMemoryAllocation; free memory"):
        checked((Error.cudaErrorMemoryAllocation, None), "3 GiB")


@pytest.mark.parametrize(
    "code", [Error.cudaErrorInsufficientDriver, Error.cudaErrorCallRequiresNewerDriver, Error.cudaErrorNotSupported]
)
def test_a_driver_that_is_too_old_is_a_device_error_that_names_the_alternative(code: Error) -> None:
    with pytest.raises(
        DeviceError, match=rf"moving: .*does not offer it \({code.name}\).*ullage\.runtime\.weights"
    ) as error:
        checked((code,), "moving")
    assert isinstance(error.value, NotOfferedError)


@contextmanager
def installed(monkeypatch: pytest.MonkeyPatch, version: str | None) -> Any:
    package, module = ModuleType("cuda"), ModuleType("cuda.bindings")
    module.__dict__.update(__version__=version, runtime=FakeRuntime())
    package.__dict__["bindings"] = module
    monkeypatch.setitem(sys.modules, "cuda", package)
    monkeypatch.setitem(sys.modules, "cuda.bindings", module if version else None)
    bindings.cuda_runtime.cache_clear()
    yield
    bindings.cuda_runtime.cache_clear()


@pytest.mark.parametrize(
    ("version", "words"), [(None, "cuda-bindings, which is missing"), ("12.9.1", "12.9.1 is too old")]
)
def test_missing_and_old_bindings_are_said(monkeypatch: pytest.MonkeyPatch, version: str | None, words: str) -> None:
    with installed(monkeypatch, version), pytest.raises(DeviceError, match=words) as error:
        cuda_runtime()
    assert "pip install 'ullage[managed]'" in str(error.value)


def test_new_bindings_are_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    with installed(monkeypatch, "13.5.0"):
        assert isinstance(cuda_runtime(), FakeRuntime)
