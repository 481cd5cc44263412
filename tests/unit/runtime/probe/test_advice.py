"""Advice follows the figures, also where they say the opposite of what is usual."""

from __future__ import annotations

import dataclasses

import pytest

from tests.unit.runtime.probe.fake_gpu import GB, HOST, FakeGpu, Speeds, made_up
from ullage.runtime.probe.advice import advise
from ullage.runtime.probe.result import Machine, ProbeResult


def advice(gpu: FakeGpu | None = None) -> dict[str, list[tuple[str, str]]]:
    found: dict[str, list[tuple[str, str]]] = {}
    for one in advise(made_up(gpu)):
        found.setdefault(one.topic, []).append((one.do, one.because))
    return found


def changed(**speeds: float) -> FakeGpu:
    return FakeGpu(dataclasses.replace(Speeds(), **speeds))  # type: ignore[arg-type]


def over_c2c() -> FakeGpu:
    speeds = dataclasses.replace(
        Speeds(), pinned=370 * GB, pageable=300 * GB, mapped=410 * GB, fault=380 * GB, prefetch=300 * GB
    )
    return FakeGpu(speeds, has_pageable_access=True, shares_page_tables=True)


def test_behind_pcie_it_is_the_usual_advice_each_line_with_its_figures() -> None:
    found = advice()
    assert list(found) == [
        "small_copies",
        "large_copies",
        "read_once",
        "used_again",
        "larger_than_gpu",
        "allocation",
        "random_access",
        "from_managed",
    ]
    assert found["small_copies"][0][0].startswith("Pack copies below 121 KiB")
    assert "9.07 µs" in found["small_copies"][0][1]
    assert found["used_again"][0][0] == "Copy it to the GPU."
    assert found["larger_than_gpu"][0][0].startswith("Stream weights from pinned memory by copies")
    assert "by fault 1.75 GB/s" in found["larger_than_gpu"][0][1]
    assert found["allocation"][0][0] == "Take short-lived memory from PyTorch's cache."
    assert len(found["from_managed"]) == 5
    assert all(any(char.isdigit() for char in because) for lines in found.values() for _, because in lines)


def test_pinning_pays_after_as_many_copies_as_it_costs() -> None:
    assert advice()["large_copies"][0][0] == "Pin even what is copied once."  # 15 ms against 17.5 ms saved
    dear = FakeGpu()
    dear.speeds.allocation_ns["pinned", "cold"] = (40e6, 20e6)
    do, because = advice(dear)["large_copies"][0]
    assert do.startswith("Pin what is copied 4 times or more")
    assert "to pin and unpin it takes 60 ms, a copy saves 17.5 ms" in because


def test_where_pageable_copies_are_as_fast_pinning_gains_nothing() -> None:
    assert advice(changed(pageable=54 * GB))["large_copies"][0][0].startswith("Copy from memory as it is")


def test_where_the_link_is_slow_in_place_what_is_read_once_is_copied() -> None:
    assert advice(changed(mapped=20 * GB))["read_once"][0][0].startswith("Copy it to the GPU from pinned memory")


def test_over_c2c_host_memory_is_read_in_place_and_managed_memory_stays() -> None:
    found = advice(over_c2c())
    assert found["read_once"][0][0].startswith("Let the kernel read host memory in place")
    assert found["larger_than_gpu"][0][0] == "Leave weights in host memory and read them in place."
    assert found["from_managed"] == [
        (
            "Stay with managed memory: its faults cost nothing here.",
            "First read after a host write 380 GB/s, a pinned copy 369 GB/s.",
        )
    ]
    assert found["used_again"][0][0] == "Copy what is read 2 times or more to the GPU's memory."


def test_where_host_and_gpu_share_one_memory_nothing_is_copied_for_reuse() -> None:
    shared = changed(mapped=4300 * GB)
    assert advice(shared)["used_again"][0][0] == "Leave it where it is: reads are as fast there."


def test_without_concurrent_access_managed_memory_is_no_way_past_the_gpus_size() -> None:
    found = advice(FakeGpu(has_concurrent_managed=False))
    do, because = found["larger_than_gpu"][0]
    assert do.endswith("Managed memory cannot be larger than the GPU, nor prefetched, here.")
    assert "prefetched" not in because
    assert len(found["from_managed"]) == 4  # no line on prefetching


def test_where_all_allocators_cost_the_same_any_does() -> None:
    gpu = FakeGpu()
    for key in gpu.speeds.allocation_ns:
        gpu.speeds.allocation_ns[key] = (1_000, 1_000)
    assert advice(gpu)["allocation"][0][0].startswith("Any allocator does")


def test_a_pool_that_is_faster_than_pytorchs_cache_is_named() -> None:
    gpu = FakeGpu()
    gpu.speeds.allocation_ns["torch", "warm"] = (9_000, 9_000)
    assert advice(gpu)["allocation"][0][0] == "Take short-lived memory from a warm stream-ordered pool."


@pytest.mark.parametrize(
    ("broken", "gone"),
    [
        ("pinned", {"small_copies", "large_copies", "read_once", "used_again", "larger_than_gpu", "from_managed"}),
        ("mapped", {"read_once", "used_again"}),
        ("managed", {"from_managed"}),
        (
            "torch",
            {
                "small_copies",
                "large_copies",
                "read_once",
                "used_again",
                "larger_than_gpu",
                "random_access",
                "from_managed",
            },
        ),
    ],
)
def test_what_was_not_measured_is_not_advised_on(broken: str, gone: set[str]) -> None:
    assert set(advice()) - set(advice(FakeGpu(broken={broken: "needs cuda-bindings"}))) == gone


def test_without_a_gpu_there_is_no_advice() -> None:
    assert advise(ProbeResult(machine=Machine(), host=HOST, why_no_gpu="no driver")) == ()
