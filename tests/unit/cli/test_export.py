"""`ullage export`: what it writes and says, and what it refuses without losing anything."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import polars
import pytest
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace as PerfettoTrace

import ullage
from tests.recordings import EXAMPLE, path_of
from tests.unit.cli.conftest import Command

RECORDING = str(path_of("survivors"))


def test_each_file_is_a_line_with_its_size_and_what_opens_it(command: Command, tmp_path: Path) -> None:
    perfetto, folder, folded = (str(tmp_path / name) for name in ("a.pftrace", "tables", "a.folded"))
    done = command("export", RECORDING, "--perfetto", perfetto, "--parquet", folder, "--flamegraph", folded)
    assert (done.code, done.err) == (0, "")
    lines = dict(line.split(": ", 1) for line in done.out.splitlines())
    assert "https://ui.perfetto.dev" in lines[perfetto]
    assert "speedscope" in lines[folded]
    assert "DuckDB" in lines[f"{folder}/events.parquet"]
    assert set(lines) == {perfetto, folded, *(f"{folder}/{name}" for name in os.listdir(folder))}


def test_with_json_it_says_what_was_written(command: Command, tmp_path: Path) -> None:
    perfetto, folder = str(tmp_path / "a.pftrace"), str(tmp_path / "tables")
    done = command("export", RECORDING, "--perfetto", perfetto, "--parquet", folder, "--json")
    written = json.loads(done.out)["written"]
    assert all(one.keys() == {"format", "path", "bytes", "rows"} for one in written)
    assert all(os.path.getsize(one["path"]) == one["bytes"] for one in written)
    rows = {one["path"]: one["rows"] for one in written}
    assert rows[perfetto] == len(PerfettoTrace.FromString(Path(perfetto).read_bytes()).packet)
    assert rows[f"{folder}/blocks.parquet"] == len(polars.read_parquet(f"{folder}/blocks.parquet"))


def test_json_alone_is_what_explain_prints_and_the_tables(command: Command) -> None:
    plain = json.loads(command("export", RECORDING, "--at", "oom", "--json").out)
    tables = plain.pop("tables")
    assert plain == json.loads(command("explain", RECORDING, "--at", "oom", "--json").out)
    assert len(tables["events"]["event"]) == plain["devices"][0]["num_events"]


def test_a_flame_graph_is_printed_alone_and_other_files_are_told_elsewhere(command: Command, tmp_path: Path) -> None:
    perfetto = str(tmp_path / "a.pftrace")
    done = command("export", RECORDING, "--flamegraph", "-", "--at", "oom", "--perfetto", perfetto)
    sizes = [int(line.rpartition(" ")[2]) for line in done.out.splitlines()]
    assert sum(sizes) == ullage.load(RECORDING).device().counters_at("oom").allocated_bytes
    assert done.err.startswith(perfetto)


def test_whose_lines_lead_can_be_said(command: Command) -> None:
    leads = [
        json.loads(command("export", str(EXAMPLE), "--json", *mine).out)["tables"]["sites"]["lead"]
        for mine in ([], ["--mine", "torch/optim"])
    ]
    assert not [lead for lead in leads[0] if "torch/optim" in lead]
    assert [lead for lead in leads[1] if "torch/optim" in lead]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "export needs an output: --perfetto OUT, --parquet DIR, --flamegraph OUT or --json"),
        (("--flamegraph", "-", "--json"), "both go to standard output"),
        (("--perfetto", "-"), "only --flamegraph and --json can be written to standard output"),
        (("--perfetto", "a", "--flamegraph", "./a"), "two outputs go to one path"),
        (("--perfetto", "missing/a"), "missing/a: cannot be written: No such file or directory"),
        (("--parquet", "file/tables"), "file/tables: cannot be made a folder: Not a directory"),
        (("--perfetto", "folder"), "folder: is a folder; name a file"),
        (("--flamegraph", "a", "--at", "5min"), "is outside"),
        (("--perfetto", "a", "--at", "noon"), "--at 'noon' is no instant"),
        (("--perfetto", "a", "--device", "3"), "has no device 3"),
        (("--json", "--device", "3"), "has no device 3"),
    ],
)
def test_what_cannot_be_done_is_one_line_and_leaves_nothing(
    arguments: tuple[str, ...], message: str, command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("folder").mkdir()
    Path("file").touch()
    done = command("export", RECORDING, *arguments)
    assert (done.code, done.out) == (2, "")
    assert message in done.err
    assert len(done.err.splitlines()) == 1
    assert sorted(os.listdir()) == ["file", "folder"]


@pytest.mark.parametrize("option", ["--perfetto", "--flamegraph"])
def test_the_recording_is_not_written_over(option: str, command: Command, tmp_path: Path) -> None:
    path = tmp_path / "snapshot.pickle.xz"
    shutil.copy(RECORDING, path)
    done = command("export", str(path), option, str(path))
    assert done.code == 2
    assert "is the recording itself" in done.err
    assert path.read_bytes() == Path(RECORDING).read_bytes()


def test_a_recording_that_lies_where_a_table_would_go_stays(command: Command, tmp_path: Path) -> None:
    path = tmp_path / "events.parquet"
    shutil.copy(RECORDING, path)
    done = command("export", str(path), "--parquet", str(tmp_path))
    assert done.code == 2
    assert "is the recording itself" in done.err
    assert os.listdir(tmp_path) == ["events.parquet"]


def test_a_full_disk_is_one_line(command: Command) -> None:
    done = command("export", RECORDING, "--perfetto", "/dev/full")
    assert (done.code, done.out) == (2, "")
    assert done.err == "ullage: /dev/full: cannot be written: No space left on device\n"


def test_without_pyarrow_it_says_what_to_install(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ullage.report.parquet.find_spec", lambda _: None)
    done = command("export", RECORDING, "--parquet", str(tmp_path / "tables"), "--perfetto", str(tmp_path / "a"))
    assert done.code == 2
    assert "pip install 'ullage[fleet]'" in done.err
    assert os.listdir(tmp_path) == []


def test_on_a_terminal_progress_is_shown_and_taken_away(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "a.pftrace")
    monkeypatch.setattr("ullage.cli.export._is_terminal", lambda: True)
    assert command("export", RECORDING, "--perfetto", path).err == f"\x1b[Kwriting {path} …\r\x1b[K\r"
