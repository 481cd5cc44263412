"""The size of half speed, the knee, and the TLB that fits it.

cost | hit                     ____------ hit + miss
     |____________________.---'
     +--------------------|------------------ footprint
                        reach
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
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


def curves_of(reaches: dict[int, float], **cost: float) -> list[tuple[int, list[tuple[int, float]]]]:
    """What strides cost, by what of the footprint a TLB reaches with each."""
    return [(stride, curve(round(reach), last=18, **cost)) for stride, reach in reaches.items()]  # type: ignore[arg-type]


STRIDES = (MIB // 4, 2 * MIB, 8 * MIB, 32 * MIB)


@settings(deadline=None, max_examples=60)
@given(
    entries=st.integers(16, 600),
    page=st.sampled_from(STRIDES[1:-1]),
    miss=st.floats(60, 3000),
    hit=st.floats(100, 500),
)
def test_the_model_finds_the_tlb_that_made_the_curves(entries: int, page: int, miss: float, hit: float) -> None:
    tlb = fitted_tlb("chain", curves_of({one: entries * max(one, page) for one in STRIDES}, hit=hit, miss=miss))
    assert tlb is not None
    assert tlb.page_bytes == page
    assert tlb.reach_bytes == pytest.approx(entries * page, rel=0.01)
    assert tlb.hit_ps == pytest.approx(1000 * hit, rel=0.03)
    assert tlb.miss_ps == pytest.approx(1000 * miss, rel=0.1)
    assert tlb.error_percent <= 1


def test_each_stride_may_have_a_hit_of_its_own() -> None:
    curves = [
        (stride, curve(256 * max(stride, 2 * MIB), hit=200.0 + 50 * index, last=18))
        for index, stride in enumerate(STRIDES)
    ]
    tlb = fitted_tlb("gather", curves)
    assert tlb is not None
    assert (tlb.page_bytes, tlb.num_entries) == (2 * MIB, 256)
    assert tlb.hit_ps == pytest.approx(275_000, rel=0.01)


def test_a_reach_that_hangs_on_the_number_of_places_alone_is_no_page() -> None:
    assert fitted_tlb("chain", curves_of({one: 2048 * one for one in STRIDES})) is None


def test_a_reach_that_all_strides_share_says_that_a_page_is_as_long_at_least_and_no_more() -> None:
    assert fitted_tlb("chain", curves_of(dict.fromkeys(STRIDES, 512 * MIB))) is None


def test_curves_that_do_not_rise_make_no_model() -> None:
    assert fitted_tlb("chain", curves_of(dict.fromkeys(STRIDES, 1 << 50))) is None
    assert fitted_tlb("chain", curves_of({one: 256 * max(one, 2 * MIB) for one in STRIDES}, miss=20.0)) is None
    assert fitted_tlb("chain", []) is None
    assert fitted_tlb("chain", curves_of({2 * MIB: 512 * MIB, 8 * MIB: 2048 * MIB})) is None
