"""`diff` lists what changed, and says how much is unchanged or left out."""

from __future__ import annotations

import pytest

import ullage
from tests.unit.conftest import Load
from tests.unit.snapshot_builder import MIB, SnapshotBuilder
from ullage.report.diff_text import print_diff


def grown() -> SnapshotBuilder:
    one = SnapshotBuilder()
    one.alloc(12 * MIB, "a.py:1 f")
    one.wait(100_000)
    for line in range(2, 6):
        one.alloc(10 * line * MIB, f"a.py:{line} f")
    return one


def printed(load: Load, capsys: pytest.CaptureFixture[str], top: int) -> list[str]:
    trace = load(grown())
    diffs = [one.to_json() for one in ullage.diff(trace, trace, before_at=50_000)]
    print_diff(diffs, top=top)
    return capsys.readouterr().out.splitlines()


def test_the_net_change_comes_first_and_the_rest_is_summed(load: Load, capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(load, capsys, top=2)
    assert lines[0] == "GPU 0: +140 MiB allocated (12 MiB → 152 MiB), +140 MiB reserved"
    assert lines[2].split() == ["+50", "MiB", "0", "B", "50", "MiB", "1", "0", "0", "a.py:5", "f"]
    assert lines[-2:] == ["  … 2 more lines, +50 MiB", "  1 block unchanged"]


def test_all_lines_are_shown_where_there_is_room(load: Load, capsys: pytest.CaptureFixture[str]) -> None:
    text = "\n".join(printed(load, capsys, top=20))
    assert "more line" not in text
    assert [f"a.py:{line} f" in text for line in range(1, 6)] == [False, True, True, True, True]


def test_no_common_device_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    print_diff([], top=5)
    assert capsys.readouterr().out == "The two have no device in common.\n"
