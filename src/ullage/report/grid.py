"""Tables without lines. Where the columns have no room beside each other, each row becomes a few lines of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.padding import Padding
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

# A last column that is narrower than this is read word by word at best.
_LAST_COLUMN_WIDTH = 20


class Grid:
    """A table whose figures are always whole, and whose text is folded at words.

    Args:
        columns: The headings; one with a leading ">" is of figures: right-aligned and never folded.
        gap: The number of blanks between columns.

    Beside each other, or one below the other where the console is too narrow for that:

           bytes  share  line              bytes 1.79 GiB  share 100 %
        1.79 GiB  100 %  train.py:3 step     line train.py:3 step
    """

    def __init__(self, *columns: str, gap: int = 2) -> None:
        self._names = [name.lstrip(">") for name in columns]
        self._is_figure = [name.startswith(">") for name in columns]
        self._gap = gap
        self._rows: list[list[Text]] = []

    def add_row(self, *cells: str | Text) -> None:
        """Add a row: one cell for each column."""
        self._rows.append([cell if isinstance(cell, Text) else Text(cell) for cell in cells])

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if self._least_width() <= options.max_width:
            yield self._table()
        else:
            for cells in self._rows:
                yield from self._lines(cells, options.max_width)

    def _least_width(self) -> int:
        """Return the width of the figures, of the longest word of each text, and of what the last column needs."""
        widths = []
        for index, (name, is_figure) in enumerate(zip(self._names, self._is_figure, strict=True)):
            texts = [Text(name), *(cells[index] for cells in self._rows)]
            if is_figure:
                widths.append(max(text.cell_len for text in texts))
            elif index == len(self._names) - 1:
                longest = max(_width(line) for text in texts for line in text.plain.split("\n"))
                widths.append(min(longest, _LAST_COLUMN_WIDTH))
            else:
                widths.append(max(_width(word) for text in texts for word in text.plain.split() or [""]))
        return sum(widths) + self._gap * (len(widths) - 1)

    def _table(self) -> Table:
        heading = any(self._names)
        table = Table(box=None, padding=(0, self._gap, 0, 0), pad_edge=False, show_header=heading, header_style="dim")
        for name, is_figure in zip(self._names, self._is_figure, strict=True):
            table.add_column(name, justify="right" if is_figure else "left", no_wrap=is_figure, overflow="fold")
        for cells in self._rows:
            table.add_row(*cells)
        return table

    def _lines(self, cells: list[Text], width: int) -> RenderResult:
        line = Text()
        for index, cell in enumerate(cells):
            if not cell.plain:
                continue
            name = self._names[index]
            item = Text.assemble((name, "dim"), " " if name else "", cell)
            if index == len(cells) - 1 and not self._is_figure[index]:
                yield line
                yield Padding(item, (0, 0, 0, 2))
                return
            if line.plain and line.cell_len + 2 + item.cell_len > width:
                yield line
                line = Text("  ")
            line = Text.assemble(line, "  " if line.plain.strip() else "", item)
        yield line


def _width(word: str) -> int:
    return Text(word).cell_len
