"""`ullage explain`: its JSON, its options, and when it fails."""

from __future__ import annotations

import json
import lzma
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len

from tests.architecture.source_tree import run_python
from tests.recordings import EXAMPLE, path_of
from tests.unit.cli.conftest import Command
from tests.unit.conftest import Save
from tests.unit.snapshot_builder import MIB, SimulatedOutOfMemoryError, SnapshotBuilder, merged

FINDING = {"kind", "severity", "device", "bytes", "title", "why", "next_step", "site", "evidence"}


def findings(command: Command, *arguments: str) -> list[dict[str, Any]]:
    done = command("explain", *arguments, "--json")
    assert (done.code, done.err) == (0, "")
    found: list[dict[str, Any]] = json.loads(done.out)["findings"]
    return found


def test_json_holds_the_keys_that_were_promised(command: Command) -> None:
    report = json.loads(command("explain", str(path_of("survivors")), "--json").out)
    assert report.keys() >= {"devices", "settings", "torch_version", "findings"}
    assert report["devices"][0]["num_ooms"] == 1
    for finding in report["findings"]:
        assert finding.keys() == FINDING
        assert all(frame.keys() == {"file", "line", "function"} for frame in finding["site"])
        assert isinstance(finding["bytes"], int)
    assert report["findings"][0]["kind"] == "oom"


@pytest.mark.parametrize(
    ("name", "fail_on", "code"),
    [
        ("survivors", "error", 1),
        ("survivors", "warning", 1),
        ("stranded_weights", "error", 0),
        ("stranded_weights", "warning", 1),
        ("stranded_weights_first", "warning", 0),
        ("stranded_weights_first", "info", 1),
    ],
)
def test_fail_on_is_exit_code_1_from_that_severity_on(name: str, fail_on: str, code: int, command: Command) -> None:
    assert command("explain", str(path_of(name)), "--fail-on", fail_on).code == code


def test_without_fail_on_even_an_error_found_is_exit_code_0(command: Command) -> None:
    assert command("explain", str(path_of("survivors"))).code == 0


def test_top_limits_the_rows_of_each_table(command: Command, save: Save) -> None:
    one = SnapshotBuilder()
    for line in range(1, 9):
        one.alloc(12 * MIB, f"model.py:{line} load")
    path = save(one)
    assert "model.py:5 load" in command("explain", path).out
    assert "model.py:6 load" not in command("explain", path).out
    assert "model.py:8 load" in command("explain", path, "--top", "8").out


@pytest.mark.parametrize(
    ("at", "live_mib"), [("peak", 26), ("end", 10), ("0s", 0), ("5us", 0), ("15us", 12), ("20", 12)]
)
def test_the_peak_is_told_at_the_instant_asked_for(at: str, live_mib: int, command: Command, save: Save) -> None:
    one = SnapshotBuilder()
    first = one.alloc(12 * MIB)
    second = one.alloc(14 * MIB)
    one.free(first, second)
    one.alloc(10 * MIB)
    peaks = [one for one in findings(command, save(one), "--at", at) if one["kind"] == "peak"]
    assert [peak["bytes"] for peak in peaks] == [live_mib * MIB]


def test_the_instant_of_an_error_can_be_asked_for(command: Command) -> None:
    (peak,) = [one for one in findings(command, str(path_of("survivors")), "--at", "oom") if one["kind"] == "peak"]
    assert peak["bytes"] == 640 * MIB


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--at", "noon"), "--at 'noon' is no instant"),
        (("--at", "oom"), "met no out-of-memory error"),
        (("--at", "5min"), "is outside"),
        (("--device", "3"), "has no device 3"),
        (("--mine", "("), "--mine '(' is no regular expression"),
    ],
)
def test_what_cannot_be_answered_is_exit_code_2(arguments: tuple[str, ...], message: str, command: Command) -> None:
    done = command("explain", str(path_of("stranded_weights")), *arguments)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("ullage: ")
    assert message in done.err


def test_mine_says_whose_frames_lead(command: Command) -> None:
    path = str(path_of("stranded_weights"))
    (fragmentation,) = [
        one for one in findings(command, path, "--mine", "fragmentation") if one["kind"] == "fragmentation"
    ]
    assert [frame["file"] for frame in fragmentation["site"]] == ["fragmentation.py"]


def test_one_device_can_be_asked_for(command: Command, save: Save) -> None:
    devices = [SnapshotBuilder(device=number) for number in (0, 1)]
    for one in devices:
        one.alloc(12 * MIB)
    path = save(merged(*(one.snapshot() for one in devices)))
    assert {finding["device"] for finding in findings(command, path, "--device", "1")} == {1}


def test_the_example_is_explained_with_its_leak_first(command: Command) -> None:
    done = command("explain", str(EXAMPLE))
    assert done.code == 0
    assert "more every step" in done.out.splitlines()[2]
    assert "workloads.py:140" in done.out


@pytest.mark.parametrize("is_packed", [True, False])
@pytest.mark.parametrize("is_pipe", [True, False])
def test_a_dash_reads_standard_input_from_a_pipe_or_a_file(is_packed: bool, is_pipe: bool, tmp_path: Path) -> None:
    path = tmp_path / "snapshot"
    content = EXAMPLE.read_bytes()
    path.write_bytes(content if is_packed else lzma.decompress(content))
    program = [sys.executable, "-c", "from ullage.cli.start import run; run()", "explain", "-"]
    with path.open("rb") as file:
        given: dict[str, Any] = {"input": path.read_bytes()} if is_pipe else {"stdin": file}
        done = subprocess.run(program, capture_output=True, check=False, **given)
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"more every step" in done.stdout


