"""`info` fits one screen and says what matters in words."""

from __future__ import annotations

import pytest

from tests.unit.conftest import Load
from tests.unit.snapshot_builder import MIB, SnapshotBuilder
from ullage.report import summary_json
from ullage.report.summary_text import print_summary


def printed(one: SnapshotBuilder | dict[str, object], load: Load, capsys: pytest.CaptureFixture[str]) -> str:
    print_summary(summary_json(load(one), verify=True), 2048)
    return capsys.readouterr().out


def test_a_complete_recording_fits_one_screen(load: Load, capsys: pytest.CaptureFixture[str]) -> None:
    one = SnapshotBuilder(settings={"max_split_size": -1})
    one.free(one.alloc(12 * MIB))
    text = printed(one, load, capsys)
    assert len(text.splitlines()) <= 24
    assert "GPU 0  4 events over 30 µs, history complete" in text
    assert "settings  defaults" in text
    assert "pickle, 2 KiB of data" in text
    assert "verified: 1 of 1 addresses, 1 of 1 segments, 1 of 1 final blocks" in text


def test_settings_that_change_behaviour_are_shown(load: Load, capsys: pytest.CaptureFixture[str]) -> None:
    one = SnapshotBuilder(settings={"expandable_segments": True, "roundup_power2_divisions": {"1": 0, "256": 4}})
    one.alloc(700)
    text = printed(one, load, capsys)
    assert "expandable_segments=True" in text
    assert "roundup_power2_divisions.256=4" in text
    assert "divisions.1=" not in text


def test_what_does_not_verify_is_said_with_its_first_event(load: Load, capsys: pytest.CaptureFixture[str]) -> None:
    one = SnapshotBuilder()
    one.alloc(4 * MIB)
    one.alloc(4 * MIB)
    snapshot = one.snapshot()
    snapshot["device_traces"][0][2]["addr"] += 2 * MIB
    text = printed(snapshot, load, capsys)
    assert "NOT verified: 1 of 2 addresses" in text
    assert "the first request that differs is event 2" in text


def test_a_file_without_devices_says_so(load: Load, capsys: pytest.CaptureFixture[str]) -> None:
    assert "No device has events or segments" in printed({"segments": [], "device_traces": []}, load, capsys)


def test_unknown_keys_are_named(load: Load, capsys: pytest.CaptureFixture[str]) -> None:
    one = SnapshotBuilder()
    one.alloc(700)
    assert "keys not known to this version: weather" in printed(one.snapshot() | {"weather": 1}, load, capsys)
