"""Memory that is faster or slower by where the system put it is measured in several blocks."""

from __future__ import annotations

from collections.abc import Callable
from itertools import cycle

import pytest

from tests.unit.runtime.probe.fake_gpu import GB, MIB, FakeGpu
from ullage.runtime.probe.gpu import Block, MemoryKind
from ullage.runtime.probe.kinds import measure_kinds


def test_one_slow_block_of_pageable_memory_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = FakeGpu()
    speeds = cycle([12 * GB, 12 * GB, 3 * GB, 12 * GB, 12 * GB])
    allocate: Callable[[MemoryKind, int], Block] = gpu.allocate

    def elsewhere(kind: MemoryKind, size_bytes: int) -> Block:
        if kind == "pageable":
            gpu.speeds.pageable = next(speeds)
        return allocate(kind, size_bytes)

    monkeypatch.setattr(gpu, "allocate", elsewhere)
    found = {one.kind: one for one in measure_kinds(gpu, 64 * MIB, 64 * MIB)}
    read = found["pageable"].read
    assert read is not None
    assert read.timing is not None
    assert abs(64 * MIB / read.timing.median_ns * 1e9 / (12 * GB) - 1) < 0.01
    assert read.timing.p90_ns > 3 * read.timing.median_ns
    assert not gpu.live
