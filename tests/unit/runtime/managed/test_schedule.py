"""The schedule brings what modules need in time, once, in order and below its budget; on moves that are a fake."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.runtime.managed.fake_cuda import FakeMoves
from ullage.errors import RuntimeMemoryError
from ullage.runtime.managed.schedule import Schedule

SIZES = st.lists(st.integers(1, 9), min_size=1, max_size=10)


def one_each(sizes: list[int]) -> list[list[int]]:
    return [[number] for number in range(len(sizes))]


def run_pass(schedule: Schedule, moves: FakeMoves, order: list[int], needs: list[list[int]]) -> None:
    schedule.begin()
    for module in order:
        schedule.before(module)
        assert set(needs[module]) <= moves.waited, "a module runs before its ranges are there"
        schedule.after(module)
    schedule.end()


def brought(moves: FakeMoves) -> list[int]:
    return [one for what, ranges in moves.log if what == "bring" for one in ranges]


def test_the_first_pass_brings_each_when_it_runs_and_the_next_ones_bring_nothing() -> None:
    moves = FakeMoves([1, 1, 1])
    schedule = Schedule([1, 1, 1], one_each([1, 1, 1]), moves, ahead=2)
    for _ in range(3):
        run_pass(schedule, moves, [0, 1, 2], one_each([1, 1, 1]))
    assert moves.log == [("bring", [0]), ("bring", [1]), ("bring", [2])]
    assert schedule.order == [0, 1, 2]
    assert schedule.stats.num_passes == 3
    assert schedule.stats.brought_bytes == 3


def test_the_next_modules_are_brought_together_while_one_runs() -> None:
    moves = FakeMoves([1] * 4)
    schedule = Schedule([1] * 4, one_each([1] * 4), moves, ahead=2)
    run_pass(schedule, moves, [0, 1, 2, 3], one_each([1] * 4))
    schedule.forget()
    moves.there.clear()
    moves.log.clear()
    run_pass(schedule, moves, [0, 1, 2, 3], one_each([1] * 4))
    assert moves.log == [("bring", [0]), ("bring", [1, 2]), ("bring", [3])]


def test_with_half_the_budget_what_is_needed_last_leaves() -> None:
    sizes, needs = [1] * 6, one_each([1] * 6)
    moves = FakeMoves(sizes, 3)
    schedule = Schedule(sizes, needs, moves, ahead=1, gpu_bytes=3)
    run_pass(schedule, moves, [0, 1, 2, 3, 4, 5], needs)
    first = schedule.stats.brought_bytes
    for _ in range(10):
        run_pass(schedule, moves, [0, 1, 2, 3, 4, 5], needs)
    assert moves.peak == 3
    # One that runs and one that comes move on; one stays. Going round, the driver would keep none.
    assert (schedule.stats.brought_bytes - first) / 10 <= 5
    assert schedule.stats.late_bytes == first


def test_nothing_is_late_after_the_first_pass() -> None:
    sizes, needs = [2, 3, 1, 4], one_each([2, 3, 1, 4])
    moves = FakeMoves(sizes, 8)
    schedule = Schedule(sizes, needs, moves, ahead=1, gpu_bytes=8)
    run_pass(schedule, moves, [0, 1, 2, 3], needs)
    late = schedule.stats.late_bytes
    for _ in range(5):
        run_pass(schedule, moves, [0, 1, 2, 3], needs)
    assert schedule.stats.late_bytes == late


@given(SIZES, st.integers(0, 4), st.integers(0, 30), st.integers(1, 4))
def test_any_sizes_stay_below_the_budget(sizes: list[int], ahead: int, more: int, num_passes: int) -> None:
    budget, needs = max(sizes) + more, one_each(sizes)
    moves = FakeMoves(sizes, budget)
    schedule = Schedule(sizes, needs, moves, ahead=ahead, gpu_bytes=budget)
    for _ in range(num_passes):
        run_pass(schedule, moves, list(range(len(sizes))), needs)
    assert schedule.stats.peak_bytes == moves.peak
    assert schedule.resident_bytes == sum(sizes[one] for one in moves.there)
    assert schedule.stats.unmoved_bytes == 0


@given(
    SIZES,
    st.integers(0, 3),
    st.integers(0, 20),
    st.lists(st.lists(st.integers(0, 9), max_size=12), min_size=1, max_size=6),
)
def test_any_orders_are_right(sizes: list[int], ahead: int, more: int, passes: list[list[int]]) -> None:
    budget, needs = max(sizes) + more, one_each(sizes)
    moves = FakeMoves(sizes, budget)
    schedule = Schedule(sizes, needs, moves, ahead=ahead, gpu_bytes=budget)
    for order in passes:
        run_pass(schedule, moves, [module % len(sizes) for module in order], needs)


@given(st.integers(2, 12), st.integers(1, 4), st.integers(0, 12))
def test_a_known_order_keeps_more_than_least_recently_used_would(num: int, ahead: int, more: int) -> None:
    sizes, needs, budget = [1] * num, one_each([1] * num), min(1 + ahead + more, num - 1)
    if budget <= ahead:
        return
    moves = FakeMoves(sizes, budget)
    schedule = Schedule(sizes, needs, moves, ahead=ahead, gpu_bytes=budget)
    for _ in range(2):
        run_pass(schedule, moves, list(range(num)), needs)
    before = schedule.stats.brought_bytes
    for _ in range(20):
        run_pass(schedule, moves, list(range(num)), needs)
    kept = num - (schedule.stats.brought_bytes - before) / 20
    assert kept >= (budget - ahead - 1) * (num - ahead - 1) / num - 1


def test_what_modules_share_is_brought_once_and_stays_while_one_of_them_runs() -> None:
    sizes, needs = [4, 1, 1], [[0, 1], [0, 2]]
    moves = FakeMoves(sizes, 6)
    schedule = Schedule(sizes, needs, moves, ahead=1, gpu_bytes=6)
    for _ in range(2):
        run_pass(schedule, moves, [0, 1], needs)
    assert sorted(brought(moves)) == [0, 1, 2]


def test_a_module_inside_another_does_not_send_the_outer_ones_away() -> None:
    moves = FakeMoves([3, 3, 3], 6)
    schedule = Schedule([3, 3, 3], [[0], [1], [2]], moves, ahead=2, gpu_bytes=6)
    for _ in range(2):
        schedule.begin()
        schedule.before(0)
        for inner in (1, 2):
            schedule.before(inner)
            assert {0, inner} <= moves.there
            schedule.after(inner)
        schedule.after(0)
        schedule.end()


def test_what_does_not_fit_beside_what_runs_is_left_to_faults() -> None:
    moves = FakeMoves([3, 3], 4)
    schedule = Schedule([3, 3], [[0], [1]], moves, ahead=1, gpu_bytes=4)
    schedule.begin()
    schedule.before(0)
    schedule.before(1)
    schedule.after(1)
    schedule.after(0)
    assert moves.there == {0}
    assert schedule.stats.unmoved_bytes == 3


def test_a_pass_that_broke_off_leaves_nothing_running_and_no_order() -> None:
    moves = FakeMoves([3, 3, 3], 3)
    schedule = Schedule([3, 3, 3], [[0], [1], [2]], moves, ahead=1, gpu_bytes=3)
    schedule.begin()
    schedule.before(0)  # and its hook behind was never called
    run_pass(schedule, moves, [1, 2], [[0], [1], [2]])
    assert schedule.order == [1, 2]


@pytest.mark.parametrize("ahead", [0, 2])
def test_a_refused_move_is_not_booked_and_later_passes_are_right(ahead: int) -> None:
    sizes, needs = [1] * 4, one_each([1] * 4)
    moves = FakeMoves(sizes, 3)
    schedule = Schedule(sizes, needs, moves, ahead=ahead, gpu_bytes=3)
    for num_before in (0, 1, 2):
        moves.refuses = True
        with pytest.raises(RuntimeMemoryError, match="refuses"):
            run_pass(schedule, moves, [0, 1, 2, 3], needs)
        assert schedule.resident_bytes == sum(sizes[one] for one in moves.there)
        moves.refuses = False
        run_pass(schedule, moves, [0, 1, 2, 3], needs)
        assert schedule.stats.num_passes == num_before + 1
    assert schedule.stats.brought_bytes == len(brought(moves))
    assert schedule.stats.sent_away_bytes == sum(len(ranges) for what, ranges in moves.log if what == "send")


def test_what_stays_is_never_sent_away() -> None:
    sizes, needs = [2, 2, 2, 2], one_each([2, 2, 2, 2])
    moves = FakeMoves(sizes, 4)
    schedule = Schedule(sizes, needs, moves, ahead=1, gpu_bytes=4, staying=[1])
    for _ in range(4):
        run_pass(schedule, moves, [0, 1, 2, 3], needs)
    assert brought(moves).count(1) == 1


def test_a_budget_below_the_largest_module_is_refused() -> None:
    moves = FakeMoves([3, 5], 4)
    with pytest.raises(RuntimeMemoryError, match="gpu_bytes=8 or more"):
        Schedule([3, 5], [[0], [1]], moves, ahead=1, gpu_bytes=7, staying=[0])
    with pytest.raises(RuntimeMemoryError, match="ahead is 0 or more"):
        Schedule([3], [[0]], moves, ahead=-1)


def test_modules_that_a_pass_leaves_out_are_skipped() -> None:
    moves = FakeMoves([1] * 4, 2)
    schedule = Schedule([1] * 4, one_each([1] * 4), moves, ahead=1, gpu_bytes=2)
    run_pass(schedule, moves, [0, 1, 2, 3], one_each([1] * 4))
    moves.log.clear()
    run_pass(schedule, moves, [0, 3], one_each([1] * 4))
    assert moves.log[-1][0] == "bring"
    assert 0 in moves.there  # while 3 ran, the first of the next pass was brought