def test_plot_draws_the_timeline_below_the_head(command: Command) -> None:
    lines = command("explain", str(path_of("survivors")), "--plot").out.splitlines()
    heading = lines.index("GPU 0: allocated by line, and reserved (─) above it")
    first_rule = next(number for number, line in enumerate(lines) if line.startswith("ERROR oom"))
    assert lines[0].startswith("GPU 0: 11 GiB allocated")
    assert 0 < heading < first_rule
    assert any("✗ out of memory" in line or "asked for" in line for line in lines[heading:first_rule])


def test_without_plot_nothing_is_drawn(command: Command) -> None:
    assert "allocated by line" not in command("explain", str(path_of("survivors"))).out


def test_plot_is_ignored_with_json_and_says_so(command: Command) -> None:
    path = str(path_of("survivors"))
    done = command("explain", path, "--plot", "--json")
    assert done.err.startswith("ullage: --plot is ignored with --json")
    assert done.out == command("explain", path, "--json").out


@pytest.mark.parametrize("columns", [40, 60, 80, 200])
def test_with_plot_no_line_is_longer_than_the_terminal(
    columns: int, command: Command, save: Save, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    one = SnapshotBuilder(limit_bytes=64 * MIB)
    one.alloc(30 * MIB, "a/very/long/path/to/some/model_with_a_long_name.py:3 a_function_whose_name_is_long_too")
    with pytest.raises(SimulatedOutOfMemoryError):
        one.alloc(60 * MIB)
    out = command("explain", save(one), "--plot").out
    drawing = out.partition("GPU 0: allocated by line")[2].partition("ERROR")[0]
    assert max(cell_len(line) for line in drawing.splitlines()) <= columns
    assert "30 MiB" in drawing


def test_the_device_of_the_worst_finding_is_drawn(command: Command, save: Save) -> None:
    first, second = SnapshotBuilder(device=0), SnapshotBuilder(device=1, limit_bytes=32 * MIB)
    for _ in range(9):
        first.alloc(12 * MIB)
    with pytest.raises(SimulatedOutOfMemoryError):
        second.alloc(60 * MIB)
    path = save(merged(first.snapshot(), second.snapshot()))
    assert "GPU 0: allocated by line" in command("explain", path, "--plot").out
    second.alloc(12 * MIB)
    path = save(merged(first.snapshot(), second.snapshot()))
    assert "GPU 1: allocated by line" in command("explain", path, "--plot").out
    assert "GPU 0: allocated by line" in command("explain", path, "--plot", "--device", "0").out


def test_plot_of_a_file_without_events_says_why_there_is_none(command: Command, save: Save) -> None:
    one = SnapshotBuilder()
    one.alloc(12 * MIB)
    done = command("explain", save(one.snapshot() | {"device_traces": []}), "--plot")
    assert done.code == 0
    assert "GPU 0 has no timeline: the file holds no events of it." in done.out


def test_png_writes_an_image_and_names_it_in_json(command: Command, tmp_path: Path) -> None:
    target = tmp_path / "timeline.png"
    done = command("explain", str(path_of("survivors")), "--png", str(target), "--json")
    assert (done.code, done.err) == (0, "")
    assert json.loads(done.out)["png"] == str(target)
    assert target.read_bytes().startswith(b"\x89PNG\r\n")
    assert [path.name for path in tmp_path.iterdir()] == ["timeline.png"]


def test_png_refuses_to_write_over_the_recording(command: Command, save: Save) -> None:
    one = SnapshotBuilder()
    one.alloc(12 * MIB)
    path = save(one)
    content = Path(path).read_bytes()
    done = command("explain", path, "--png", path)
    assert (done.code, done.out) == (2, "")
    assert "is the recording itself" in done.err
    assert Path(path).read_bytes() == content


def test_png_where_there_is_no_folder_is_exit_code_2(command: Command, tmp_path: Path) -> None:
    done = command("explain", str(path_of("survivors")), "--png", str(tmp_path / "missing" / "x.png"))
    assert (done.code, done.out) == (2, "")
    assert "cannot be written: No such file or directory" in done.err


def test_png_of_a_file_without_events_is_exit_code_2(command: Command, save: Save, tmp_path: Path) -> None:
    one = SnapshotBuilder()
    one.alloc(12 * MIB)
    target = tmp_path / "timeline.png"
    done = command("explain", save(one.snapshot() | {"device_traces": []}), "--png", str(target))
    assert done.code == 2
    assert "holds no events: there is no timeline to draw" in done.err
    assert not target.exists()


def test_explaining_loads_no_drawing_unless_it_is_asked_for(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom ullage.cli.main import run\nsys.argv[1:] = ['explain', {!r}]\n"
        "try:\n    run()\nexcept SystemExit:\n    print(sorted(sys.modules))"
    )
    modules = run_python(code.format(str(path_of("survivors"))), tmp_path).splitlines()[-1]
    assert "ullage.report.findings_text" in modules
    for name in ("matplotlib", "timeline_text", "live_series", "report.plot", "report.notebook"):
        assert name not in modules
