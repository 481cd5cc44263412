"""Copies and kinds of memory are measured in rounds, and rounds that were disturbed do not count."""

from __future__ import annotations

from collections.abc import Callable
from itertools import cycle

import pytest

from tests.unit.runtime.probe.fake_gpu import GB, GIB, MIB, FakeGpu, made_up
from ullage.runtime.probe import rounds
from ullage.runtime.probe.copies import measure_copies
from ullage.runtime.probe.core import CoreWatch
from ullage.runtime.probe.gpu import Block, MemoryKind, Run
from ullage.runtime.probe.rounds import measure_rounds
from ullage.runtime.probe.sizes import sizes_for


def disturbed(monkeypatch: pytest.MonkeyPatch, speeds: list[int]) -> FakeGpu:
    """A GPU whose blocks of pageable memory are as fast as where the system puts them."""
    gpu = FakeGpu()
    given = cycle(speeds)
    allocate: Callable[[MemoryKind, int], Block] = gpu.allocate

    def elsewhere(kind: MemoryKind, size_bytes: int) -> Block:
        if kind == "pageable":
            gpu.speeds.pageable = next(given)
        return allocate(kind, size_bytes)

    monkeypatch.setattr(gpu, "allocate", elsewhere)
    return gpu


def test_slow_rounds_do_not_count_even_where_they_are_most(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = disturbed(monkeypatch, [3 * GB, 12 * GB, 12 * GB, 3 * GB, 4 * GB, 3 * GB])
    copies, kinds = measure_rounds(gpu, sizes_for(gpu.free_bytes(), 50 * MIB), CoreWatch(gpu.loop_ns), lambda _: None)
    assert not gpu.live
    for curve in copies:
        top = 12 * GB if curve.kind == "pageable" else 55 * GB
        assert curve.top_bytes_per_s == pytest.approx(top, rel=0.01)
    read = {one.kind: one.read for one in kinds}["pageable"]
    assert read is not None
    assert read.timing is not None
    assert read.bytes_per_s == pytest.approx(12 * GB, rel=0.01)
    assert read.timing.p90_ns > 3 * read.timing.time_ns  # the spread shows them


def test_of_a_round_the_quick_copies_count(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = FakeGpu()
    given = cycle([4 * GB, 3 * GB, 12 * GB, 5 * GB])
    copying = gpu.copying

    def unsteady(target: Block, source: Block, size_bytes: int) -> Run:
        gpu.speeds.pageable = next(given)
        return copying(target, source, size_bytes)

    monkeypatch.setattr(gpu, "copying", unsteady)
    sizes = sizes_for(gpu.free_bytes(), 50 * MIB, host_bytes=128 * GIB)
    point = measure_copies(gpu, ("pageable",), sizes, CoreWatch(gpu.loop_ns))[0].points[-2]
    assert point.size_bytes == 64 * MIB
    assert point.bytes_per_s == pytest.approx(12 * GB, rel=0.01)
    assert point.size_bytes * 1e9 / point.in_stream.p90_ns == pytest.approx(3 * GB, rel=0.01)


def test_text_says_what_is_slower_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    text = str(made_up(disturbed(monkeypatch, [3 * GB, 12 * GB, 12 * GB, 3 * GB, 4 * GB, 3 * GB])))
    unsteady = " ".join(text.split())
    assert "In a usual round, one in ten is slower than: pageable copied: first read" in unsteady
    assert "slower than" not in str(made_up())


def test_what_changed_meanwhile_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = disturbed(monkeypatch, [12 * GB] * 20 + [8 * GB] * 10)  # the last third of the rounds
    result = made_up(gpu, num_rounds=30)
    read = {one.kind: one.read for one in result.kinds}["pageable"]
    assert read is not None
    assert read.timing is not None
    assert read.timing.drift_percent == 50
    assert read.bytes_per_s == pytest.approx(12 * GB, rel=0.01)
    said = "The host was not steady meanwhile: pageable copied by 50 %. Another probe may differ by as much."
    assert said in " ".join(str(result).split())
    assert "not steady" not in str(made_up())


def test_one_lucky_round_does_not_count_either(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = disturbed(monkeypatch, [12 * GB] * 15 + [40 * GB])
    _, kinds = measure_rounds(gpu, sizes_for(gpu.free_bytes(), 50 * MIB), CoreWatch(gpu.loop_ns), lambda _: None)
    read = {one.kind: one.read for one in kinds}["pageable"]
    assert read is not None
    assert read.bytes_per_s == pytest.approx(12 * GB, rel=0.01)


def test_rounds_end_with_the_budget_and_six_are_made_at_least(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = FakeGpu()
    monkeypatch.setattr(rounds, "_BUDGET_S", 0)
    copies, _ = measure_rounds(gpu, sizes_for(gpu.free_bytes(), 50 * MIB), CoreWatch(gpu.loop_ns), lambda _: None)
    by_kind = {one.kind: one.points[-2].in_stream.num_timed for one in copies}
    # Copies of 64 MiB go once through a block of 256 MiB; pinned ones in each fifth round.
    assert by_kind == {"pageable": 6 * 4, "pinned": 2 * 4}


def test_a_part_that_fails_in_any_round_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = FakeGpu()
    allocate: Callable[[MemoryKind, int], Block] = gpu.allocate
    num_calls = 0

    def failing(kind: MemoryKind, size_bytes: int) -> Block:
        nonlocal num_calls
        num_calls += kind == "managed"
        if kind == "managed" and num_calls > 7:
            raise RuntimeError("out of memory")
        return allocate(kind, size_bytes)

    monkeypatch.setattr(gpu, "allocate", failing)
    _, kinds = measure_rounds(gpu, sizes_for(gpu.free_bytes(), 50 * MIB), CoreWatch(gpu.loop_ns), lambda _: None)
    assert {one.kind for one in kinds if one.why == "out of memory"} == {"managed_by_fault", "managed_prefetched"}
    assert not gpu.live
