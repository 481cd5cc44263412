"""`explain` gives the answer first, then why, what to do, and the evidence."""

from __future__ import annotations

import pytest

import ullage
from tests.unit.conftest import Load
from tests.unit.snapshot_builder import MIB, SimulatedOutOfMemoryError, SnapshotBuilder, merged
from ullage.report import summary_json
from ullage.report.findings_text import print_findings


def printed(one: object, load: Load, capsys: pytest.CaptureFixture[str], top: int = 5) -> str:
    trace = load(one)
    print_findings(summary_json(trace), [finding.to_json() for finding in ullage.explain(trace)], top=top)
    return capsys.readouterr().out


def out_of_memory() -> SnapshotBuilder:
    one = SnapshotBuilder(limit_bytes=40 * MIB)
    one.alloc(12 * MIB, "train.py:3 step")
    with pytest.raises(SimulatedOutOfMemoryError):
        one.alloc(30 * MIB, "train.py:4 step")
    return one


def test_the_answer_comes_before_the_evidence(load: Load, capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(out_of_memory(), load, capsys).splitlines()
    assert lines[0].startswith("GPU 0: 12 MiB allocated")
    assert lines[1] == "1 error, 2 notes"
    assert lines[2].startswith("  • Out of memory: 30 MiB asked by train.py:4 step")
    words = [
        next(i for i, line in enumerate(lines) if line.startswith(word)) for word in ("ERROR oom", "  Why", "  Do")
    ]
    assert words == sorted(words)


def test_where_nothing_is_wrong_it_says_so(load: Load, capsys: pytest.CaptureFixture[str]) -> None:
    one = SnapshotBuilder()
    one.alloc(12 * MIB, "train.py:3 step")
    one.alloc(30 * MIB, "train.py:4 step")
    lines = printed(one, load, capsys).splitlines()
    assert lines[1] == "No warnings. What there is to know:"
    assert lines[2].startswith("  • Peak: 42 MiB allocated in 2 blocks")
    assert "    most of it: train.py:4 step, 71 %" in lines[3:5]


def test_the_largest_of_many_owners_is_not_called_most(load: Load, capsys: pytest.CaptureFixture[str]) -> None:
    one = SnapshotBuilder()
    for line in range(1, 5):
        one.alloc((10 + 2 * line) * MIB, f"train.py:{line} step")
    assert "    its largest part: train.py:4 step, 30 %" in printed(one, load, capsys).splitlines()[3:5]


def test_the_owner_of_the_peak_may_be_unknown(load: Load, capsys: pytest.CaptureFixture[str]) -> None:
    one = SnapshotBuilder()
    one.alloc(12 * MIB)
    trace = load(one)
    (peak,) = [finding.to_json() for finding in ullage.explain(trace) if finding.kind == "peak"]
    peak["evidence"]["by_site"][0]["site"] = []
    print_findings(summary_json(trace), [peak], top=5)
    assert "    most of it: (no Python stack), 100 %" in capsys.readouterr().out.splitlines()[3:5]


def test_tables_stop_after_top_rows_and_say_what_is_left(load: Load, capsys: pytest.CaptureFixture[str]) -> None:
    one = SnapshotBuilder()
    for line in range(1, 8):
        one.alloc(12 * MIB, f"model.py:{line} load")
    text = printed(one, load, capsys, top=2)
    assert "… 5 more, 60 MiB" in text
    assert "model.py:3 load" not in text


def test_several_devices_are_told_apart(load: Load, capsys: pytest.CaptureFixture[str]) -> None:
    devices = [SnapshotBuilder(device=0), SnapshotBuilder(device=1)]
    for one in devices:
        one.alloc(12 * MIB)
    text = printed(merged(*(one.snapshot() for one in devices)), load, capsys)
    assert "note peak  GPU 1" in text
    assert "  • GPU 1: Peak: 12 MiB allocated" in text


def test_a_file_without_devices_says_so(load: Load, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        printed({"segments": [], "device_traces": []}, load, capsys)
        == "No device has events or segments in this file.\n"
    )
