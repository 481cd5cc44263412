"""Colours: one for each line, greys for what has no line of its own."""

from __future__ import annotations

from ullage.explain.live_series import OTHER
from ullage.report.palette import BEFORE_COLOUR, LINE_COLOURS, OOM_COLOUR, OTHER_COLOUR, colours_of
from ullage.trace import BEFORE, Frame


def test_lines_differ_in_colour_and_none_looks_like_an_error() -> None:
    lines = [Frame("a.py", number, "f") for number in range(len(LINE_COLOURS))]
    colours = colours_of([BEFORE, *lines, OTHER])
    assert colours == [BEFORE_COLOUR, *LINE_COLOURS, OTHER_COLOUR]
    assert len({*colours, OOM_COLOUR}) == len(colours) + 1
