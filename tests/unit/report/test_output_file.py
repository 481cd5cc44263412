"""Files are whole or not there: what fails leaves what was there before, and nothing beside it."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest

from ullage.errors import UllageError
from ullage.report.output_file import replacing


def test_a_file_takes_its_place_when_it_is_whole(tmp_path: Path) -> None:
    target = tmp_path / "out"
    target.write_text("old")
    with replacing([str(target)], source="") as (part,):
        Path(part).write_text("new")
        assert target.read_text() == "old"
    assert target.read_text() == "new"
    assert os.listdir(tmp_path) == ["out"]


def test_a_failure_leaves_what_was_there_and_nothing_else(tmp_path: Path) -> None:
    target = tmp_path / "out"
    target.write_text("old")

    def write_half() -> None:
        with replacing([str(target)], source="") as (part,):
            Path(part).write_text("half")
            raise KeyError

    with pytest.raises(KeyError):
        write_half()
    assert target.read_text() == "old"
    assert os.listdir(tmp_path) == ["out"]


def test_a_full_disk_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    target = tmp_path / "out"
    with (
        pytest.raises(UllageError, match=r"out: cannot be written: No space left"),
        replacing([str(target)], source=""),
    ):
        raise OSError(28, "No space left on device")
    assert os.listdir(tmp_path) == []


def test_of_several_files_none_is_replaced_if_one_cannot_be_begun(tmp_path: Path) -> None:
    first = tmp_path / "first"
    first.write_text("old")
    with (
        pytest.raises(UllageError, match=r"second: cannot be written: No such file"),
        replacing([str(first), str(tmp_path / "missing" / "second")], source=""),
    ):
        pytest.fail("nothing can be written")
    assert os.listdir(tmp_path) == ["first"]
    assert first.read_text() == "old"


def test_the_source_is_not_written_over_by_any_of_its_names(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_text("recording")
    (tmp_path / "link").symlink_to(source)
    for name in ("source", "link"):
        with (
            pytest.raises(UllageError, match="is the recording itself"),
            replacing([str(tmp_path / name)], source=str(source)),
        ):
            pytest.fail("it may not be written")
    assert source.read_text() == "recording"


def test_a_link_stays_and_its_file_is_replaced_with_its_permissions(tmp_path: Path) -> None:
    target, link = tmp_path / "out", tmp_path / "link"
    target.write_text("old")
    target.chmod(0o640)
    link.symlink_to(target)
    with replacing([str(link)], source="") as (part,):
        Path(part).write_text("new")
    assert link.is_symlink()
    assert target.read_text() == "new"
    assert stat.S_IMODE(target.stat().st_mode) == 0o640


def test_a_folder_is_refused_and_a_pipe_is_written_to(tmp_path: Path) -> None:
    with pytest.raises(UllageError, match="is a folder"), replacing([str(tmp_path)], source=""):
        pytest.fail("a folder cannot be written")
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()))
    reader.start()
    with replacing([str(pipe)], source="") as (part,), open(part, "w") as file:
        file.write("through")
    reader.join()
    assert read == ["through"]
    assert os.listdir(tmp_path) == ["pipe"]
