"""The size of half speed, the knee, and the TLB that fits it.

cost | hit                     ____------ hit + miss
     |____________________.---'
     +--------------------|------------------ footprint
                        reach
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ullage.runtime.probe.curves import fitted_tlb, half_speed_bytes, knee_bytes

MIB = 1 << 20


def curve(
    reach: int, hit: float = 300.0, miss: float = 600.0, first: int = 3, last: int = 14
) -> list[tuple[int, float]]:
    """What a TLB costs at 8 MiB, 16 MiB, ..."""
    sizes = [MIB << step for step in range(first, last)]
    return [(size, hit + miss * max(1 - reach / size, 0)) for size in sizes]


def test_half_speed_of_a_link_with_a_fixed_cost_is_where_both_cost_the_same() -> None:
    def speed(size: int) -> float:
        return size / (2_000 + size / 50)

    points = [(4096 * 4**step, speed(4096 * 4**step)) for step in range(9)]
    assert half_speed_bytes(points) == pytest.approx(2_000 * 50, rel=0.15)


def test_half_speed_is_reached_once_though_sizes_beyond_the_hosts_cache_be_slow_again() -> None:
    assert half_speed_bytes([(1, 1.0), (2, 4.0), (4, 8.0), (8, 3.0)]) == 2
    assert half_speed_bytes([(1, 8.0), (2, 7.0)]) == 1
    assert half_speed_bytes([]) is None


def test_the_knee_is_where_a_step_costs_half_as_much_again() -> None:
    # 300 + 600 (1 - 512 / f) = 450 at f = 683; on the log scale between 512 (300) and 1024 (600) it is read at 724.
    assert knee_bytes(curve(512 * MIB)) == pytest.approx(512 * MIB * 2**0.5, rel=0.01)


def test_an_odd_point_is_no_knee() -> None:
    points = curve(512 * MIB)
    assert knee_bytes(
        [(size, cost * (3 if index == 1 else 1)) for index, (size, cost) in enumerate(points)]
    ) == knee_bytes(points)


@pytest.mark.parametrize("points", [[], [(1, 5.0)], [(1, 5.0), (2, 5.0), (4, 7.0)]])
def test_a_flat_curve_has_no_knee(points: list[tuple[int, float]]) -> None:
    assert knee_bytes(points) is None


@given(reach=st.integers(5, 11), miss=st.floats(600, 3000), hit=st.floats(100, 500))
def test_the_model_finds_the_tlb_that_made_the_curve(reach: int, miss: float, hit: float) -> None:
    tlb = fitted_tlb([(stride, curve(MIB << reach, hit, miss)) for stride in (MIB // 4, 2 * MIB)])
    assert tlb is not None
    assert tlb.reach_bytes == pytest.approx(MIB << reach, rel=0.05)
    assert (tlb.hit_ns, tlb.miss_ns) == (pytest.approx(hit, rel=0.03), pytest.approx(miss, rel=0.1))
    assert tlb.error_percent <= 2


def test_the_page_is_the_longest_stride_with_the_first_ones_knee() -> None:
    reaches = {MIB // 4: 512, 2 * MIB: 512, 8 * MIB: 2048}  # 256 entries of 2 MiB, one for each step of 8 MiB
    tlb = fitted_tlb([(stride, curve(reach * MIB)) for stride, reach in reaches.items()])
    assert tlb is not None
    assert (tlb.page_bytes, tlb.num_entries) == (2 * MIB, 256)


def test_a_knee_that_no_other_stride_shares_is_no_page() -> None:
    # 2,048 places, whatever the stride
    reaches = {MIB // 4: 512, 2 * MIB: 4096, 8 * MIB: 16384}
    assert fitted_tlb([(stride, curve(reach * MIB, last=18)) for stride, reach in reaches.items()]) is None
    assert fitted_tlb([(MIB // 4, curve(512 * MIB)), (2 * MIB, curve(1 << 50))]) is None


def test_no_knee_is_no_model() -> None:
    assert fitted_tlb([(2 * MIB, curve(1 << 50))]) is None
    assert fitted_tlb([]) is None
