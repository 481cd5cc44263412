"""The timeline in a terminal: what is allocated, stacked by line, and the line of reserved above it.

::

    ▼ peak 5.05 GiB, 5.68 s in
    8 GiB ┤           ╭─────────    a cell is an eighth of its row exact where there are colours: the lower line in the
          │      ╭────╯    ▒▒▒▒░    foreground, the upper one in the background; else each cell shows the glyph of the
    4 GiB ┤──────╯   ▒▒▒▒▒▒▒▒▒▒▒    line that has most of it
          │ ▒▒▒▒▒▒███████████████
    0     ┼─┬─────────┬──────────
            0         2         4 s
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from rich.color import Color
from rich.style import Style
from rich.text import Text

from ullage.explain.live_series import live_columns
from ullage.report.axis import byte_ticks, time_ticks
from ullage.report.palette import OOM_COLOUR, colours_of
from ullage.report.printable import line_name
from ullage.units import format_bytes, format_duration

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

    from ullage.explain.live_series import LiveSeries, Mark
    from ullage.trace import DeviceTrace

_EIGHTHS = " ▁▂▃▄▅▆▇█"
_GLYPHS = "█░▓+▒·▚"  # from the lowest line up; neighbours differ in kind, not only in how dark they are
_LABEL_WIDTH = 9
_NUM_LINES = 5
_EMPTY = -1
_PLAIN = Style()
_OOM_STYLE = Style(color=OOM_COLOUR, bold=True)
_RESERVED_STYLE = Style(bold=True)

Cell = tuple[str, Style]


class Timeline:
    """A device's timeline, as wide as the console.

    Args:
        device: The device.
        at: The instant whose lines are listed, as in `DeviceTrace.event_at`.
    """

    def __init__(self, device: DeviceTrace, at: str | int = "peak") -> None:
        self._device = device
        self._at = at

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if not self._device.num_events:
            yield Text(f"GPU {self._device.number} has no timeline: the file holds no events of it.", style="dim")
            return
        width = options.max_width
        series = live_columns(self._device, width - _LABEL_WIDTH - 1, num_lines=_NUM_LINES, at=self._at)
        has_colours = console.color_system is not None and not console.no_color
        canvas = _Canvas(series, max_rows=max(8, min(16, console.height - 13)), has_colours=has_colours)
        for line in [*canvas.mark_lines(), *canvas.lines(), *canvas.time_lines(), *canvas.legend_lines()]:
            line.truncate(width, overflow="ellipsis")
            line.no_wrap = True
            yield line


class _Canvas:
    """The cells of one drawing; rows count from the bottom.

    Ticks stand a whole number of rows apart, so the drawing can have a few rows fewer than there is room for.
    """

    def __init__(self, series: LiveSeries, max_rows: int, has_colours: bool) -> None:
        self._series = series
        self._num_columns = len(series.events)
        self._has_colours = has_colours
        largest = max(int(series.reserved_bytes.max()), int(series.allocated_bytes.max()), 8 * max_rows)
        self._ticks = byte_ticks(largest, max_rows // 2)[1:]
        self._rows_per_tick = max_rows * self._ticks[0] // largest
        self._num_rows = -(-largest * self._rows_per_tick // self._ticks[0])
        self._top = self._ticks[0] * self._num_rows // self._rows_per_tick
        self._styles = [Style(color=colour) if has_colours else _PLAIN for colour in colours_of(series.lines)]
        self._cells = [self._column(column) for column in range(self._num_columns)]
        self._draw_reserved()
        self._draw_ooms()

    def _column(self, column: int) -> list[Cell]:
        """Cut a column's stack into cells."""
        size = 8 * self._num_rows
        edges = [0]
        for size_bytes in self._series.line_bytes[:, column].cumsum().tolist():
            edges.append(round(size * size_bytes / self._top))
        if self._series.allocated_bytes[column] > 0:
            edges[-1] = max(edges[-1], 1)
        cells = []
        for row in range(self._num_rows):
            low, high = 8 * row, 8 * row + 8
            parts = [
                (line, min(end, high) - max(begin, low))
                for line, (begin, end) in enumerate(pairwise(edges))
                if min(end, high) > max(begin, low)
            ]
            cells.append(self._cell(parts, high - min(max(edges[-1], low), high)))
        return cells

    def _cell(self, parts: list[tuple[int, int]], num_empty: int) -> Cell:
        """Draw the lines of a cell, each with its eighths, from below."""
        if not parts:
            return " ", _PLAIN
        if num_empty:
            parts = [*parts, (_EMPTY, num_empty)]
        if not self._has_colours:
            line, _ = max(parts, key=lambda part: part[1])
            return (" ", _PLAIN) if line == _EMPTY else (_GLYPHS[line % len(_GLYPHS)], _PLAIN)
        two = sorted(sorted(range(len(parts)), key=lambda i: -parts[i][1])[:2])
        (lower, eighths), (upper, others) = parts[two[0]], parts[two[-1]]
        if len(two) == 1:
            return "█", self._styles[lower]
        block = _EIGHTHS[max(1, min(7, round(8 * eighths / (eighths + others))))]
        return block, self._styles[lower] + self._background(upper)

    def _background(self, line: int) -> Style:
        return _PLAIN if line == _EMPTY else Style(bgcolor=self._styles[line].color)

    def _draw_reserved(self) -> None:
        """Draw reserved as a line of steps, over the area that reaches as high."""
        rows = [
            max(-(-int(value) * self._num_rows // self._top) - 1, 0) if value else None
            for value in self._series.reserved_bytes
        ]
        for column, row in enumerate(rows):
            before = rows[column - 1] if column else row
            if row is None:
                continue
            if before is None or before == row:
                self._put(column, row, "─")
                continue
            is_rise = row > before
            self._put(column, row, "╭" if is_rise else "╰")
            for between in range(min(row, before) + 1, max(row, before)):
                self._put(column, between, "│", only_empty=True)
            self._put(column, before, "╯" if is_rise else "╮", only_empty=is_rise)

    def _put(self, column: int, row: int, char: str, *, only_empty: bool = False) -> None:
        old, style = self._cells[column][row]
        if not only_empty or old == " ":
            is_full = old == "█" and self._has_colours
            behind = Style(bgcolor=style.color, color=Color.parse("black")) if is_full else _PLAIN
            self._cells[column][row] = char, _RESERVED_STYLE + behind

    def _draw_ooms(self) -> None:
        for mark in self._series.marks:
            if mark.kind == "oom":
                cells = self._cells[self._column_of(mark)]
                for row, (char, _) in enumerate(cells):
                    if char in " ─╭╮╯╰│":
                        cells[row] = "┊" if char == " " else char, _OOM_STYLE

    def _column_of(self, mark: Mark) -> int:
        return max(int(self._series.time_us.searchsorted(mark.time_us, side="right")) - 1, 0)

    def mark_lines(self) -> list[Text]:
        """Return the lines above the drawing: what it is of, and one for each kind of mark."""
        series = self._series
        lines = [Text(f"GPU {series.device}: allocated by line, and reserved (─) above it", style="bold")]
        ooms = [mark for mark in series.marks if mark.kind == "oom"]
        for mark in series.marks:
            size, moment = format_bytes(mark.allocated_bytes), f", {format_duration(mark.time_us)} in"
            if mark.kind == "peak":
                lines.append(self._mark_line([mark], "▼", [f"peak {size}{moment}", f"peak {size}"]))
            elif mark.kind == "at":
                lines.append(self._mark_line([mark], "▽", [f"{size}{moment}", size]))
        if ooms:
            what = "out of memory" + (f" ({series.num_ooms:,} times)" if series.num_ooms > 1 else "")
            asked = f"{what}: {format_bytes(ooms[0].requested_bytes)} asked for"
            labels = [f"{asked}, {format_duration(ooms[0].time_us)} in", asked, what]
            lines.append(self._mark_line(ooms, "✗", labels, _OOM_STYLE))
        return lines

    def _mark_line(self, marks: list[Mark], sign: str, labels: list[str], style: Style = _PLAIN) -> Text:
        """Put a sign over the column of each mark, and the longest of the labels that has room right or left of them."""
        columns = [self._column_of(mark) for mark in marks]
        chars = [" "] * self._num_columns
        for column in columns:
            chars[column] = sign
        after, margin = max(columns) + 1, ""
        for label in (f" {label} " for label in labels):
            before = min(columns) - len(label)
            is_right = after + len(label) <= self._num_columns
            if is_right or before >= 0:
                start = after if is_right else before
                chars[start : start + len(label)] = label
                break
        else:
            margin = "OOM"  # errors are all over the recording: their row is named in front
        return Text(f"{margin:>{_LABEL_WIDTH - 1}}  {''.join(chars).rstrip()}", style=style)

    def lines(self) -> list[Text]:
        """Return the rows of the drawing, the highest first, with the axis of sizes."""
        step = self._rows_per_tick
        ticks = {(number + 1) * step - 1: format_bytes(tick) for number, tick in enumerate(self._ticks)}
        lines = []
        for row in reversed(range(self._num_rows)):
            label = ticks.get(row, "")
            line = Text(f"{label:>{_LABEL_WIDTH - 1}} {'┤' if label else '│'}", style=_PLAIN)
            for column in self._cells:
                line.append(*column[row])
            lines.append(line)
        return lines

    def time_lines(self) -> list[Text]:
        """Return the axis of time: its line and its labels."""
        ticks, labels = time_ticks(self._series.span_us, max(self._num_columns // 10, 2))
        axis, names = ["─"] * self._num_columns, [" "] * (self._num_columns + _LABEL_WIDTH + 1)
        for tick, label in zip(ticks, labels, strict=True):
            column = min(tick * self._num_columns // max(self._series.span_us, 1), self._num_columns - 1)
            axis[column] = "┬"
            place = min(_LABEL_WIDTH + 1 + column, len(names) - len(label))
            names[place : place + len(label)] = label
        return [Text(f"{0:>{_LABEL_WIDTH - 1}} └{''.join(axis)}"), Text("".join(names).rstrip())]

    def legend_lines(self) -> list[Text]:
        """Return what each line holds at the instant, in the order in which they are stacked, the highest first."""
        series = self._series
        kind = next(mark.kind for mark in series.marks if mark.event == series.at.event)
        moment = {"peak": "at the peak", "oom": "at the error"}.get(kind, f"at {format_duration(series.at.time_us)}")
        lines = [Text(f"    {moment:>12}  {'at most':>9}  line, from the highest down", style="dim")]
        for index in reversed(range(len(series.lines))):
            glyph = "█" if self._has_colours else _GLYPHS[index % len(_GLYPHS)]
            name = line_name(series.lines[index])
            then, most = format_bytes(series.at_bytes[index]), format_bytes(series.line_peaks[index])
            lines.append(Text.assemble("  ", (glyph * 2, self._styles[index]), f"{then:>12}  {most:>9}  ", name))
        return lines
