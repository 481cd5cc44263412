"""The pieces of a text report: sites, bars and sparklines, and a console that fits a file."""

from __future__ import annotations

import pytest

from ullage.report.grid import Grid
from ullage.report.text import bar, console, short_file, site_text, sparkline, via_text

FRAME = {"file": "/home/me/project/train.py", "line": 12, "function": "step"}
LIBRARY = {"file": "/opt/site-packages/torch/nn/linear.py", "line": 5, "function": "forward", "bytes": 60}


@pytest.mark.parametrize(
    ("path", "short"),
    [
        ("/opt/lib/python3.11/site-packages/torch/nn/modules/linear.py", "torch/…/linear.py"),
        ("/opt/lib/python3.11/site-packages/torch/serialization.py", "torch/serialization.py"),
        ("/opt/lib/python3.11/site-packages/six.py", "six.py"),
        ("/home/me/project/train.py", "project/train.py"),
        ("train.py", "train.py"),
        ("", ""),
    ],
)
def test_paths_keep_their_telling_end(path: str, short: str) -> None:
    assert short_file(path) == short


def test_a_site_is_its_leading_frame_and_who_called_it() -> None:
    callers = [FRAME | {"line": line} for line in (20, 30, 40)]
    assert site_text([FRAME, *callers]).plain.split("\n") == [
        "project/train.py:12 step",
        "  from project/train.py:20 step",
        "  from project/train.py:30 step",
    ]
    assert site_text([]).plain == "(no Python stack)"


def test_the_library_frame_is_shown_where_most_of_the_bytes_are() -> None:
    assert via_text([LIBRARY], 100).plain == "\n  in torch/…/linear.py:5 forward"
    assert via_text([LIBRARY], 200).plain == ""
    assert via_text([], 0).plain == ""


@pytest.mark.parametrize(
    ("part", "whole", "drawn"), [(0, 8, ""), (8, 8, "█" * 16), (4, 8, "█" * 8), (1, 10_000, "▏"), (1, 0, "▏")]
)
def test_a_bar_is_as_long_as_its_share(part: int, whole: int, drawn: str) -> None:
    assert bar(part, whole).plain == drawn


def test_a_sparkline_goes_from_nothing_to_the_largest() -> None:
    assert sparkline([0, 7]) == "▁█"
    assert sparkline([0, 0]) == "▁▁"
    assert sparkline([]) == ""
    assert len(sparkline(list(range(1000)))) == 48


def test_what_goes_to_a_file_is_80_columns_wide_without_blanks_at_the_ends(capsys: pytest.CaptureFixture[str]) -> None:
    table = Grid("name", ">bytes")
    table.add_row("word " * 40, "1")
    console().print(table)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert [line for line in lines if line != line.rstrip()] == []


@pytest.mark.parametrize(
    ("columns", "width"),
    [("100", 100), ("abc", 80), ("", 80), ("-5", 80), ("²", 80), ("0", 80), ("12", 40), ("39", 40), (None, 80)],
)
def test_columns_is_heeded_where_it_is_a_number_and_never_below_40(
    columns: str | None, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    if columns is not None:
        monkeypatch.setenv("COLUMNS", columns)
    assert console().width == width


@pytest.mark.parametrize(("columns", "width"), [("12", 40), ("100", 100)])
def test_a_narrow_terminal_counts_as_40_columns_too(columns: str, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert console().width == width
