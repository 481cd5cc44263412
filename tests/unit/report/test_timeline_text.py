"""The timeline in a terminal: fits its width, shows the peak and errors, and reads without colours."""

from __future__ import annotations

import io
import re

import pytest
from rich.cells import cell_len
from rich.console import Console

import ullage
from tests.recordings import EXPECTED, device_of
from tests.unit.conftest import Load
from tests.unit.report.hostile_names import NAMES
from tests.unit.snapshot_builder import MIB, SimulatedOutOfMemoryError, SnapshotBuilder
from ullage.report.timeline_text import Timeline


def drawn(device: ullage.DeviceTrace, *, width: int = 80, colours: bool = False, at: str | int = "peak") -> list[str]:
    out = io.StringIO()
    system = "truecolor" if colours else None
    Console(file=out, width=width, height=25, force_terminal=colours, color_system=system, highlight=False).print(
        Timeline(device, at=at)
    )
    return [line.rstrip() for line in out.getvalue().splitlines()]


def rows(lines: list[str]) -> list[str]:
    """Return the cells of the drawing, the highest row first."""
    return [line[10:] for line in lines if line[9:10] in ("│", "┤")]


@pytest.mark.parametrize("width", [40, 60, 80, 200])
@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_no_line_is_longer_than_the_width(name: str, width: int) -> None:
    lines = drawn(device_of(name), width=width)
    assert len(lines) > 8
    assert max(cell_len(line) for line in lines) <= width


def test_two_lines_are_stacked_with_a_glyph_each_and_reserved_lies_above(load: Load) -> None:
    one = SnapshotBuilder()
    one.alloc(32 * MIB, "train.py:1 load")
    one.wait(1000)
    one.alloc(64 * MIB, "train.py:2 forward")
    one.wait(1000)
    lines = drawn(load(one).device(), width=50)
    cells = rows(lines)
    assert cells[-2].startswith("█" * 19)
    assert set(cells[0].strip()) <= {"─", "╭", "╮", "╯"}
    assert "░" in cells[1]
    assert "█" not in cells[1]
    assert [line.split() for line in lines[-2:]] == [
        ["░░", "64", "MiB", "64", "MiB", "train.py:2", "forward"],
        ["██", "32", "MiB", "32", "MiB", "train.py:1", "load"],
    ]


def test_a_peak_of_one_microsecond_among_many_events_is_drawn(load: Load) -> None:
    one = SnapshotBuilder()
    one.alloc(32 * MIB, "train.py:1 load")
    for number in range(400):
        one.free(one.alloc((200 if number == 100 else 1) * MIB, "train.py:2 spike"))
    cells = rows(drawn(load(one).device(), width=60))
    high = {index for row in cells[1:4] for index, cell in enumerate(row) if cell == "░"}
    assert len(high) == 1


def test_the_sign_of_the_peak_stands_over_its_column(load: Load) -> None:
    one = SnapshotBuilder()
    one.alloc(32 * MIB)
    one.wait(500)
    one.free(one.alloc(64 * MIB))
    one.wait(500)
    one.alloc(2 * MIB)
    lines = drawn(load(one).device(), width=60)
    (line,) = [line for line in lines if "▼" in line]
    column = line.index("▼") - 10
    tall = [index for index, cell in enumerate(rows(lines)[1]) if cell in "█░"]
    assert tall == [column]
    assert "peak 96 MiB" in line


def test_an_out_of_memory_error_has_a_sign_and_says_what_was_asked_for(load: Load) -> None:
    one = SnapshotBuilder(limit_bytes=64 * MIB)
    one.alloc(30 * MIB)
    one.wait(1000)
    for _ in range(2):
        with pytest.raises(SimulatedOutOfMemoryError):
            one.alloc(60 * MIB)
        one.wait(1000)
    (line,) = [line for line in drawn(load(one).device()) if "✗" in line]
    assert "out of memory (2 times) ✗" in line
    assert line.count("✗") == 2
    assert "out of memory (2 times): 60 MiB asked for ✗" in drawn(load(one).device(), width=110)[2]
    assert "60 MiB asked for, 1.02 ms in ✗" in drawn(load(one).device(), width=200)[2]


def test_a_row_of_errors_that_leaves_no_room_for_words_is_named_in_front(load: Load) -> None:
    one = SnapshotBuilder(limit_bytes=64 * MIB)
    for _ in range(8):
        with pytest.raises(SimulatedOutOfMemoryError):
            one.alloc(90 * MIB)
    (line,) = [line for line in drawn(load(one).device(), width=50) if "✗" in line]
    assert line.startswith("     OOM  ✗")


def test_the_lines_are_listed_at_the_instant_asked_for(load: Load) -> None:
    one = SnapshotBuilder()
    one.free(one.alloc(64 * MIB, "train.py:1 load"))
    one.alloc(32 * MIB, "train.py:2 keep")
    lines = drawn(load(one).device(), at="end")
    assert any("▽" in line and "32 MiB" in line for line in lines)
    assert any(re.search(r"0 B +64 MiB +train.py:1 load", line) for line in lines)
    assert any(re.search(r"32 MiB +32 MiB +train.py:2 keep", line) for line in lines)


def test_colours_are_only_used_where_there_are_some() -> None:
    device = device_of("metadata")
    assert "\x1b[" not in "".join(drawn(device))
    coloured = "\n".join(drawn(device, colours=True))
    assert "38;2;0;114;178" in coloured
    plain = re.sub(r"\x1b\[[0-9;]*m", "", coloured)
    assert max(cell_len(line) for line in plain.splitlines()) <= 80


@pytest.mark.parametrize("name", NAMES)
def test_hostile_names_cannot_break_the_drawing(name: str, load: Load) -> None:
    one = SnapshotBuilder()
    one.alloc(32 * MIB)
    for event in one.events:
        event["frames"] = [{"filename": f"{name}.py", "line": 3, "name": name}]
    lines = drawn(load(one).device())
    assert all(line.isprintable() for line in lines)
    assert max(cell_len(line) for line in lines) <= 80


def test_a_recording_of_one_instant_is_drawn(load: Load) -> None:
    one = SnapshotBuilder()
    one.alloc(32 * MIB)
    for event in one.events:
        event["time_us"] = 5
    lines = drawn(load(one).device())
    assert any("peak 32 MiB, 0 µs in" in line for line in lines)
