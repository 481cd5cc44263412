"""The command as a shell runs it: exit codes, errors without a traceback, output that fits a pipe."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

import ullage
from tests.recordings import EXAMPLE, path_of
from tests.unit.cli.conftest import Command


def shell(*arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
    code = "from ullage.cli.start import run; run()"
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)  # type: ignore[call-overload,no-any-return]


def test_a_file_that_is_not_there_is_one_line_on_stderr_and_exit_code_2() -> None:
    done = shell("explain", "snapshott.pickle")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("ullage: snapshott.pickle: ")
    assert "No such file or directory" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_debug_shows_the_traceback() -> None:
    done = shell("info", "snapshott.pickle", "--debug")
    assert done.returncode != 0
    assert "Traceback" in done.stderr
    assert "ullage.errors.TraceError" in done.stderr


@pytest.mark.parametrize("command", ["info", "explain"])
def test_piped_output_fits_80_columns_without_blanks_at_the_ends(command: str) -> None:
    done = shell(command, str(EXAMPLE))
    lines = done.stdout.splitlines()
    assert (done.returncode, done.stderr) == (0, "")
    # The path of the file is printed whole.
    assert [line for line in lines if len(line) > 80 and str(EXAMPLE) not in line] == []
    assert [line for line in lines if line != line.rstrip()] == []
    assert "\x1b" not in done.stdout


def test_a_reader_that_goes_away_is_no_error(tmp_path: Path) -> None:
    script = f'"{sys.executable}" -c "from ullage.cli.start import run; run()" explain "{path_of("cache_settles")}" | head -1'
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.stdout.startswith("GPU 0")
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["explain", str(EXAMPLE)], 0),
        (["explain", str(EXAMPLE), "--json", "--top", "1"], 0),
        (["explain", str(EXAMPLE), "--fail-on", "warning"], 1),
        (["explain", str(EXAMPLE), "--at", "noon"], 2),
        (["--help"], 0),
    ],
)
def test_the_exit_code_is_the_commands_whoever_reads_it(arguments: list[str], code: int) -> None:
    program = [sys.executable, "-c", "from ullage.cli.start import run; run()", *arguments]
    with subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        running.stdout.close()  # before anything is written
        error = running.stderr.read()
    assert running.returncode == code
    assert ("noon" in error) if code == 2 else (error == "")


def test_a_full_disk_is_one_line_and_exit_code_2() -> None:
    program = [sys.executable, "-c", "from ullage.cli.start import run; run()", "explain", str(EXAMPLE)]
    with open("/dev/full", "w") as full:
        done = subprocess.run(program, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (2, "ullage: standard output cannot be written: No space left on device\n")


def test_a_mistyped_command_is_answered_with_the_nearest(command: Command) -> None:
    assert "Did you mean" in command("explian", "x").err


def test_the_version_is_printed(command: Command) -> None:
    assert command("--version") == (0, f"ullage {ullage.__version__}\n", "")


@pytest.mark.parametrize("name", ["explain", "info", "diff", "replay", "tune"])
def test_every_command_speaks_json(name: str, command: Command) -> None:
    extra = ["--from", "0s"] if name == "diff" else []
    done = command(name, str(EXAMPLE), *extra, "--json")
    assert (done.code, done.err) == (0, "")
    assert json.loads(done.out)


@pytest.mark.parametrize("columns", ["abc", "40"])
@pytest.mark.parametrize("name", ["explain", "info", "diff", "replay", "tune"])
def test_any_number_of_columns_is_written_in_words(
    name: str, columns: str, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    extra = ["--from", "0s"] if name == "diff" else []
    done = command(name, str(EXAMPLE), *extra)
    assert (done.code, done.err) == (0, "")
    lines = [line.strip() for line in done.out.splitlines()]
    assert [pair for pair in pairwise(lines) if all(len(word) == 1 and word.isalpha() for word in pair)] == []


def test_every_command_is_listed_in_the_help(command: Command) -> None:
    done = command("--help")
    assert done.code == 0
    assert [word for word in ("info", "explain", "diff") if word not in done.out] == []


@pytest.mark.parametrize(
    "arguments",
    [
        ("explode", "x"),
        ("explain",),
        ("explain", "x", "--topp", "3"),
        ("explain", "x", "--top", "0"),
        ("explain", "x", "--device", "-1"),
        ("explain", "x", "--fail-on", "sometimes"),
        ("info", "x", "--at", "peak"),
    ],
)
def test_wrong_usage_is_exit_code_2(arguments: tuple[str, ...], command: Command) -> None:
    done = command(*arguments)
    assert (done.code, done.out) == (2, "")
    assert done.err
    assert "Traceback" not in done.err


def test_the_version_is_that_of_the_package() -> None:
    from importlib.metadata import version

    assert ullage.__version__ == version("ullage")
