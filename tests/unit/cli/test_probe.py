"""`ullage probe` with a made-up GPU, and with none."""

from __future__ import annotations

import json
import sys
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.unit.cli.conftest import Command
from tests.unit.runtime.probe.fake_gpu import GB, HOST, FakeGpu, Speeds, made_up
from ullage.errors import DeviceError
from ullage.runtime.probe import measure, store
from ullage.runtime.probe.identity import Identity, NoSuchGpuError
from ullage.runtime.probe.store import keep_probe


@pytest.fixture(autouse=True)
def _no_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def identify(device: int = 0) -> Identity:
        raise DeviceError("no NVIDIA driver is installed here")

    monkeypatch.setenv("ULLAGE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(measure, "identify", identify)
    monkeypatch.setattr(store, "identify", identify)
    monkeypatch.setattr(measure, "measure_host", lambda: HOST)


@pytest.fixture
def _h200(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU whose figures were kept."""
    result = made_up()
    machine = result.machine
    found = Identity(
        index=0,
        name=machine.gpu,
        uuid=machine.uuid,
        driver=machine.driver,
        l2_bytes=machine.l2_bytes,
        num_processors=machine.num_processors,
        has_concurrent_managed=True,
        has_pageable_access=False,
        shares_page_tables=False,
    )
    monkeypatch.setattr(store, "identify", lambda device=0: found)
    keep_probe(replace(result, took_ms=31_000))


def test_without_a_gpu_the_host_is_measured_one_line_says_why_and_the_exit_code_is_0(command: Command) -> None:
    done = command("probe")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("Only the host was measured: no NVIDIA driver is installed here.\n\nThe host's memory")


def test_what_was_measured_is_shown_again(command: Command) -> None:
    first = command("probe", "--json")
    again = command("probe", "--last", "--json")
    assert (first.code, again.code) == (0, 0)
    assert json.loads(again.out) == json.loads(first.out)
    assert json.loads(first.out)["machine"]["ullage"]


def test_nothing_kept_is_exit_code_2_and_one_line(command: Command) -> None:
    done = command("probe", "--last")
    assert (done.code, done.out) == (2, "")
    assert done.err == "ullage: nothing is kept for this GPU and driver: measure it by `ullage probe`\n"


@pytest.mark.usefixtures("_h200")
def test_a_kept_probe_of_a_gpu_begins_with_the_answer_and_draws_its_curves(command: Command) -> None:
    done = command("probe", "--last", "--plot")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("NVIDIA H200: read 4.4 TB/s")
    assert "took 31 s" in done.out
    assert "Copies in a stream, by size" in done.out
    assert "One access of a full GPU, by footprint" in done.out
    assert "● one in 128 KiB   ○ one in 512 KiB" in done.out
    assert "One access after the other, by footprint" in done.out
    assert "□ one in 64 MiB" in done.out
    assert [line for line in done.out.splitlines() if len(line) > 80] == []


@pytest.mark.usefixtures("_h200")
@pytest.mark.parametrize("pinned", [55, 26])
def test_what_changed_since_the_last_probe_is_said_below_the_answer(
    pinned: int, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    slower = made_up(FakeGpu(replace(Speeds(), pinned=pinned * GB)))
    monkeypatch.setattr(measure, "measure_gpu", lambda *_: slower)
    monkeypatch.setattr(measure, "identify", store.identify)
    monkeypatch.setitem(sys.modules, "ullage.runtime.probe.cuda_gpu", SimpleNamespace(CudaGpu=lambda _: nullcontext()))
    path = store.probe_path(slower.machine.gpu, slower.machine.driver)
    kept = path.read_bytes()
    done = command("probe")
    answer, second, *_ = done.out.split("\n\n")
    assert (done.code, done.err) == (0, "")
    assert answer.startswith("NVIDIA H200: read 4.4 TB/s")
    assert second.startswith("Not as in the probe of") == (pinned == 26)
    path.write_bytes(kept)
    changes = json.loads(command("probe", "--json").out)["changes"]
    assert ("copy pinned to_gpu" in {one["name"] for one in changes["changed"]}) == (pinned == 26)
    assert json.loads(command("probe", "--last", "--json").out)["changes"] is None


@pytest.mark.usefixtures("_h200")
def test_a_figure_is_written_and_named(command: Command, tmp_path: Path) -> None:
    path = tmp_path / "probe.png"
    done = command("probe", "--last", "--json", "--png", str(path))
    assert (done.code, done.err) == (0, "")
    assert json.loads(done.out)["png"] == str(path)
    assert path.read_bytes().startswith(b"\x89PNG")


def never() -> object:
    raise AssertionError("it was measured")


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("no-such-folder/a.png", "cannot be written: No such file or directory"),
        (".", "is a folder; name a file"),
    ],
)
def test_a_figure_that_cannot_be_written_is_refused_before_anything_is_measured(
    path: str, said: str, command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measure, "measure_host", never)
    done = command("probe", "--png", str(tmp_path / path))
    assert (done.code, done.out) == (2, "")
    assert done.err == f"ullage: {tmp_path / path}: {said}\n"


def test_without_matplotlib_a_figure_is_refused_before_anything_is_measured(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measure, "measure_host", never)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    done = command("probe", "--png", str(tmp_path / "a.png"))
    assert (done.code, done.out) == (2, "")
    assert "pip install 'ullage[plot]'" in done.err


@pytest.mark.parametrize("last", [(), ("--last",)])
def test_a_gpu_that_is_not_there_is_exit_code_2_and_the_hosts_result_stays(
    last: tuple[str, ...], command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    command("probe")
    path = store.probe_path("", "")
    kept = path.read_bytes()

    def identify(device: int = 0) -> Identity:
        raise NoSuchGpuError(f"there is no GPU {device}: the driver offers 1 GPU, counted from 0")

    monkeypatch.setattr(measure, "identify", identify)
    monkeypatch.setattr(store, "identify", identify)
    done = command("probe", "--device", "7", *last)
    assert (done.code, done.out) == (2, "")
    assert done.err == "ullage: there is no GPU 7: the driver offers 1 GPU, counted from 0\n"
    assert path.read_bytes() == kept


def test_without_a_gpu_there_is_no_figure(command: Command, tmp_path: Path) -> None:
    done = command("probe", "--png", str(tmp_path / "a.png"))
    assert (done.code, done.out) == (2, "")
    assert done.err == "ullage: there is nothing to draw: no NVIDIA driver is installed here\n"
    assert list(tmp_path.glob("*.png")) == []


def test_without_a_gpu_there_are_no_charts_and_it_says_so(command: Command) -> None:
    assert command("probe", "--plot").out.endswith("no copies and no page reach were measured.\n")


def test_plot_with_json_is_ignored_and_said_so(command: Command) -> None:
    done = command("probe", "--plot", "--json")
    assert done.err == "ullage: --plot is ignored with --json (--png FILE draws into a file)\n"
    assert json.loads(done.out)["why_no_gpu"]


def test_a_terminal_is_told_what_is_measured_and_cleaned(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    said = [one.strip() for one in command("probe").err.split("\r\033[K")]
    assert said == ["", "the host's memory", ""]


def test_wrong_usage_is_exit_code_2(command: Command) -> None:
    assert command("probe", "--device", "-1").code == 2
