"""All parts of a probe, driven by a made-up GPU: each figure is the one that its speeds foretell."""

from __future__ import annotations

import dataclasses

import pytest
from benchmarks.run_probe import knee_differences, knees

from tests.unit.runtime.probe.fake_gpu import GB, GIB, HOST, MIB, FakeGpu, Speeds, made_up
from ullage.errors import DeviceError
from ullage.runtime.probe.gpu import MemoryKind, reason_of
from ullage.runtime.probe.host import measure_host
from ullage.runtime.probe.measure import measure_gpu
from ullage.runtime.probe.sizes import sizes_for
from ullage.runtime.probe.timing import Timing, repeated, timing_of, timing_of_round, timing_of_rounds


def test_speeds_of_copies_and_the_size_of_half_speed() -> None:
    result = made_up()
    pinned = result.copy_curve("pinned", "to_gpu")
    assert pinned is not None
    assert [point.size_bytes for point in pinned.points] == [4096 * 4**step for step in range(9)]
    assert pinned.top_bytes_per_s == pytest.approx(55 * GB, rel=0.01)
    assert pinned.points[0].latency.time_ns == 7_000 + 2_000 + round(4096 / 55)
    assert pinned.half_speed_bytes == pytest.approx(2_000 * 55, rel=0.15)
    pageable = result.copy_curve("pageable", "to_host")
    assert pageable is not None
    assert pageable.top_bytes_per_s == pytest.approx(12 * GB, rel=0.01)


def test_each_kind_of_memory_gives_what_it_gives() -> None:
    result = made_up()
    read = {one.kind: (one.first_read, one.read) for one in result.kinds if one.why is None}
    rates = {kind: [one.bytes_per_s / GB for one in pair if one and one.bytes_per_s] for kind, pair in read.items()}
    assert rates["pageable"] == pytest.approx([12, 12], rel=0.02)
    assert rates["mapped"] == pytest.approx([50, 50], rel=0.02)
    assert rates["managed_by_fault"] == pytest.approx([1.75, 4400], rel=0.02)
    assert rates["managed_prefetched"] == pytest.approx([47.5, 4400], rel=0.02)
    assert rates["stream_ordered"] == pytest.approx([4400, 4400], rel=0.02)
    assert "pageable_in_place" not in rates
    assert "pageable_in_place" in {
        one.kind for one in result.kinds if one.why == "this GPU cannot read pageable memory"
    }


def test_the_device_its_cache_its_strides_and_its_reach() -> None:
    result = made_up()
    assert result.device_rate("read") == result.device_rate("copy") == pytest.approx(4400 * GB, rel=0.01)
    assert result.device_rate("l2_read") == pytest.approx(7000 * GB, rel=0.01)
    assert {one.name: round((one.bytes_per_s or 0) / GB) for one in result.strides} == pytest.approx(
        {"4": 4400, "8": 2200, "16": 1100, "32": 550, "64": 550, "128": 550, "256": 550, "1024": 550}, rel=0.01
    )
    assert [(one.pattern, one.page_bytes, one.num_entries) for one in result.tlbs] == [
        ("gather", 2 * MIB, 256),
        ("chain", 2 * MIB, 256),
    ]
    assert {one.pattern for one in result.reach if one.knee_bytes} == {"chain", "gather"}


def without_tlb() -> FakeGpu:
    """A GPU whose places cost 290 ns at their first visit and 150 ns from then on, however many there are."""
    return FakeGpu(dataclasses.replace(Speeds(), tlb_reach=1 << 50, hit_ns=150, first_visit_ns=140))


def test_first_visits_are_no_knee() -> None:
    result = made_up(without_tlb())
    assert {round(point.step_ns) for one in result.reach if one.pattern == "chain" for point in one.points} == {150}
    assert {one.knee_bytes for one in result.reach if one.points} == {None}
    assert result.tlbs == ()


