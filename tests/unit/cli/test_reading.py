"""What is read before the command line is understood: taken over when the guess was right, of no consequence when not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.recordings import EXAMPLE
from ullage.cli import reading
from ullage.errors import TraceError


@pytest.fixture(autouse=True)
def _nothing_begun() -> None:
    reading._begun.clear()


def run_module(*arguments: str) -> subprocess.CompletedProcess[str]:
    program = [sys.executable, "-m", "ullage", *arguments]
    return subprocess.run(program, capture_output=True, text=True, check=False)


def test_the_file_that_was_begun_is_the_one_that_is_read() -> None:
    reading.begin(["info", "--json", str(EXAMPLE)])
    (begun,) = reading._begun
    trace = reading.read(str(EXAMPLE))
    assert trace.tables is begun.tables()
    assert reading._begun == []


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["--help"],
        ["replay", str(EXAMPLE)],
        ["info", "no_such_file.pickle"],
        ["info", "-"],
        ["info", str(EXAMPLE), str(EXAMPLE)],
    ],
)
def test_nothing_is_begun_where_the_file_is_not_plain(words: list[str]) -> None:
    reading.begin(words)
    assert reading._begun == []


def test_a_wrong_guess_changes_nothing(tmp_path: Path) -> None:
    other = tmp_path / "broken.pickle"
    other.write_bytes(b"\x80\x04(")
    reading.begin(["info", str(other)])
    assert reading.read(str(EXAMPLE), mine="workloads").path == str(EXAMPLE)


def test_an_error_of_the_thread_is_the_readers(tmp_path: Path) -> None:
    broken = tmp_path / "broken.pickle"
    broken.write_bytes(b"\x80\x04(")
    reading.begin(["info", str(broken)])
    with pytest.raises(TraceError, match=r"broken\.pickle"):
        reading.read(str(broken))


def test_the_module_runs_as_the_command_does(tmp_path: Path) -> None:
    done = run_module("info", str(EXAMPLE))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(str(EXAMPLE)) or str(EXAMPLE) in done.stdout
    broken = tmp_path / "broken.pickle"
    broken.write_bytes(b"\x80\x04(")
    done = run_module("explain", str(broken))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"ullage: {broken}: ")
    assert run_module("info", str(EXAMPLE), "--no-such-option").returncode == 2


def test_a_closed_standard_error_changes_no_exit_code() -> None:
    script = f'"{sys.executable}" -m ullage info "{EXAMPLE}" 2>&-'
    assert subprocess.run(["sh", "-c", script], capture_output=True, check=False).returncode == 0
