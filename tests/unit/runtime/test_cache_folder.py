"""Measurements of a machine have one folder, and no file there is an obstacle."""

from __future__ import annotations

from pathlib import Path

import pytest

from ullage.runtime.cache_folder import cache_folder, file_word, keep


@pytest.mark.parametrize(
    ("variables", "folder"),
    [
        ({"ULLAGE_CACHE": "a", "XDG_CACHE_HOME": "b"}, "a"),
        ({"XDG_CACHE_HOME": "b"}, "b/ullage"),
        ({"HOME": "c"}, "c/.cache/ullage"),
    ],
)
def test_the_folder_is_the_users_choice(
    variables: dict[str, str], folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ULLAGE_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert cache_folder() == Path(folder)


def test_a_file_is_replaced_whole_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "one.json"
    assert keep(path, "first")
    assert keep(path, "second")
    assert path.read_text() == "second"
    assert [one.name for one in path.parent.iterdir()] == ["one.json"]


def test_where_nothing_can_be_written_it_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    assert not keep(tmp_path / "file" / "one.json", "text")


def test_a_name_has_no_slashes_or_blanks() -> None:
    assert file_word("RTX 4090/Ti") == "RTX-4090-Ti"