def test_a_chain_is_timed_in_whole_laps() -> None:
    for curve in made_up().reach:
        places = [point.footprint_bytes // curve.stride_bytes for point in curve.points]
        assert max(places) <= 65_536
        assert min(places) == 16
        if curve.pattern == "chain":
            assert [point.num_accesses % num for point, num in zip(curve.points, places, strict=True)] == [0] * len(
                places
            )


def test_first_visits_do_not_hide_a_tlb() -> None:
    tlb = made_up(FakeGpu(dataclasses.replace(Speeds(), first_visit_ns=140))).tlb("chain")
    assert tlb is not None
    assert (tlb.page_bytes, tlb.num_entries) == (2 * MIB, 256)
    assert (tlb.hit_ps, tlb.miss_ps) == (pytest.approx(300_000, rel=0.01), pytest.approx(600_000, rel=0.01))


@pytest.mark.parametrize(("free", "most"), [(80 * GIB, 40 * GIB), (139 * GIB, 126 * GIB)])
def test_half_of_what_is_free_is_taken_or_most_of_it_where_nobody_else_is_there(free: int, most: int) -> None:
    gpu = FakeGpu(free=free)  # of 140 GiB
    made_up(gpu)
    assert gpu.live == {}
    assert 0.9 * most < gpu.most_bytes <= most


@pytest.mark.parametrize("free", [8 * MIB, 100 * MIB, GIB, 3 * GIB])
def test_where_little_is_free_less_is_taken(free: int) -> None:
    gpu = FakeGpu(free=free)
    result = made_up(gpu)
    assert gpu.live == {}
    assert gpu.most_bytes <= free
    assert result.device_rate("read") == pytest.approx(4400 * GB, rel=0.01)


def test_blocks_of_host_memory_are_limited() -> None:
    sizes = sizes_for(1 << 40, 50 * MIB, host_bytes=1 << 40)
    assert sizes.block("pageable") == 512 * MIB
    assert (
        {sizes.block(kind) for kind in ("pinned", "mapped", "managed")} == {256 * MIB} == {max(sizes.host_allocations)}
    )


@pytest.mark.parametrize(("free", "host"), [(1 << 40, 2 * GIB), (2 * GIB, 1 << 40), (1 << 40, 0)])
def test_blocks_are_smaller_where_either_side_has_little_or_the_host_does_not_say(free: int, host: int) -> None:
    sizes = sizes_for(free, 50 * MIB, host_bytes=host)
    assert sizes.block("pageable") == sizes.block("managed") == 256 * MIB


def test_the_block_for_dram_is_far_larger_than_the_cache_and_the_cached_one_fits() -> None:
    sizes = sizes_for(128 * GIB, 126 * MIB)
    assert sizes.device >= 8 * 126 * MIB
    assert sizes.cached <= 126 * MIB // 2


def test_too_little_memory_is_an_error_that_says_how_much_it_takes() -> None:
    with pytest.raises(DeviceError, match=r"only 3 MiB of the GPU are free: a probe needs 4 MiB"):
        measure_gpu(FakeGpu(free=3 * MIB), HOST, lambda _: None)


@pytest.mark.parametrize("kind", ["pageable", "pinned", "mapped", "managed", "stream_ordered", "device", "torch"])
def test_one_kind_that_fails_leaves_the_others(kind: MemoryKind) -> None:
    gpu = FakeGpu(broken={kind: "needs cuda-bindings"})
    result = made_up(gpu)
    assert gpu.live == {}
    failed = {one.kind for one in result.kinds if one.why == "needs cuda-bindings"}
    rows = {"torch": {"pageable", "pinned"}, "managed": {"managed_by_fault", "managed_prefetched"}}
    assert failed == rows.get(kind, {kind})
    assert "needs cuda-bindings" in str(result)
    assert len([one for one in result.kinds if one.why is None]) >= 4


def test_a_kind_that_fails_halfway_is_given_back() -> None:
    class Failing(FakeGpu):
        def prefetching(self, block: object) -> object:  # type: ignore[override]
            raise RuntimeError("CUDA error: not supported\nmore")

    gpu = Failing()
    result = made_up(gpu)
    assert gpu.live == {}
    assert [one.why for one in result.kinds if one.kind == "managed_prefetched"] == ["CUDA error: not supported"]


def test_without_concurrent_access_nothing_is_prefetched() -> None:
    result = made_up(FakeGpu(has_concurrent_managed=False))
    prefetched = next(one for one in result.kinds if one.kind == "managed_prefetched")
    assert prefetched.why == "this GPU cannot prefetch managed memory"
    assert result.kind("managed_by_fault") is not None


def test_two_probes_of_the_same_machine_agree() -> None:
    one, other = made_up(FakeGpu()), made_up(FakeGpu())
    assert one == other


def test_two_probes_whose_knees_differ_are_shown_to() -> None:
    one, other, flat = (
        knees(made_up(FakeGpu(dataclasses.replace(Speeds(), tlb_reach=reach)))) for reach in (GIB // 2, GIB, 1 << 50)
    )
    before, after, change = knee_differences(one, other)["knee gather 2 MiB"]
    assert before is not None  # 300 + 600 (1 - 512 / f) is 450 at f = 683
    assert before == pytest.approx(683 * MIB, rel=0.05)
    assert after == pytest.approx(2 * before, rel=0.01)
    assert change == pytest.approx(1, rel=0.01)
    assert knee_differences(one, flat)["knee gather 2 MiB"] == (before, None, None)
    assert knee_differences(flat, flat) == {}


def test_slower_links_give_larger_half_sizes_no_matter_the_rest() -> None:
    halves = []
    for cost in (1_000.0, 4_000.0):
        curve = made_up(FakeGpu(dataclasses.replace(Speeds(), copy_ns=cost))).copy_curve("pinned", "to_gpu")
        assert curve is not None
        assert curve.half_speed_bytes is not None
        halves.append(curve.half_speed_bytes)
    assert halves[1] == pytest.approx(4 * halves[0], rel=0.15)


def test_the_host_alone_is_measured() -> None:
    host = measure_host()
    assert [one.size_bytes for one in host.copies] == [4096 * 4**step for step in range(9)]
    assert all(one.bytes_per_s for one in host.copies)
    assert host.first_touch.timing is not None


def test_measurements_are_repeated_as_the_budget_allows() -> None:
    asked: list[int] = []

    def times(num: int) -> list[float]:
        asked.append(num)
        return [1_000_000.0] * num

    assert repeated(times, budget_ns=20_000_000).num_timed == 20
    assert repeated(times, budget_ns=1).num_timed == 7
    assert repeated(times, budget_ns=1e12).num_timed == 101
    assert asked == [2, 20, 2, 7, 2, 101]


def test_a_spread_is_kept() -> None:
    timing = timing_of([float(one) for one in range(101)])
    assert (timing.p10_ns, timing.time_ns, timing.p90_ns, timing.num_timed) == (10, 50, 90, 101)


def test_the_spread_of_rounds_is_that_of_a_usual_one() -> None:
    joined = timing_of_rounds([timing_of_round([ten, ten * 2.0]) for ten in (100.0, 300.0, 200.0)])
    assert joined == Timing(
        time_ns=132, p10_ns=220, p90_ns=380, num_timed=6, drift_percent=200
    )  # of 110, 220 and 330: a fifth of the way


def test_reasons_are_one_short_line() -> None:
    assert reason_of(RuntimeError("CUDA error: a\nb")) == "CUDA error: a"
    assert reason_of(MemoryError()) == "MemoryError"
    assert len(reason_of(RuntimeError("x" * 500))) == 100
