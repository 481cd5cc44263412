"""As few blocks as can be lie on disk, evenly, and what is pinned is what was allowed at most."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ullage.errors import RuntimeMemoryError
from ullage.runtime.weights.disk_plan import NUM_STAGING, PAGE_BYTES, DiskPlan, paged, spill
from ullage.runtime.weights.plan import StreamPlan, plan_stream
from ullage.runtime.weights.prediction import StreamPrediction

sizes = st.lists(st.just(0) | st.integers(0, 5 * PAGE_BYTES), min_size=1, max_size=12)


def all_streamed(block_bytes: list[int], num_slots: int = 2) -> StreamPlan:
    return StreamPlan(
        block_bytes=tuple(block_bytes),
        is_resident=(False,) * len(block_bytes),
        num_slots=num_slots,
        slot_bytes=max(block_bytes),
        other_bytes=0,
    )


def test_every_second_block_lies_on_disk_where_half_of_them_fit() -> None:
    plan = spill(all_streamed([PAGE_BYTES] * 6), 5 * PAGE_BYTES)
    assert plan.is_on_disk == (False, True, False, True, False, True)
    assert plan.pinned_bytes == 5 * PAGE_BYTES
    assert plan.disk_bytes == 3 * PAGE_BYTES
    assert plan.moved_bytes == 6 * PAGE_BYTES


def test_only_streamed_blocks_lie_on_disk() -> None:
    block = 4 * PAGE_BYTES
    plan = spill(plan_stream([block] * 8, 0, 6 * block), 3 * block)
    assert sum(plan.is_resident) == 4
    assert sum(plan.is_on_disk) == 3
    assert not any(keeps and lies for keeps, lies in zip(plan.is_resident, plan.is_on_disk, strict=True))


def test_what_is_stored_in_8_bits_is_what_lies_on_disk() -> None:
    plan = replace(all_streamed([4 * PAGE_BYTES] * 4), stored_bytes=(2 * PAGE_BYTES - 1,) * 4)
    spilt = spill(plan, 4 * PAGE_BYTES)
    assert spilt.disk_bytes == 4 * 2 * PAGE_BYTES
    assert spilt.pinned_bytes == 2 * 2 * PAGE_BYTES
    assert spilt.moved_bytes == 4 * (2 * PAGE_BYTES - 1)


@given(sizes, st.integers(0, 70 * PAGE_BYTES))
def test_pinned_memory_is_what_is_allowed_at_most_and_fewer_blocks_would_not_fit(
    block_bytes: list[int], host_bytes: int
) -> None:
    plan = all_streamed(block_bytes)
    try:
        found = spill(plan, host_bytes)
    except RuntimeMemoryError as error:
        needed = int(str(error).split("give host_bytes=")[1].split()[0])
        assert needed > host_bytes
        assert spill(plan, needed).pinned_bytes == needed
        return
    assert found.pinned_bytes <= host_bytes
    count = sum(found.is_on_disk)
    assert found.disk_bytes == sum(
        paged(size) for size, lies in zip(block_bytes, found.is_on_disk, strict=True) if lies
    )
    assert not any(lies and not size for size, lies in zip(block_bytes, found.is_on_disk, strict=True))
    if found.disk is None:
        assert count == 0
        assert found.pinned_bytes == sum(block_bytes)
        return
    assert found.disk.num_staging == min(NUM_STAGING, count)
    if len(set(block_bytes)) == 1:  # then it does not matter which
        kept = len(block_bytes) - count + 1
        staging = min(NUM_STAGING, count - 1) * paged(block_bytes[0])
        assert kept * block_bytes[0] + staging > host_bytes


@given(st.integers(1, 40), st.integers(1, 40))
def test_blocks_on_disk_are_spread_evenly(num_blocks: int, num_pinned: int) -> None:
    num_pinned = min(num_pinned, num_blocks)
    plan = spill(all_streamed([PAGE_BYTES] * num_blocks), (num_pinned + 2) * PAGE_BYTES)
    places = [-1, *(index for index, lies in enumerate(plan.is_on_disk) if lies)]
    gaps = {after - before for before, after in pairwise(places)}
    assert not gaps or max(gaps) - min(gaps) <= 1
    assert places[-1] in (-1, num_blocks - 1)


def on_disk(places: set[int], num_blocks: int, num_staging: int = 2) -> StreamPlan:
    disk = DiskPlan(
        is_on_disk=tuple(index in places for index in range(num_blocks)),
        num_staging=num_staging,
        staging_bytes=PAGE_BYTES,
    )
    return replace(all_streamed([PAGE_BYTES] * num_blocks), disk=disk)


def test_a_pass_waits_for_the_disk_where_that_is_slow() -> None:
    plan = on_disk({1, 3}, 4)
    assert plan.step_s([1.0] * 4, PAGE_BYTES / 1.0) == 5.0  # a copy, and four blocks
    # Reads end at 10 and 20; block 3 is copied by 21, and computes until 22.
    assert plan.step_s([1.0] * 4, PAGE_BYTES / 1.0, PAGE_BYTES / 10.0) == 22.0


def test_one_staging_buffer_lets_the_disk_wait_for_the_link() -> None:
    # Read until 10, copied until 13, and read from then on: the disk is idle for 3.
    two, one = on_disk({0, 1}, 2), on_disk({0, 1}, 2, num_staging=1)
    assert two.step_s([1.0] * 2, PAGE_BYTES / 3.0, PAGE_BYTES / 10.0) == 24.0
    assert one.step_s([1.0] * 2, PAGE_BYTES / 3.0, PAGE_BYTES / 10.0) == 27.0


@given(st.integers(4, 40), st.integers(2, 40), st.integers(1, 100), st.integers(1, 100), st.integers(1, 100))
def test_a_pass_takes_as_long_as_the_slowest_of_disk_link_and_computing_and_a_few_blocks(
    num_blocks: int, num_disk: int, read: int, copy: int, compute: int
) -> None:
    num_disk = min(num_disk, num_blocks)
    plan = spill(all_streamed([PAGE_BYTES] * num_blocks), (num_blocks - num_disk + 2) * PAGE_BYTES)
    assert sum(plan.is_on_disk) in (num_disk, 0)
    took = plan.step_s([compute] * num_blocks, PAGE_BYTES / copy, PAGE_BYTES / read)
    slowest = max(sum(plan.is_on_disk) * read, num_blocks * copy, num_blocks * compute)
    assert slowest <= took * (1 + 1e-9)
    assert took <= slowest + 3 * (read + copy + compute)


def test_blocks_of_which_nothing_is_streamed_do_not_lie_on_disk() -> None:
    plan = spill(all_streamed([PAGE_BYTES, 0, PAGE_BYTES, 0, PAGE_BYTES, 0]), 2 * PAGE_BYTES)
    assert plan.is_on_disk == (True, False, True, False, True, False)


def test_too_little_for_the_staging_buffers_names_what_is_needed() -> None:
    with pytest.raises(RuntimeMemoryError, match=f"give host_bytes={2 * PAGE_BYTES} or more"):
        spill(all_streamed([PAGE_BYTES] * 6), 2 * PAGE_BYTES - 1)


def test_the_disk_limits_where_it_takes_longest() -> None:
    block = 4 * PAGE_BYTES
    plan = spill(plan_stream([block] * 4, 0, 3 * block), 2 * block)
    found = StreamPrediction.of(plan, [0.001] * 4, 1e9, disk_bytes_per_s=1e6)
    assert found.limit == "disk"
    assert "the disk limits it" in str(found)
    fast = StreamPrediction.of(plan, [0.001] * 4, 1e9, disk_bytes_per_s=1e12)
    assert fast.limit == "compute"
    assert StreamPrediction.of(plan_stream([block] * 4, 0, 3 * block), [0.001] * 4, 1e9).disk_bytes == 0
