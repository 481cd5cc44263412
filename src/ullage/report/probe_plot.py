"""A probe's curves in the terminal: copies by size, and page reach by footprint, on log-log axes."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from ullage.units import format_bytes, format_rate, format_step_ns

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Line = tuple[str, list[tuple[float, float]]]

_LABEL_WIDTH = 9
_NUM_ROWS = 14
_GLYPHS = "●○▲△■□◆◇"
_NUM_TICKS = 6


def probe_charts(report: dict[str, Any], width: int = 80) -> str:
    """Draw what was measured.

    Args:
        report: What `ullage probe --json` prints.
        width: The columns.

    Returns:
        The charts, or one line that says that there is nothing to draw.
    """
    charts = [
        _chart("Copies in a stream, by size", copy_lines(report), width, format_rate),
        _chart("One access of a full GPU, by footprint", reach_lines(report, "gather"), width, format_step_ns),
        _chart("One access after the other, by footprint", reach_lines(report, "chain"), width, format_step_ns),
    ]
    return "\n\n".join(filter(None, charts)) or "There is nothing to draw: no copies and no page reach were measured."


def copy_lines(report: dict[str, Any]) -> list[Line]:
    """Return a line for each kind of copy that was measured: sizes, and bytes a second."""
    arrows = {"to_gpu": "to GPU", "to_host": "to host"}
    return [
        (
            f"{curve['kind']} {arrows[curve['direction']]}",
            [(point["size_bytes"], point["bytes_per_s"]) for point in curve["points"]],
        )
        for curve in report["copies"]
        if curve["points"]
    ]


def reach_lines(report: dict[str, Any], pattern: str) -> list[Line]:
    """Return a line for each stride of a pattern: footprints, and the nanoseconds of an access."""
    return [
        (
            f"one in {format_bytes(curve['stride_bytes'])}",
            [
                (point["footprint_bytes"], point["timing"]["time_ns"] / point["num_accesses"])
                for point in curve["points"]
            ],
        )
        for curve in report["reach"]
        if curve["points"] and curve["pattern"] == pattern
    ]


def _chart(title: str, lines: Sequence[Line], width: int, write: Callable[[Any], str]) -> str:
    """Draw lines: each in its glyph, the first on top where they meet."""
    if not lines:
        return ""
    num_columns = width - _LABEL_WIDTH - 2
    xs = [math.log(x) for _, points in lines for x, _ in points]
    ys = [math.log(y) for _, points in lines for _, y in points]
    across, up = _Axis(min(xs), max(xs), num_columns), _Axis(min(ys), max(ys), _NUM_ROWS)
    cells = [[" "] * num_columns for _ in range(_NUM_ROWS)]
    for glyph, (_, points) in reversed(list(zip(_GLYPHS, lines, strict=False))):
        for column, value in _columns(points, across):
            cells[up.place(value)][column] = glyph
    ticks = {up.place(math.log(tick)): write(tick) for tick in _round_values(min(ys), max(ys))}
    ticks |= {
        row: write(math.exp(value)) for row, value in ((0, min(ys)), (_NUM_ROWS - 1, max(ys))) if row not in ticks
    }
    rows = [
        f"{ticks.get(row, ''):>{_LABEL_WIDTH}} {'┤' if row in ticks else '│'}{''.join(cells[row]).rstrip()}"
        for row in reversed(range(_NUM_ROWS))
    ]
    axis = _size_axis(sorted(set(xs)), across, num_columns)
    return "\n".join([title, *rows, *axis, *_legend([name for name, _ in lines], width)])


def _legend(names: Sequence[str], width: int) -> list[str]:
    rows = [""]
    for glyph, name in zip(_GLYPHS, names, strict=False):
        entry = f"{glyph} {name}"
        if rows[-1] and len(rows[-1]) + 3 + len(entry) > width:
            rows.append("")
        rows[-1] += f"{'   ' if rows[-1] else '  '}{entry}"
    return rows


class _Axis:
    """Turns logarithms into cells."""

    def __init__(self, low: float, high: float, num_cells: int) -> None:
        self._low = low
        self._span = max(high - low, 1e-9)
        self._num_cells = num_cells

    def place(self, value: float) -> int:
        """Return the cell of a value."""
        return min(max(round((value - self._low) / self._span * (self._num_cells - 1)), 0), self._num_cells - 1)

    def value(self, cell: int) -> float:
        """Return the value in the middle of a cell."""
        return self._low + self._span * cell / (self._num_cells - 1)


def _columns(points: Sequence[tuple[float, float]], across: _Axis) -> list[tuple[int, float]]:
    """Return the logarithm of a line's height in each of its columns."""
    logs = [(math.log(x), math.log(y)) for x, y in points]
    found = {across.place(x): y for x, y in logs}
    for (left, low), (right, high) in pairwise(logs):
        for column in range(across.place(left) + 1, across.place(right)):
            found[column] = low + (high - low) * (across.value(column) - left) / (right - left)
    return sorted(found.items())


def _round_values(low: float, high: float) -> list[float]:
    """Return 1, 2 and 5 times the powers of ten between two logarithms."""
    powers = range(math.floor(low / math.log(10)), math.ceil(high / math.log(10)) + 1)
    values = [factor * 10.0**power for power in powers for factor in (1, 2, 5)]
    return [value for value in values if low <= math.log(value) <= high]


def _size_axis(xs: Sequence[float], across: _Axis, num_columns: int) -> list[str]:
    """Return the line below the drawing and its sizes."""
    axis, names = ["─"] * num_columns, [" "] * (num_columns + _LABEL_WIDTH + 2)
    for x in xs[:: max(-(-len(xs) // _NUM_TICKS), 1)]:
        column = across.place(x)
        label = format_bytes(round(math.exp(x)))
        place = min(_LABEL_WIDTH + 2 + column, len(names) - len(label))
        if "".join(names[place - 1 : place + len(label)]).strip():
            continue
        axis[column] = "┬"
        names[place : place + len(label)] = label
    return [f"{'':>{_LABEL_WIDTH}} └{''.join(axis)}", "".join(names).rstrip()]
