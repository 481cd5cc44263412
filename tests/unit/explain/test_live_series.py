"""Bytes live by line over time: the lines add up to allocated at every sample, and nothing that was large is lost."""

from __future__ import annotations

import numpy as np
import pytest

from tests.recordings import EXPECTED, device_of
from tests.unit.conftest import Load
from tests.unit.snapshot_builder import MIB, SimulatedOutOfMemoryError, SnapshotBuilder
from ullage.errors import UllageError
from ullage.explain.attribution import leads_of
from ullage.explain.live_series import OTHER, LiveSeries, live_columns, live_extremes
from ullage.trace import BEFORE, NONE

A, B, C = ("train.py:1 load", "train.py:2 forward", "train.py:3 log")


def names(series: LiveSeries) -> list[str]:
    return [str(line) for line in series.lines]


@pytest.mark.parametrize("num_columns", [1, 13, 400])
@pytest.mark.parametrize("num_lines", [0, 1, 6])
@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_the_lines_add_up_to_allocated_at_every_sample(name: str, num_lines: int, num_columns: int) -> None:
    device = device_of(name)
    for series in (
        live_extremes(device, num_columns, num_lines=num_lines),
        live_columns(device, num_columns, num_lines=num_lines),
    ):
        counted = np.append(device.history.before[1], device.counters.allocated_bytes)[series.events + 1]
        assert series.line_bytes.min(initial=0) >= 0
        assert series.line_bytes.sum(axis=0).tolist() == counted.tolist() == series.allocated_bytes.tolist()
        assert series.allocated_bytes.max() == device.peak.allocated_bytes
        assert series.reserved_bytes.max() == device.peak.reserved_bytes


@pytest.mark.parametrize("name", ["split_mix", "late_start", "metadata", "survivors", "kv_growth"])
def test_each_line_is_what_its_live_blocks_sum_up_to(name: str) -> None:
    device = device_of(name)
    series = live_extremes(device, 9, num_lines=3)
    for column in range(0, len(series.events), 5):
        rows = device.live_after(int(series.events[column]))
        sums: dict[str, int] = {}
        for lead, size in zip(leads_of(device, rows).tolist(), device.blocks.size_bytes[rows].tolist(), strict=True):
            line = device.trace.sites.frame(lead)
            line = line if line in series.lines else OTHER
            sums[str(line)] = sums.get(str(line), 0) + size
        shown = dict(zip(names(series), series.line_bytes[:, column].tolist(), strict=True))
        assert {line: size for line, size in shown.items() if size} == sums


def test_what_stays_lies_below_what_comes_and_goes(load: Load) -> None:
    one = SnapshotBuilder()
    one.alloc(12 * MIB, A)
    for _ in range(5):
        one.free(one.alloc(20 * MIB, B))
    series = live_extremes(load(one).device(), 100)
    assert names(series) == [A, B]
    assert series.line_peaks == (12 * MIB, 20 * MIB)
    assert series.at_bytes == (12 * MIB, 20 * MIB)


def test_lines_beyond_the_number_asked_for_become_the_others(load: Load) -> None:
    one = SnapshotBuilder()
    for size, line in ((40, A), (30, B), (20, C)):
        one.alloc(size * MIB, line)
    device = load(one).device()
    series = live_extremes(device, 10, num_lines=1)
    assert names(series) == [A, str(OTHER)]
    assert series.at_bytes == (40 * MIB, 50 * MIB)
    assert names(live_extremes(device, 10, num_lines=0)) == [str(OTHER)]


def test_a_single_line_that_would_be_the_others_keeps_its_name(load: Load) -> None:
    one = SnapshotBuilder()
    for size, line in ((40, A), (30, B), (20, C)):
        one.alloc(size * MIB, line)
    assert sorted(names(live_extremes(load(one).device(), 10, num_lines=2))) == [A, B, C]


def test_a_line_that_is_large_for_a_moment_only_gets_a_name(load: Load) -> None:
    one = SnapshotBuilder()
    one.alloc(100 * MIB, A)
    one.free(one.alloc(30 * MIB, B))
    for number in range(3):
        one.alloc(10 * MIB, f"small.py:{number} f")
    one.alloc(30 * MIB, C)
    one.wait(1_000_000)
    one.free(one.alloc(2 * MIB))
    assert B in names(live_extremes(load(one).device(), 10, num_lines=3))


def test_blocks_from_before_the_recording_are_a_line_of_their_own_at_the_bottom() -> None:
    series = live_extremes(device_of("late_start"), 50, num_lines=2)
    assert series.lines[0] == BEFORE
    assert series.lines[-1] == OTHER
    assert series.events[0] == NONE
    assert series.line_bytes[0, 0] == device_of("late_start").history.before[1]


def test_lines_are_compared_at_the_instant_asked_for(load: Load) -> None:
    one = SnapshotBuilder()
    first = one.alloc(30 * MIB, A)
    one.free(first)
    one.alloc(12 * MIB, B)
    series = live_extremes(load(one).device(), 10, at="end")
    assert dict(zip(names(series), series.at_bytes, strict=True)) == {A: 0, B: 12 * MIB}
    assert [(mark.kind, mark.allocated_bytes) for mark in series.marks] == [("peak", 30 * MIB), ("at", 12 * MIB)]


def test_the_peak_and_each_out_of_memory_error_are_marked(load: Load) -> None:
    one = SnapshotBuilder(limit_bytes=64 * MIB)
    one.alloc(30 * MIB)
    for _ in range(2):
        with pytest.raises(SimulatedOutOfMemoryError):
            one.alloc(60 * MIB)
    series = live_columns(load(one).device(), 20)
    assert [(mark.kind, mark.requested_bytes) for mark in series.marks] == [
        ("peak", 0),
        ("oom", 60 * MIB),
        ("oom", 60 * MIB),
    ]
    assert series.num_ooms == 2


def test_a_device_without_events_has_no_series(load: Load) -> None:
    one = SnapshotBuilder()
    one.alloc(12 * MIB)
    device = load(one.snapshot() | {"device_traces": []}).device()
    for series_of in (live_extremes, live_columns):
        with pytest.raises(UllageError, match="holds no events"):
            series_of(device, 10)
