"""`ullage report`: what it writes and says, and what it refuses without losing anything."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.recordings import EXAMPLE, device_of, findings_of, path_of
from tests.unit.cli.conftest import Command
from tests.unit.conftest import Save
from tests.unit.report.page.unpacking import unpack
from tests.unit.snapshot_builder import MIB, SnapshotBuilder, merged

RECORDING = str(path_of("survivors"))


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in an empty folder."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def heads_of(page: str | Path) -> list[dict[str, Any]]:
    """Return the plain data of a page's blocks: first the list of ranks, then one for each."""
    blocks = re.findall(r'<script type="application/x-ullage" class="rank">([^<]*)</script>', Path(page).read_text())
    return [unpack(base64.b64decode(block))[0] for block in blocks]


@pytest.mark.parametrize(
    ("name", "page"),
    [
        ("survivors.pickle.xz", "survivors.html"),
        ("rank0.json.gz", "rank0.html"),
        ("a.b.pickle", "a.b.html"),
        ("snapshot", "snapshot.html"),
        (".pickle", "report.html"),
    ],
)
def test_without_a_name_the_page_is_called_as_the_recording_and_lies_here(
    name: str, page: str, command: Command, here: Path
) -> None:
    elsewhere = here.parent / name
    shutil.copy(RECORDING, elsewhere)
    done = command("report", str(elsewhere), "--no-what-if")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith(f"wrote {page} (")
    assert os.listdir() == [page]
    _, rank = heads_of(page)
    assert rank["name"] == name
    assert [one["title"] for one in rank["findings"]] == [one.title for one in findings_of("survivors")]


def test_a_page_is_written_from_standard_input(here: Path) -> None:
    with open(RECORDING, "rb") as recording:
        done = subprocess.run(
            [sys.executable, "-c", "from ullage.cli.start import run; run()", "report", "-"],
            stdin=recording,
            capture_output=True,
            text=True,
            check=False,
        )
    assert (done.returncode, done.stderr) == (0, "")
    assert os.listdir() == ["report.html"]
    assert heads_of("report.html")[1]["num_events"] == device_of("survivors").num_events


def test_with_json_it_says_what_was_written(command: Command) -> None:
    done = command("report", RECORDING, "-o", "a page.html", "--json")
    written = json.loads(done.out)
    assert (done.code, done.err) == (0, "")
    assert written.keys() == {"path", "bytes", "ranks", "num_findings"}
    assert written["path"] == "a page.html"
    assert written["bytes"] == os.path.getsize("a page.html") > 10_000
    assert written["num_findings"] == len(findings_of("survivors"))
    (rank,) = written["ranks"]
    assert rank["name"] == "survivors.pickle.xz"
    assert rank["peak_allocated_bytes"] == device_of("survivors").peak.allocated_bytes
    ranks, shown = heads_of("a page.html")
    assert ranks["ranks"] == [rank]
    assert {"cudaMallocAsync"} < {one["outcome"]["policy"] for one in shown["what_if"]}


def test_other_settings_can_be_left_out_or_held_under_a_limit(command: Command) -> None:
    assert command("report", RECORDING, "-o", "without.html", "--no-what-if").code == 0
    assert heads_of("without.html")[1]["what_if"] == []
    assert command("report", RECORDING, "-o", "capped.html", "--cap", "12GiB").code == 0
    outcomes = [one["outcome"] for one in heads_of("capped.html")[1]["what_if"]]
    assert {one["cap_bytes"] for one in outcomes} == {12 << 30}
    assert {one["outcome"] for one in outcomes} == {"ok", "oom"}


def test_ranks_of_one_name_are_told_apart_and_the_odd_one_is_first(command: Command, save: Save, here: Path) -> None:
    for number in range(4):
        Path(f"run/{number}").mkdir(parents=True)
        one = SnapshotBuilder()
        one.alloc((30 if number == 2 else 20) * MIB)
        shutil.move(save(one), f"run/{number}/snapshot.pickle")
    files = [f"run/{number}/snapshot.pickle" for number in range(4)]
    done = command("report", *files, "-o", "all.html")
    assert (done.code, done.err) == (0, "")
    assert "4 ranks" in done.out
    assert "10 MiB more allocated" in " ".join(done.out.split())
    index, *ranks = heads_of("all.html")
    names = [f"{number}/snapshot.pickle" for number in (2, 0, 1, 3)]
    assert [one["name"] for one in index["ranks"]] == names
    assert [one["name"] for one in ranks] == names
    assert index["ranks"][0]["aside"] == "10 MiB more allocated at its peak than the median rank (50 %)"
    assert "<title>0/snapshot.pickle and 3 more - ullage</title>" in Path("all.html").read_text()


def test_one_file_given_twice_is_two_ranks(command: Command) -> None:
    done = command("report", RECORDING, RECORDING, "-o", "a.html", "--no-what-if", "--json")
    assert [one["name"] for one in json.loads(done.out)["ranks"]] == [RECORDING, RECORDING]


