"""Ticks: round numbers, never more than there is room for."""

from __future__ import annotations

from itertools import pairwise

import pytest

from ullage.report.axis import byte_ticks, time_ticks


@pytest.mark.parametrize("largest", [1, 100, 1023, 1024, 5 << 20, 7_999_999_999, 1 << 45, 1 << 62])
@pytest.mark.parametrize("max_ticks", [3, 4, 7])
def test_sizes_have_a_tick_beside_zero_and_no_more_than_fit(largest: int, max_ticks: int) -> None:
    ticks = byte_ticks(largest, max_ticks)
    assert ticks[0] == 0
    assert 1 <= len(ticks) - 1 <= max_ticks
    assert len({later - earlier for earlier, later in pairwise(ticks)}) == 1
    assert ticks[-1] <= largest


@pytest.mark.parametrize("span_us", [0, 1, 999, 1000, 34_994, 5_818_563, 130_062_995, 10**11, 2**63 - 1])
def test_times_have_labels_and_the_last_names_the_unit(span_us: int) -> None:
    ticks, labels = time_ticks(span_us, 5)
    assert 1 <= len(ticks) == len(labels) <= 6
    assert labels[-1].split()[1] in ("µs", "ms", "s", "min", "h")
    assert ticks[-1] <= span_us
