"""Text from a file, made fit to be shown."""

from __future__ import annotations

import pytest

from tests.unit.report.hostile_names import ESCAPE, MEGABYTE, NAMES, RIGHT_TO_LEFT
from ullage.report.printable import line_name, printable
from ullage.trace import BEFORE, NO_STACK, Frame


@pytest.mark.parametrize("name", NAMES)
def test_what_is_shown_is_printable_and_short(name: str) -> None:
    for shown in (printable(name, 50), line_name(Frame(name, 3, name), 50), line_name(Frame("(" + name, 0, ""), 50)):
        assert shown.isprintable()
        assert len(shown) < 400
        shown.encode("utf-8")


def test_controls_and_marks_of_direction_are_written_out() -> None:
    assert printable(ESCAPE) == "step\\x1b[31m\\x07"
    assert printable(RIGHT_TO_LEFT) == "step\\u202e\\u2066reversed"


def test_a_long_text_is_clipped_and_one_that_just_fits_is_not() -> None:
    assert printable(MEGABYTE, 5) == "xxxx…"
    assert printable("abcde", 5) == "abcde"


@pytest.mark.parametrize(
    ("frame", "name"),
    [
        (NO_STACK, "no Python stack"),
        (BEFORE, "before the recording"),
        (Frame("a/b/train.py", 7, "<module>"), "train.py:7 <module>"),
        (Frame("model.py", 7, "f (inner)"), "model.py:7 f (inner)"),
        (Frame("??", 0, "at::empty(long, std::optional<bool>)"), "at::empty"),
        (Frame("kernel.cu", 0, ""), "kernel.cu"),
    ],
)
def test_a_line_is_named_by_file_number_and_function(frame: Frame, name: str) -> None:
    assert line_name(frame) == name
