"""Advice follows the figures, also where they say the opposite of what is usual."""

from __future__ import annotations

import dataclasses

import pytest

from tests.unit.runtime.probe.fake_gpu import GB, GIB, HOST, MIB, FakeGpu, Speeds, made_up
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
    assert found["allocation"][0][0] == "Take short-lived memory from PyTorch's cache or a warm stream-ordered pool."
    assert len(found["from_managed"]) == 5
    assert all(any(char.isdigit() for char in because) for lines in found.values() for _, because in lines)


def pinning(milliseconds: float) -> FakeGpu:
    gpu = FakeGpu()
    gpu.speeds.allocation_ns["pinned", "cold"] = (milliseconds * 1e6, 0)
    return gpu


def test_a_pinned_buffer_is_kept_and_a_new_one_pays_after_as_many_copies_as_it_costs() -> None:
    # 256 MiB: fresh pageable pages cost 16.4 ms, a copy saves 17.5 ms: (84 - 16.4) / 17.5 is 3.9
    do, because = advice(pinning(84))["large_copies"][0]
    assert do == (
        "Copy through a pinned buffer that is kept; a new one of 256 MiB pays from about 4 copies on, smaller ones later."
    )
    assert because == (
        "256 MiB: a new pinned buffer, and its free, cost 84 ms, touching as many fresh pageable pages 16.4 ms; "
        "a copy saves 17.5 ms."
    )
    assert "pays from the first copy on, smaller ones later." in advice(pinning(33))["large_copies"][0][0]


def test_where_pinning_costs_less_than_touching_even_one_copy_is_pinned() -> None:
    large_alone = "Pin fresh buffers even for one copy, from 256 MiB on; keep smaller ones."
    assert advice(pinning(16))["large_copies"][0][0] == large_alone
    assert advice(pinning(0))["large_copies"][0][0] == "Pin fresh buffers even for one copy."


def test_a_pinned_buffer_is_held_against_a_copy_of_its_own_size_or_not_at_all() -> None:
    small = pinning(15)
    small._free = 17 * MIB  # copies up to 4 MiB, buffers of 1 MiB and less
    do, because = advice(small)["large_copies"][0]
    assert "a new one of 1 MiB pays from about " in do
    assert because.startswith("1 MiB: ")
    result = made_up()
    odd = [dataclasses.replace(one, points=one.points[-3:-2]) for one in result.copies]  # of 16 MiB alone
    allocations = [
        dataclasses.replace(one, points=one.points[:3] if one.way == "pinned" else one.points)
        for one in result.allocations
    ]
    result = dataclasses.replace(result, copies=tuple(odd), allocations=tuple(allocations))
    assert "large_copies" not in {one.topic for one in advise(result)}


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


def test_where_little_is_free_the_size_that_was_measured_is_named() -> None:
    said = advice(FakeGpu(free=64 * MIB))
    assert said["allocation"][0][1].startswith("16 MiB, allocated and freed: ")
    assert any(because.startswith("16 MiB: ") for _, because in said["from_managed"])


def test_a_level_that_chains_see_further_out_is_named_too() -> None:
    result = made_up()
    gather = result.tlb("gather")
    assert gather is not None
    further = dataclasses.replace(gather, pattern="chain", reach_bytes=61 * GIB, num_entries=1952, page_bytes=32 * MIB)
    said = [one for one in advise(dataclasses.replace(result, tlbs=(gather, further))) if one.topic == "random_access"]
    assert said[1].do == "Above all within 61 GiB: there another level of the TLB ends."
    assert said[1].because.endswith("of a full GPU, 44.7 ps within it, 44.8 ps over 64 GiB.")


def test_random_access_is_advised_on_only_where_a_reach_ends() -> None:
    ((do, because),) = advice()["random_access"]
    assert do == "Keep what is read at random within 512 MiB, or sort the accesses."
    assert "costs 15 ps; beyond, each that misses 30 ps more (256 entries for pages of 2 MiB)" in because
    flat = changed(tlb_reach=1 << 50, hit_ns=150, first_visit_ns=140)
    assert "random_access" not in advice(flat)


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
