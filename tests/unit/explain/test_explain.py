"""All findings of all devices, worst first."""

from __future__ import annotations

import pytest

import ullage
from tests.unit.conftest import Load
from tests.unit.snapshot_builder import MIB, SimulatedOutOfMemoryError, SnapshotBuilder, merged
from ullage.errors import UllageError


def out_of_memory(device: int = 0) -> SnapshotBuilder:
    one = SnapshotBuilder(device=device, limit_bytes=40 * MIB)
    one.alloc(12 * MIB, "train.py:3 step")
    with pytest.raises(SimulatedOutOfMemoryError):
        one.alloc(30 * MIB, "train.py:4 step")
    return one


def test_an_error_comes_before_notes(load: Load) -> None:
    findings = ullage.explain(load(out_of_memory()))
    assert [finding.kind for finding in findings] == ["oom", "peak", "held"]
    assert [finding.severity for finding in findings] == ["error", "info", "info"]


def test_each_device_has_its_own_findings(load: Load) -> None:
    trace = load(merged(out_of_memory(0).snapshot(), out_of_memory(3).snapshot()))
    assert [finding.device for finding in ullage.explain(trace) if finding.kind == "oom"] == [0, 3]
    assert {finding.device for finding in ullage.explain(trace, device=3)} == {3}


def test_the_peak_can_be_asked_at_another_instant(load: Load) -> None:
    one = SnapshotBuilder()
    one.free(one.alloc(8 * MIB), one.alloc(4 * MIB))
    one.alloc(2 * MIB)
    trace = load(one)
    (at_peak,) = (finding for finding in ullage.explain(trace) if finding.kind == "peak")
    (at_end,) = (finding for finding in ullage.explain(trace, at="end") if finding.kind == "peak")
    assert (at_peak.bytes, at_end.bytes) == (12 * MIB, 2 * MIB)
    assert at_end.title.startswith("At the end: 2 MiB allocated in 1 block")


def test_what_is_not_there_is_refused(load: Load) -> None:
    one = SnapshotBuilder()
    one.alloc(700)
    trace = load(one)
    with pytest.raises(UllageError, match="no device 4"):
        ullage.explain(trace, device=4)
    with pytest.raises(UllageError, match="no out-of-memory error"):
        ullage.explain(trace, at="oom")


def test_a_layout_without_history_is_explained_without_guesses(load: Load) -> None:
    one = SnapshotBuilder()
    one.alloc(4 * MIB)
    trace = load(one.snapshot() | {"device_traces": []})
    assert [finding.kind for finding in ullage.explain(trace)] == ["recording", "fragmentation", "peak", "held"]
