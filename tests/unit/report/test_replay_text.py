"""`replay` and `tune` name the device where there are several, and settings can be copied at every width."""

from __future__ import annotations

from typing import Any

import pytest

import ullage
from tests.recordings import EXAMPLE
from ullage.explain.waterfall import CAUSES
from ullage.report import replay_text
from ullage.report.replay_text import print_replay, print_tuning

LONG = "expandable_segments:True,roundup_power2_divisions:8,large_segment_size_mb:64"


def outcome(policy: str, peak_mib: int, is_oom: bool = False) -> dict[str, Any]:
    return {
        "device": 1,
        "policy": policy,
        "outcome": "oom" if is_oom else "ok",
        "cap_bytes": None,
        "peak_reserved_bytes": peak_mib << 20,
        "peak_allocated_bytes": 10 << 20,
        "num_device_alloc": 3,
        "num_device_free": 1,
        "num_retries": 0,
        "first_oom": None,
        "waste": {"requested": 10 << 20, "stranded": (peak_mib - 10) << 20},
        "certainty": "exact",
        "range_bytes": None,
    }


def tuning() -> dict[str, Any]:
    baseline = outcome("default", 40)
    return {
        "device": 1,
        "baseline": baseline,
        "best": outcome(LONG, 20),
        "candidates": [outcome(LONG, 20), baseline, outcome("max_split_size_mb:32", 60, is_oom=True)],
        "verdict": "20 MiB less reserved (50 %) with one setting.",
        "line": f"PYTORCH_CUDA_ALLOC_CONF={LONG}",
        "notes": [],
    }


@pytest.mark.parametrize("columns", ["40", "80"])
def test_settings_are_on_a_line_of_their_own_whole(
    columns: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    print_tuning(tuning(), top=8)
    lines = capsys.readouterr().out.splitlines()
    assert f"    PYTORCH_CUDA_ALLOC_CONF={LONG}" in lines
    begin = lines.index("  reserved  against  driver calls  retries")
    assert lines[begin + 1 :] == [
        "    40 MiB                      4        0",
        "    default (recorded)",
        "    20 MiB    -50 %             4        0",
        f"    {LONG}",
        "    60 MiB    +50 %             4        0",
        "    max_split_size_mb:32 (runs out of memory)",
        "  3 settings tried",
    ]


@pytest.mark.parametrize(("num_devices", "is_named"), [(1, False), (2, True)])
def test_the_device_is_named_where_there_are_several(
    num_devices: int, is_named: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    print_tuning(tuning(), top=8, num_devices=num_devices)
    assert capsys.readouterr().out.startswith("GPU 1 of 2 (--device N") == is_named
    print_replay(outcome("default", 40) | {"recorded": outcome("default", 40)}, num_devices=num_devices)
    assert capsys.readouterr().out.startswith("GPU 1 of 2 (--device N") == is_named


def test_causes_have_the_words_that_explain_uses() -> None:
    assert {cause for cause, label in replay_text._CAUSES.items() if CAUSES[cause] != label} == {"rounding"}


def test_every_cause_of_waste_has_words() -> None:
    assert ullage.replay(ullage.load(EXAMPLE)).waste.keys() <= replay_text._CAUSES.keys()
