"""Text from a file, made fit to be shown: a name in a recording can hold anything, and be a megabyte long."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ullage.trace import Frame


def printable(text: str, limit: int = 120) -> str:
    r"""Clip a text, and write out what would not show or would change how the rest does: controls, marks of direction.

    Args:
        text: The text.
        limit: The largest number of its characters that are kept.

    Example:
        >>> printable("train.py:3 step"), printable("a\x1b[31mb"), printable("x" * 9, limit=6)
        ('train.py:3 step', 'a\\x1b[31mb', 'xxxxx…')
    """
    if len(text) > limit:
        text = text[: limit - 1] + "…"
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text)


def line_name(frame: Frame, limit: int = 60) -> str:
    """Name a line of code in a legend: its file's last part, its number, its function without the arguments of C++.

    Args:
        frame: The leading frame.
        limit: About the largest number of characters of the file and of the function.

    Example:
        >>> from ullage.trace import BEFORE, Frame
        >>> line_name(Frame("src/train.py", 3, "step")), line_name(Frame("??", 0, "at::empty(long, bool)"))
        ('train.py:3 step', 'at::empty')
        >>> line_name(BEFORE)
        'before the recording'
    """
    if frame.file.startswith("(") and not frame.line:
        return printable(frame.file.strip("()"), limit)
    file = frame.file[-limit - 1 :].rpartition("/")[2]
    function = frame.function[: limit + 1].partition("(" if not frame.line else "\0")[0] or frame.function
    place = f"{file}:{frame.line} " if frame.line else ""
    return printable(place, limit + 12) + printable(function or file, limit)
