"""Bytes, durations and shares read well from the smallest to the largest."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ullage.units import format_bytes, format_duration, format_share, plural


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (1536, "1.5 KiB"),
        (2_097_152, "2 MiB"),
        (104_857_600, "100 MiB"),
        (8_519_680, "8.12 MiB"),
        ((1 << 20) - 1, "1 MiB"),
        ((1 << 30) - 1, "1 GiB"),
        ((1 << 40) - 1, "1 TiB"),
        (1 - (1 << 30), "-1 GiB"),
        ((1 << 30) - (1 << 20), "1,023 MiB"),
        (1 << 30, "1 GiB"),
        (150_109_880_320, "140 GiB"),
        (3 << 40, "3 TiB"),
        (5 << 50, "5,120 TiB"),
        (-33_554_432, "-32 MiB"),
    ],
)
def test_sizes_have_three_or_four_digits_and_a_unit(size: int, text: str) -> None:
    assert format_bytes(size) == text


@given(st.integers(-(1 << 62), 1 << 62))
def test_a_written_size_is_within_one_percent_of_the_size(size: int) -> None:
    number, unit = format_bytes(size).split(" ")
    scale = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}[unit]
    assert abs(float(number.replace(",", "")) * scale - size) <= abs(size) / 100


@pytest.mark.parametrize(
    ("time_us", "text"),
    [
        (0, "0 µs"),
        (999, "999 µs"),
        (1000, "1 ms"),
        (999_000, "999 ms"),
        (999_499, "999 ms"),
        (999_500, "1 s"),
        (999_600, "1 s"),
        (1_000_000, "1 s"),
        (99_900_000, "99.9 s"),
        (99_949_999, "99.9 s"),
        (99_950_000, "1 min 40 s"),
        (100_000_000, "1 min 40 s"),
        (6_000_000_000, "1 h 40 min"),
    ],
)
def test_durations_change_their_unit_as_they_grow(time_us: int, text: str) -> None:
    assert format_duration(time_us) == text


@given(st.integers(0, 1 << 49))
def test_no_written_number_has_more_than_its_unit_holds(number: int) -> None:
    assert "e+" not in format_duration(number)
    assert "1,024" not in format_bytes(number)


@pytest.mark.parametrize(
    ("number", "nouns", "text"),
    [
        (0, ("block",), "0 blocks"),
        (1, ("block",), "1 block"),
        (1200, ("block",), "1,200 blocks"),
        (1, ("entry", "entries"), "1 entry"),
        (2, ("entry", "entries"), "2 entries"),
    ],
)
def test_a_noun_follows_its_number(number: int, nouns: tuple[str, ...], text: str) -> None:
    assert plural(number, *nouns) == text


@pytest.mark.parametrize(
    ("part", "whole", "text"),
    [(0, 5, "0 %"), (5, 0, "0 %"), (1, 8, "12 %"), (1, 40, "2.5 %"), (1, 10_000, "<0.1 %"), (7, 7, "100 %")],
)
def test_shares_are_whole_percents_from_ten_on(part: int, whole: int, text: str) -> None:
    assert format_share(part, whole) == text
