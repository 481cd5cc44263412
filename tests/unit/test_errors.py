"""An error says what is wrong, where, and what was expected."""

from __future__ import annotations

import pytest

from ullage.errors import TraceError, UllageError


def test_a_trace_error_says_where_what_was_expected_and_what_was_found() -> None:
    error = TraceError(path="a.pickle", offset=1234, expected="a list", found="the end of the file")
    assert str(error) == "a.pickle: at byte 1,234: expected a list, found the end of the file"
    assert (error.path, error.offset, error.expected, error.found) == (
        "a.pickle",
        1234,
        "a list",
        "the end of the file",
    )


def test_without_a_path_the_message_starts_at_the_byte() -> None:
    assert str(TraceError(offset=0, expected="x", found="y")) == "at byte 0: expected x, found y"


def test_naming_the_file_leaves_the_rest_as_it_was() -> None:
    named = TraceError(offset=7, expected="x", found="y").with_path("b.json")
    assert str(named) == "b.json: at byte 7: expected x, found y"


def test_a_trace_error_can_be_caught_as_ours_and_as_a_value_error() -> None:
    for kind in (UllageError, ValueError):
        with pytest.raises(kind):
            raise TraceError(offset=0, expected="x", found="y")
