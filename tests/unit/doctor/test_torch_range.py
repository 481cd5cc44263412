"""Versions as torch writes them, and ranges as a snapshot's keys allow them."""

from __future__ import annotations

import pytest

from ullage.doctor import TorchRange


def torch(text: str) -> TorchRange:
    found = TorchRange.parse(text)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("2.13.0+cpu", "2.13.0"),
        ("2.10 or 2.11", "2.10 to 2.11"),
        ("2.5 to 2.7", "2.5 to 2.7"),
        ("2.12 or newer", "2.12 or newer"),
        ("2.2", "2.2"),
    ],
)
def test_what_is_read_is_written_again(text: str, words: str) -> None:
    assert str(torch(text)) == words


def test_no_version_is_none() -> None:
    assert TorchRange.parse("") is None


def test_a_range_is_before_a_version_if_all_of_it_is() -> None:
    assert torch("2.10 or 2.11").is_before((2, 12))
    assert not torch("2.10 or 2.11").is_before((2, 11))
    assert not torch("2.9.1").is_before((2, 9))
    assert not torch("2.12 or newer").is_before((9, 0))


def test_a_range_may_be_before_a_version_if_its_oldest_is() -> None:
    assert torch("2.10 or 2.11").may_be_before((2, 11))
    assert not torch("2.10 or 2.11").may_be_before((2, 10))
    assert torch("2.12 or newer").may_be_before((2, 13))


def test_a_version_is_met_by_its_last_number_only() -> None:
    assert torch("2.9.1+cu128").may_be((2, 9, 1))
    assert not torch("2.9.0").may_be((2, 9, 1))
    assert not torch("2.8 or 2.9").may_be((2, 9, 1))
