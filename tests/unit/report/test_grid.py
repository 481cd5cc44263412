"""A table stays readable at every width: no figure is cut, and no text is written one letter below the other."""

from __future__ import annotations

import pytest

from ullage.report.grid import Grid
from ullage.report.text import console, indented


def printed(table: Grid, width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> list[str]:
    monkeypatch.setenv("COLUMNS", str(width))
    console().print(indented(table))
    return capsys.readouterr().out.splitlines()


def sites() -> Grid:
    table = Grid(">bytes", ">share", ">blocks", ">age", "line")
    table.add_row("1.79 GiB", "100 %", "25", "to 4.5 s", "workloads.py:140 train_step\n  from workloads.py:150")
    return table


def test_where_there_is_room_the_columns_stand_beside_each_other(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert printed(sites(), 80, monkeypatch, capsys) == [
        "     bytes  share  blocks       age  line",
        "  1.79 GiB  100 %      25  to 4.5 s  workloads.py:140 train_step",
        "                                       from workloads.py:150",
    ]


def test_where_there_is_none_each_value_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert printed(sites(), 40, monkeypatch, capsys) == [
        "  bytes 1.79 GiB  share 100 %  blocks 25",
        "    age to 4.5 s",
        "    line workloads.py:140 train_step",
        "      from workloads.py:150",
    ]


@pytest.mark.parametrize("width", [40, 48, 56, 64, 80, 120])
def test_no_figure_is_cut_and_no_line_is_too_long(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    table = Grid("", ">requested", ">allocated", ">active", ">reserved")
    table.add_row("peak", "6.61 GiB", "6.62 GiB", "6.63 GiB", "7.97 GiB")
    table.add_row("end", "0 B", "0 B", "0 B", "1,023 MiB")
    lines = printed(table, width, monkeypatch, capsys)
    values = ["6.61 GiB", "6.62 GiB", "6.63 GiB", "7.97 GiB", "1,023 MiB", "requested", "reserved"]
    assert [value for value in values if value not in "\n".join(lines)] == []
    assert max(map(len, lines)) <= width


def test_a_short_last_column_needs_no_more_room_than_it_has(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    table = Grid(">bytes", "cause", "")
    table.add_row("1 MiB", "beside live blocks", "██")
    assert printed(table, 40, monkeypatch, capsys) == ["  bytes  cause", "  1 MiB  beside live blocks  ██"]
