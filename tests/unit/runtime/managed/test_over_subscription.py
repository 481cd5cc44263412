"""What over-subscription costs is said where there is some, and the zig-zag keeps what is promised."""

from __future__ import annotations

from collections import OrderedDict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ullage.runtime.managed import over_subscribed, zigzag


def moved_in_last_pass(num_chunks: int, num_fitting: int, turns: bool) -> int:
    """Go over chunks on a GPU that moves out what was used longest ago; return how many the fourth pass moves in."""
    there: OrderedDict[int, None] = OrderedDict()
    moved = 0
    for number in range(4):
        moved = 0
        for chunk in zigzag(num_chunks, number if turns else 0):
            moved += chunk not in there
            there[chunk] = None
            there.move_to_end(chunk)
            if len(there) > num_fitting:
                there.popitem(last=False)
    return moved


def test_the_report_names_the_sizes_and_what_would_help() -> None:
    found = over_subscribed(48 << 30, 39 << 30)
    assert str(found) == (
        "UVM: 48 GiB managed on 39 GiB free (1.23x): passes in one direction find nothing there, and each moves 48 GiB in and "
        "as much out. Zig-zag order or a 39 GiB working set would keep about 80 % resident"
    )


@pytest.mark.parametrize(("managed", "free"), [(39 << 30, 39 << 30), (31 << 30, 39 << 30), (0, 0)])
def test_what_fits_is_silent(managed: int, free: int) -> None:
    assert over_subscribed(managed, free) is None


def test_a_full_gpu_keeps_nothing() -> None:
    found = over_subscribed(1 << 30, 0)
    assert found is not None
    assert found.ratio == float("inf")
    assert found.resident_share == 0


def test_negative_sizes_are_refused() -> None:
    with pytest.raises(ValueError, match="negative"):
        over_subscribed(-1, 5)


@given(st.integers(1, 40), st.integers(1, 40))
def test_the_shares_are_those_of_a_gpu_that_moves_out_the_oldest(num_chunks: int, num_fitting: int) -> None:
    found = over_subscribed(num_chunks, num_fitting)
    if found is None:
        assert moved_in_last_pass(num_chunks, num_fitting, turns=False) == 0
    else:
        assert moved_in_last_pass(num_chunks, num_fitting, turns=False) == found.one_way_bytes
        assert moved_in_last_pass(num_chunks, num_fitting, turns=True) == found.zigzag_bytes
