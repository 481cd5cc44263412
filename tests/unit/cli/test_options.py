"""Instants on the command line are words or times with a unit."""

from __future__ import annotations

import pytest

from ullage.cli.options import parse_instant, standard_input_path
from ullage.errors import UllageError


@pytest.mark.parametrize(
    ("text", "instant"),
    [
        ("peak", "peak"),
        ("reserved_peak", "reserved_peak"),
        ("end", "end"),
        ("oom", "oom"),
        ("0", 0),
        ("1500", 1500),
        ("1700000000000000", 1_700_000_000_000_000),
        ("20us", 20),
        ("20µs", 20),
        ("300ms", 300_000),
        ("1.5s", 1_500_000),
        (" 2 min ", 120_000_000),
    ],
)
def test_words_and_times_are_understood(text: str, instant: str | int) -> None:
    assert parse_instant(text) == instant


@pytest.mark.parametrize("text", ["", "noon", "1.5h", "-3s", "peak!", "s", "1e3"])
def test_anything_else_is_refused_with_what_would_do(text: str) -> None:
    with pytest.raises(UllageError, match=r"use peak, end, oom, or a time such as 1\.5s or 300ms"):
        parse_instant(text)


def test_the_option_that_is_wrong_is_named() -> None:
    with pytest.raises(UllageError, match=r"^--from 'noon' is no instant"):
        parse_instant("noon", "--from")


def test_a_dash_is_standard_input() -> None:
    assert [standard_input_path(path) for path in ("-", "./-", "a.pickle", None)] == [
        "/dev/stdin",
        "./-",
        "a.pickle",
        None,
    ]
