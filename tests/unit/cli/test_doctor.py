"""`ullage doctor`: a recording or the environment, text or JSON, and its exit codes."""

from __future__ import annotations

import json

import pytest

from tests.recordings import path_of
from tests.unit.cli.conftest import Command

VARIABLES = (
    *("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF", "PYTORCH_ALLOC_CONF"),
    *("PYTORCH_NO_CUDA_MEMORY_CACHING", "PYTORCH_NO_HIP_MEMORY_CACHING"),
)


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


def test_without_settings_there_is_nothing_to_change(command: Command) -> None:
    done = command("doctor")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("default settings (torch ")
    assert done.out.endswith("\nNothing to change.\n")


def test_the_environment_is_checked(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:10")
    done = command("doctor")
    assert done.code == 0
    assert done.out.startswith("PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:10 (torch ")
    assert "ERROR max_split_size_mb:10 is refused: it must be at least 20" in done.out
    assert "  Why  torch raises an error" in done.out
    assert "  From parseArgs" in done.out


def test_json_holds_the_keys_that_were_promised(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTORCH_NO_CUDA_MEMORY_CACHING", "1")
    report = json.loads(command("doctor", "--json").out)
    assert report.keys() == {"path", "variable", "conf", "torch_version", "advice"}
    assert (report["path"], report["variable"], report["conf"]) == (None, None, "")
    (advice,) = report["advice"]
    assert advice.keys() == {"check", "severity", "title", "why", "next_step", "source"}
    assert advice["check"] == "no_caching"


def test_a_recording_is_checked_and_not_the_environment(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "nonsense")
    report = json.loads(command("doctor", str(path_of("roundup.div4")), "--json").out)
    assert report["path"] == str(path_of("roundup.div4"))
    assert (report["variable"], report["conf"]) == (None, "roundup_power2_divisions:4")
    assert report["torch_version"] == "2.10 to 2.11"
    assert [advice["check"] for advice in report["advice"]] == ["roundup_cost"]


def test_a_clean_recording_has_nothing_to_change(command: Command) -> None:
    done = command("doctor", str(path_of("retries")), "--fail-on", "info")
    assert (done.code, done.out) == (0, "default settings (torch 2.10 to 2.11)\nNothing to change.\n")


@pytest.mark.parametrize(
    ("name", "fail_on", "code"),
    [
        ("roundup.div4", "error", 0),
        ("roundup.div4", "warning", 1),
        ("gc_mix", "warning", 0),
        ("gc_mix", "info", 1),
    ],
)
def test_fail_on_is_exit_code_1_from_that_severity_on(name: str, fail_on: str, code: int, command: Command) -> None:
    assert command("doctor", str(path_of(name)), "--fail-on", fail_on).code == code


def test_an_unreadable_file_is_exit_code_2(command: Command) -> None:
    done = command("doctor", "no-such-file.pickle")
    assert (done.code, done.out) == (2, "")
    assert "no-such-file.pickle: cannot be read" in done.err