def test_each_gpu_of_a_recording_is_a_rank_unless_one_is_asked_for(command: Command, save: Save) -> None:
    first, second = SnapshotBuilder(), SnapshotBuilder(device=1)
    first.alloc(3 * MIB)
    second.alloc(5 * MIB)
    path = save(merged(first.snapshot(), second.snapshot()))
    for arguments, names in (
        ((), ["snapshot.pickle GPU 0", "snapshot.pickle GPU 1"]),
        (
            ("--device", "1"),
            ["snapshot.pickle"],
        ),
    ):
        written = json.loads(command("report", path, *arguments, "--json").out)
        assert [one["name"] for one in written["ranks"]] == names
    assert heads_of("snapshot.html")[1]["summary"]["device"] == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("missing.pickle",), "missing.pickle: "),
        ((RECORDING, "missing.pickle"), "missing.pickle: "),
        ((RECORDING, "broken.pickle"), "broken.pickle: "),
        ((RECORDING, "--device", "3"), "has no device 3"),
        ((RECORDING, "--cap", "much"), "--cap "),
        ((RECORDING, "--mine", "("), "--mine '(' is no regular expression"),
        (("empty.pickle",), "nothing to show: empty.pickle has no device with events or segments"),
    ],
)
def test_what_fails_is_one_line_and_leaves_the_page_that_was_there(
    arguments: tuple[str, ...], message: str, command: Command, save: Save
) -> None:
    Path("page.html").write_text("old")
    Path("broken.pickle").write_bytes(Path(RECORDING).read_bytes()[:500])
    shutil.copy(save({"segments": [], "device_traces": []}), "empty.pickle")
    before = sorted(os.listdir())
    done = command("report", *arguments, "-o", "page.html")
    assert (done.code, done.out) == (2, "")
    assert message in done.err
    assert len(done.err.splitlines()) == 1
    assert Path("page.html").read_text() == "old"
    assert sorted(os.listdir()) == before


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ("nowhere/page.html", "nowhere/page.html: cannot be written: No such file or directory"),
        ("folder", "folder: is a folder; name a file"),
        ("/dev/full", "/dev/full: cannot be written: No space left on device"),
        ("/proc/page.html", "/proc/page.html: cannot be written: "),
    ],
)
def test_where_nothing_can_be_written_that_is_one_line(output: str, message: str, command: Command) -> None:
    Path("folder").mkdir()
    done = command("report", RECORDING, "--no-what-if", "-o", output)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"ullage: {message}")
    assert len(done.err.splitlines()) == 1
    assert os.listdir() == ["folder"]
    assert os.listdir("folder") == []


@pytest.mark.parametrize("index", [0, 1, 2])
def test_no_recording_is_written_over(index: int, command: Command) -> None:
    for number in range(3):
        shutil.copy(RECORDING, f"{number}.pickle.xz")
    os.symlink(f"{index}.pickle.xz", "link.html")
    files = [f"{number}.pickle.xz" for number in range(3)]
    for output in (f"./{index}.pickle.xz", "link.html"):
        done = command("report", *files, "--no-what-if", "-o", output)
        assert (done.code, done.out) == (2, "")
        assert "is the recording itself" in done.err
    assert all(Path(file).read_bytes() == Path(RECORDING).read_bytes() for file in files)
    assert sorted(os.listdir()) == sorted([*files, "link.html"])


def test_a_name_that_is_no_text_is_written_out(command: Command) -> None:
    name = os.fsdecode(b"rank\xff<b>.pickle.xz")
    shutil.copy(RECORDING, name)
    done = command("report", name, "--no-what-if", "-o", "page.html")
    assert (done.code, done.err) == (0, "")
    assert r"<title>rank\udcff&lt;b&gt;.pickle.xz - ullage</title>" in Path("page.html").read_text()


def test_whose_lines_lead_can_be_said(command: Command) -> None:
    files = []
    for mine in ([], ["--mine", "torch/optim"]):
        assert command("report", str(EXAMPLE), "-o", "page.html", "--no-what-if", *mine).code == 0
        head = heads_of("page.html")[1]
        files.append({head["files"][line["file"]] for line in head["lines"]})
    assert not [file for file in files[0] if "torch/optim" in file]
    assert [file for file in files[1] if "torch/optim" in file]


def test_on_a_terminal_progress_is_shown_and_taken_away_also_where_it_fails(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ("report", RECORDING, "missing.pickle", "--no-what-if", "-o", "page.html")
    quiet = command(*arguments)
    assert "\r" not in quiet.err
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    shown = command(*arguments)
    assert shown.err == f"\r\x1b[K1 of 2: {RECORDING}\r\x1b[K2 of 2: missing.pickle\r\x1b[K{quiet.err}"


def test_help_says_what_it_is_for(command: Command) -> None:
    assert re.search(r"report +One page with pictures, for any browser", command("--help").out)
    words = " ".join(re.sub(r"[│╭╮╰╯─]", " ", command("report", "--help").out).split())
    assert "it needs no network, and opens in any browser" in words
    for option in ("--output", "--no-what-if", "--cap", "--device", "--mine", "--json", "--debug"):
        assert option in words
