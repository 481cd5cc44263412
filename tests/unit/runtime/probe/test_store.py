"""The last probe is kept for each GPU and driver, as JSON that comes back as it was; no file there is an obstacle."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.unit.runtime.probe.fake_gpu import HOST, FakeGpu, made_up
from ullage.errors import DeviceError
from ullage.runtime.probe import identity, measure, store
from ullage.runtime.probe.identity import Identity, NoSuchGpuError, identify
from ullage.runtime.probe.plain import from_plain, plain
from ullage.runtime.probe.result import FORMAT, Machine, ProbeResult, Sample

FOUND = Identity(
    index=0,
    name="NVIDIA H200",
    uuid="",
    driver="580.159.03",
    l2_bytes=1,
    num_processors=1,
    has_concurrent_managed=True,
    has_pageable_access=False,
    shares_page_tables=False,
)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ULLAGE_CACHE", str(tmp_path / "cache"))


def answers(found: Identity | str) -> Any:
    def answer(device: int = 0) -> Identity:
        if isinstance(found, str):
            raise DeviceError(found)
        return found

    return answer


def test_a_result_comes_back_as_it_was() -> None:
    result = made_up(FakeGpu(broken={"managed": "not supported"}))
    assert from_plain(ProbeResult, json.loads(json.dumps(result.to_json()))) == result


def test_json_has_whole_numbers_and_the_keys_that_scripts_read() -> None:
    data = made_up().to_json()
    assert list(data) == [
        "format",
        "machine",
        "host",
        "copies",
        "kinds",
        "allocations",
        "device",
        "strides",
        "reach",
        "tlbs",
        "took_ms",
        "why_no_gpu",
        "advice",
    ]
    assert {"gpu", "driver", "torch", "ullage", "date"} <= set(data["machine"])
    assert set(data["copies"][0]["points"][0]["in_stream"]) == {
        "time_ns",
        "p10_ns",
        "p90_ns",
        "num_timed",
        "drift_percent",
        "shared_percent",
    }
    assert isinstance(data["device"][0]["bytes_per_s"], int)
    assert set(data["advice"][0]) == {"topic", "do", "because"}
    assert "." not in "".join(char for char in json.dumps(figures(data)) if char in ".0123456789")


def figures(data: Any) -> Any:
    """Leave only the numbers."""
    if isinstance(data, dict):
        return [figures(one) for one in data.values()]
    if isinstance(data, list):
        return [figures(one) for one in data]
    return 0 if isinstance(data, str) else data


def test_the_last_result_is_known_for_its_gpu_and_driver_only(monkeypatch: pytest.MonkeyPatch) -> None:
    result = made_up()
    monkeypatch.setattr(store, "identify", answers(FOUND))
    assert store.known_probe() is None
    assert store.keep_probe(result)
    assert store.known_probe() == store.last_probe() == result
    monkeypatch.setattr(store, "identify", answers(Identity(**{**plain(FOUND), "driver": "590.1"})))
    assert store.known_probe() is None
    monkeypatch.setattr(store, "identify", answers("no driver"))
    assert store.known_probe() is None


def test_what_was_measured_before_first_visits_were_left_out_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "identify", answers(FOUND))
    store.keep_probe(made_up())
    path = store.probe_path(FOUND.name, FOUND.driver)
    path.write_text(json.dumps(json.loads(path.read_text()) | {"format": 1}))
    assert store.known_probe() is None


def test_of_a_gpu_that_torch_cannot_use_the_last_result_is_the_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "identify", answers(FOUND))
    monkeypatch.setattr(measure, "identify", answers(FOUND))
    monkeypatch.setattr(measure, "measure_host", lambda: HOST)
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    result = measure.probe()
    assert result.why_no_gpu is not None
    assert store.last_probe() == result
    assert store.known_probe() is None


class Driver:
    """A stand-in for libcuda.so.1 with so many GPUs."""

    def __init__(self, num_gpus: int) -> None:
        self._num_gpus = num_gpus

    def cuInit(self, flags: int) -> int:  # noqa: N802
        return 0

    def cuDeviceGetCount(self, count: Any) -> int:  # noqa: N802
        count._obj.value = self._num_gpus
        return 0


class DescribedDriver(Driver):
    """One that names its GPUs, each with a uuid that ends in its number, and knows no attributes."""

    def cuDeviceGet(self, handle: Any, index: int) -> int:  # noqa: N802
        handle._obj.value = index
        return 0

    def cuDeviceGetName(self, name: Any, size: int, handle: Any) -> int:  # noqa: N802
        name.value = b"NVIDIA H200"
        return 0

    def cuDeviceGetAttribute(self, value: Any, number: int, handle: Any) -> int:  # noqa: N802
        return 0

    def cuDeviceGetUuid_v2(self, raw: Any, handle: Any) -> int:  # noqa: N802
        raw[:] = [0xAB, *[0] * 14, handle.value]
        return 0


def test_gpus_of_one_name_are_told_apart_as_nvidia_smi_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identity, "_driver_version", lambda driver: "580.1")
    monkeypatch.setattr(identity.ctypes, "CDLL", lambda name: DescribedDriver(2))
    assert [identify(index).uuid for index in (0, 1)] == [
        "GPU-ab000000-0000-0000-0000-000000000000",
        "GPU-ab000000-0000-0000-0000-000000000001",
    ]
    monkeypatch.delattr(DescribedDriver, "cuDeviceGetUuid_v2")  # as in drivers older than CUDA 11.4
    assert (identify().name, identify().uuid) == ("NVIDIA H200", "")


def test_a_gpu_that_is_not_there_is_told_from_none_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "measure_host", lambda: HOST)
    monkeypatch.setattr(identity.ctypes, "CDLL", lambda name: Driver(1))
    for call in (measure.probe, store.last_probe):
        with pytest.raises(NoSuchGpuError, match="there is no GPU 7: the driver offers 1 GPU, counted from 0"):
            call(device=7)
    assert store.known_probe(device=7) is None
    assert not store.probe_path("", "").exists()
    monkeypatch.setattr(identity.ctypes, "CDLL", lambda name: Driver(0))
    assert measure.probe(device=7, keep=False).why_no_gpu == "the NVIDIA driver offers no GPU"


def test_the_host_has_a_file_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "identify", answers("no driver"))
    assert store.last_probe() is None
    result = ProbeResult(machine=Machine(), host=HOST, why_no_gpu="no driver")
    store.keep_probe(result)
    assert store.last_probe() == result
    assert store.known_probe() is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "{}",
        '{"format": 0}',
        f'{{"format": {FORMAT}}}',
        f'{{"format": {FORMAT}, "machine": 3, "host": {{}}}}',
    ],
)
def test_a_file_that_cannot_be_understood_is_as_good_as_none(text: str, tmp_path: Path) -> None:
    path = store.probe_path("NVIDIA H200", "580.159.03")
    path.parent.mkdir(parents=True)
    path.write_text(text)
    assert store.stored_probe("NVIDIA H200", "580.159.03") is None


@pytest.mark.parametrize(
    "data",
    [
        {"name": 1, "size_bytes": 2},
        {"name": "a"},
        {"name": "a", "size_bytes": "2"},
        {"name": "a", "size_bytes": 2, "timing": {"time_ns": 1.5}},
        [],
    ],
)
def test_data_of_another_type_is_refused(data: Any) -> None:
    with pytest.raises(ValueError, match=r".+"):
        from_plain(Sample, data)


def test_unknown_keys_are_left_out() -> None:
    assert from_plain(Sample, {"name": "a", "size_bytes": 2, "later": 3}) == Sample(name="a", size_bytes=2)


def test_a_probe_is_kept_and_dated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "identify", answers("no driver"))
    monkeypatch.setattr(measure, "measure_host", lambda: HOST)
    said: list[str] = []
    result = measure.probe(version="1.2", progress=said.append)
    assert (result.machine.ullage, result.why_no_gpu) == ("1.2", "no driver")
    assert result.machine.date.endswith("+00:00")
    assert said == ["the host's memory"]
    assert store.stored_probe("", "") == result


def test_a_gpu_that_torch_cannot_use_leaves_the_host_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "identify", answers(FOUND))
    monkeypatch.setattr(measure, "measure_host", lambda: HOST)
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    result = measure.probe(keep=False)
    assert result.why_no_gpu is not None
    assert result.why_no_gpu.startswith("torch ")
    assert store.stored_probe("", "") is None


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (OSError("libcublas.so.12: file too short\nmore"), "torch cannot be loaded: libcublas.so.12: file too short"),
        (ImportError("libc10.so: no such file"), "torch cannot be loaded: libc10.so: no such file"),
        (ModuleNotFoundError("No module named 'torch'"), "torch is missing: pip install 'ullage[probe]'"),
    ],
)
def test_a_torch_that_cannot_be_loaded_leaves_the_host(
    error: Exception, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Broken:
        def find_spec(self, name: str, *_: object) -> None:
            if name == "torch":
                raise error

    monkeypatch.setattr(measure, "identify", answers(FOUND))
    monkeypatch.setattr(measure, "measure_host", lambda: HOST)
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Broken(), *sys.meta_path])
    assert measure.probe(keep=False).why_no_gpu == why


def test_without_a_driver_identify_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise OSError(name)

    monkeypatch.setattr(identity.ctypes, "CDLL", missing)
    with pytest.raises(DeviceError, match="no NVIDIA driver"):
        identify()
