"""The pieces that every text report is made of: a console, sizes, sites, bars."""

from __future__ import annotations

import io
import os
import shutil
import sys
from typing import TYPE_CHECKING, Any, TextIO, cast

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from ullage.report.grid import Grid
from ullage.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_SPARK = "▁▂▃▄▅▆▇█"
_BAR_WIDTH = 16
_COLUMNS, _LINES = 80, 25
_MIN_COLUMNS = 40


class _Trimmed(io.TextIOBase):
    """Passes lines on without the blanks that tables leave at their ends."""

    def __init__(self, target: TextIO) -> None:
        self._target = target
        self._line = ""

    def write(self, text: str) -> int:
        *lines, self._line = (self._line + text).split("\n")
        for line in lines:
            self._target.write(line.rstrip(" ") + "\n")
        return len(text)

    def flush(self) -> None:
        self._target.flush()


def console() -> Console:
    """Return a console for standard output, of 40 columns at least.

    Where that is no terminal: as many columns as COLUMNS says or 80, and no blanks at line ends.
    """
    if sys.stdout.isatty():
        file, (columns, lines) = sys.stdout, shutil.get_terminal_size()
    else:
        file, columns, lines = cast("TextIO", _Trimmed(sys.stdout)), _columns(), _LINES
    # Both are given, so that rich does not read COLUMNS in its own way.
    return Console(file=file, highlight=False, width=max(columns, _MIN_COLUMNS), height=lines)


def _columns() -> int:
    text = os.environ.get("COLUMNS", "")
    return (int(text) if text.isdecimal() else 0) or _COLUMNS


def indented(renderable: Any, left: int = 2) -> Padding:
    """Indent anything that can be printed."""
    return Padding(renderable, (0, 0, 0, left))


def bullet(text: str | Text, style: str = "") -> Padding:
    """Make an item of a list, whose further lines stand below its first."""
    item = Grid("", "", gap=1)
    item.add_row(Text("•", style=style), text)
    return indented(item)


def frame_text(frame: dict[str, Any]) -> Text:
    """Write a frame as file:line function, the function bold; long paths are cut from the left."""
    file = short_file(frame["file"])
    place = f"{file}:{frame['line']}" if frame["line"] else file
    return Text.assemble((place, "cyan"), " ", (frame["function"], "bold"))


def short_file(file: str) -> str:
    """Shorten a path: an installed file to its package and name, another to its last two parts.

    Example:
        >>> short_file("/usr/lib/python3/site-packages/torch/nn/modules/linear.py"), short_file("/a/b/c/train.py")
        ('torch/…/linear.py', 'c/train.py')
    """
    for marker in ("site-packages/", "dist-packages/"):
        _, found, rest = file.rpartition(marker)
        if found:
            package, *between, name = rest.split("/") if "/" in rest else ("", rest)
            return "/".join([package, *(["…"] if between else []), name]).lstrip("/")
    parts = file.split("/")
    return "/".join(parts[-2:]) if len(parts) > 2 else file


def site_text(
    stack: Sequence[dict[str, Any]], unknown: str = "(no Python stack)", max_callers: int = 2, short: bool = False
) -> Text:
    """Write a site: the leading frame, and the user's frames that called it, dim; `short` leaves out their functions."""
    if not stack:
        return Text(unknown, style="italic")
    text = frame_text(stack[0])
    for frame in stack[1 : 1 + max_callers]:
        function = "" if short else f" {frame['function']}"
        text.append(f"\n  from {short_file(frame['file'])}:{frame['line']}{function}", style="dim")
    return text


def without_stack(row: dict[str, Any], unknown: str = "(no Python stack)") -> str:
    """Say why a row of a table names no line."""
    return "(before the recording)" if row["newest_us"] is None else unknown


def via_text(via: Iterable[dict[str, Any]], whole: int) -> Text:
    """Write the largest library frame inside a site, where it accounts for most of it."""
    for frame in via:
        if 2 * frame["bytes"] >= whole:
            line = f":{frame['line']}" if frame["line"] else ""
            return Text(f"\n  in {short_file(frame['file'])}{line} {frame['function']}", style="dim")
        break
    return Text("")


def bar(part: int, whole: int, style: str = "blue") -> Text:
    """Draw a share of `whole` as a bar of eighths of a column."""
    eighths = round(8 * _BAR_WIDTH * part / whole) if whole > 0 else 0
    if part > 0:
        eighths = max(eighths, 1)
    full, rest = divmod(eighths, 8)
    return Text("█" * full + (" ▏▎▍▌▋▊▉"[rest] if rest else ""), style=style)


def sparkline(values: Sequence[int], width: int = 48) -> str:
    """Draw values from 0 to their largest as a line of blocks; more than `width` values are thinned out.

    Example:
        >>> sparkline([0, 1, 2, 4, 8])
        '▁▂▃▅█'
    """
    if len(values) > width:
        values = [values[i * (len(values) - 1) // (width - 1)] for i in range(width)]
    top = max(values, default=0)
    return "".join(_SPARK[min(round(value / top * 7), 7)] if top > 0 else _SPARK[0] for value in values)


def size(size_bytes: int) -> str:
    """Write a size in a table's cell."""
    return format_bytes(size_bytes)
