"""Blocks that are read from disk arrive in order, are the right ones, and overwrite nothing that is in use."""

from __future__ import annotations

import random
import threading
import time
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.runtime.weights.disk_world import DISK, LINK, World
from tests.unit.runtime.weights.test_copies import FakeCuda, FakeStream, cuda
from tests.unit.runtime.weights.test_ring import backwards, forwards
from ullage.errors import RuntimeMemoryError
from ullage.runtime.weights.copies import CudaCopies, HostCopies
from ullage.runtime.weights.disk_copies import DiskBlock, DiskCopies
from ullage.runtime.weights.disk_plan import PAGE_BYTES, DiskPlan
from ullage.runtime.weights.disk_reader import THREAD_NAME, DiskReader
from ullage.runtime.weights.plan import StreamPlan
from ullage.runtime.weights.ring import Ring

__all__ = ["cuda"]  # a fixture

num_pages = st.integers(1, 4)
blocks = st.lists(st.tuples(num_pages, st.booleans(), st.floats(0.01, 20.0)), min_size=1, max_size=12)


def world_of(drawn: list[tuple[int, bool, float]], num_slots: int, num_staging: int) -> World:
    on_disk = {number for number, (_, lies, _) in enumerate(drawn) if lies}
    return World([pages * PAGE_BYTES for pages, _, _ in drawn], on_disk, num_slots, num_staging)


@given(blocks, st.integers(1, 4), st.integers(1, 4), st.integers(1, 3))
def test_passes_copy_and_read_each_block_once_and_in_order(
    drawn: list[tuple[int, bool, float]], num_slots: int, num_staging: int, num_passes: int
) -> None:
    world = world_of(drawn, num_slots, num_staging)
    ring = Ring(len(drawn), num_slots, world.copies_in_order)
    for _ in range(num_passes):
        forwards(ring, world, [compute for _, _, compute in drawn])
    assert world.copies == list(range(len(drawn))) * num_passes
    assert world.num_reads == num_passes * sum(lies for _, lies, _ in drawn)


@given(blocks, st.integers(1, 4), st.integers(1, 4))
def test_a_pass_takes_as_long_as_was_planned(
    drawn: list[tuple[int, bool, float]], num_slots: int, num_staging: int
) -> None:
    world = world_of(drawn, num_slots, num_staging)
    compute_s = [compute for _, _, compute in drawn]
    forwards(Ring(len(drawn), num_slots, world.copies_in_order), world, compute_s)
    plan = StreamPlan(
        block_bytes=tuple(pages * PAGE_BYTES for pages, _, _ in drawn),
        is_resident=(False,) * len(drawn),
        num_slots=num_slots,
        slot_bytes=0,
        other_bytes=0,
        disk=DiskPlan(is_on_disk=tuple(lies for _, lies, _ in drawn), num_staging=num_staging, staging_bytes=0),
    )
    assert abs(world.now - plan.step_s(compute_s, LINK, DISK)) < 1e-6
    assert world.now + 1e-6 >= replace(plan, disk=None).step_s(compute_s, LINK)


@given(blocks, st.integers(1, 4), st.integers(1, 4))
def test_a_pass_backwards_reads_each_block_that_is_not_there_once(
    drawn: list[tuple[int, bool, float]], num_slots: int, num_staging: int
) -> None:
    world = world_of(drawn, num_slots, num_staging)
    ring = Ring(len(drawn), num_slots, world.copies_in_order)
    compute_s = [compute for _, _, compute in drawn]
    forwards(ring, world, compute_s)
    before, num_read = len(world.copies), world.num_reads
    backwards(ring, world, compute_s)
    again = list(reversed(range(max(len(drawn) - num_slots, 0))))
    assert world.copies[before:] == again
    assert world.num_reads - num_read == sum(drawn[block][1] for block in again)


@given(st.integers(6, 24), st.floats(0.1, 10.0))
def test_a_pass_backwards_keeps_the_disk_busy_too(num_blocks: int, compute: float) -> None:
    world = World([PAGE_BYTES] * num_blocks, set(range(num_blocks)), 2, 2)
    ring = Ring(num_blocks, 2, world.copies_in_order)
    forwards(ring, world, [compute] * num_blocks)
    begin = world.now
    backwards(ring, world, [compute] * num_blocks)
    assert world.now - begin <= num_blocks * max(PAGE_BYTES / DISK, compute) + 3 * (3 + 1 + compute)


steps = st.lists(st.tuples(st.sampled_from(["run", "read", "begin", "change", "settle", "forget"]), st.integers(0, 9)))


@given(
    st.lists(st.booleans(), min_size=1, max_size=8),
    st.integers(1, 3),
    st.integers(1, 3),
    steps,
    st.integers(0, 1 << 30),
    st.sampled_from([0, 0, 4]),
)
def test_blocks_in_any_order_are_the_latest_however_long_reads_take_and_whatever_fails(
    on_disk: list[bool], num_slots: int, num_staging: int, todo: list[tuple[str, int]], seed: int, one_in: int
) -> None:
    world = world_of([(1, lies, 0.0) for lies in on_disk], num_slots, num_staging)
    chance = random.Random(seed)
    world.draw = chance.randrange
    world.breaks = lambda: one_in > 0 and chance.randrange(one_in) == 0
    copied = [-1] * len(on_disk)
    ring = Ring(len(on_disk), num_slots, Noting(world.copies_in_order, copied, world.versions))
    for what, number in todo:
        block = number % len(on_disk)
        if what == "begin":
            ring.begin()
        elif what == "change":
            world.versions[block] += 1
        elif what == "settle":
            world.copies_in_order.settle()
            assert not world.pending
        elif what == "forget":
            ring.forget(block)
        else:
            run(world, ring, copied, block, what == "run")


class Noting:
    """Notes with each copy how often its block had been changed, as a stream does."""

    def __init__(self, copies: DiskCopies, copied: list[int], versions: list[int]) -> None:
        self._copies, self._copied, self._versions = copies, copied, versions
        self.wait_for, self.done_with = copies.wait_for, copies.done_with
        self.begin, self.foresee = copies.begin, copies.foresee

    def copy_in(self, block: int, slot: int) -> None:
        self._copied[block] = self._versions[block]
        self._copies.copy_in(block, slot)


def run(world: World, ring: Ring, copied: list[int], block: int, is_forwards: bool) -> None:
    """Run a block as a stream does: on its latest version, or with an error that leaves all usable."""
    if copied[block] != world.versions[block]:
        ring.forget(block)
    try:
        slot = ring.acquire(block) if is_forwards else ring.read(block)
    except RuntimeMemoryError as error:
        assert f"block {block} cannot be brought from the disk to its buffer: broken" in str(error)  # noqa: PT017
        return
    world.compute(block, slot, 1.0)
    assert world.arrived[block] == world.versions[block], "the block is stale"
    if is_forwards:
        ring.release(block)


def test_a_copy_that_was_asked_for_again_elsewhere_is_not_delivered_late() -> None:
    world = World([PAGE_BYTES] * 4, {0, 1}, 2, 2)
    copies = world.copies_in_order
    copies.copy_in(0, 0)
    copies.copy_in(2, 0)  # the slot is wanted for another block, and nothing is in its way
    assert world.copies == [2]
    world.finish()
    assert world.copies == [2]
    copies.copy_in(1, 0)
    copies.copy_in(1, 1)
    while world.pending:
        world.finish()
    assert world.copies == [2, 1]
    assert world._held == [2, 1]


def test_what_was_asked_for_before_a_pass_begins_is_not_delivered_in_it() -> None:
    world = World([PAGE_BYTES] * 4, {0, 1}, 2, 1)
    copies = world.copies_in_order
    copies.copy_in(0, 0)
    copies.copy_in(3, 1)
    copies.begin()
    world.finish()
    assert world.copies == []
    copies.copy_in(0, 0)
    assert len(world.pending) == 1  # read again
    world.finish()
    assert world.copies == [0]


def test_copies_are_issued_in_the_order_in_which_they_were_asked_for() -> None:
    world = World([PAGE_BYTES] * 4, {0, 2}, 4, 2)
    for block in range(4):
        world.copies_in_order.copy_in(block, block)
    assert world.copies == []
    world.finish(1)
    assert world.copies == []
    world.finish()
    assert world.copies == [0, 1, 2, 3]


def test_a_disk_that_fails_while_reading_ahead_is_asked_again_and_not_without_end() -> None:
    world = World([PAGE_BYTES] * 4, {0, 1, 2, 3}, 2, 2)
    world.breaks = lambda: True
    world.copies_in_order.foresee([2, 3])
    while world.pending:
        world.finish()
    assert world.num_reads == 2
    world.breaks = lambda: False
    world.copies_in_order.copy_in(2, 0)
    world.copies_in_order.wait_for(0)
    assert world.copies == [2]


def test_a_copy_that_is_refused_is_an_error_of_who_waits_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World([PAGE_BYTES] * 4, {0}, 2, 1)

    def refuse(*_: Any) -> None:
        raise RuntimeError("CUDA error 700")

    with monkeypatch.context() as patch:
        patch.setattr(world, "copy_from", refuse)
        world.copies_in_order.copy_in(0, 0)
        world.copies_in_order.copy_in(2, 1)
        with pytest.raises(RuntimeMemoryError, match=r"block 0 cannot be brought .*CUDA error 700"):
            world.copies_in_order.wait_for(0)
        world.copies_in_order.wait_for(1)
    world.copies_in_order.copy_in(0, 0)
    world.copies_in_order.wait_for(0)
    assert world.copies == [2, 0]


def test_a_reader_that_takes_nothing_more_is_an_error_and_holds_up_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World([PAGE_BYTES] * 4, {0, 1}, 4, 1)

    def refuse(*_: Any) -> None:
        raise RuntimeError("cannot schedule new futures after shutdown")

    for block in (0, 1, 3):
        world.copies_in_order.copy_in(block, block)
    monkeypatch.setattr(world, "start", refuse)
    world.copies_in_order.wait_for(3)
    world.copies_in_order.wait_for(0)
    with pytest.raises(RuntimeMemoryError, match="after shutdown"):
        world.copies_in_order.wait_for(1)
    assert world.copies == [0, 3]


def test_settling_copies_what_was_asked_for_drops_what_was_read_ahead_and_reads_no_more() -> None:
    world = World([PAGE_BYTES] * 6, set(range(6)), 2, 2)
    copies = world.copies_in_order
    copies.copy_in(0, 0)
    copies.foresee([1, 2, 3])
    copies.settle()
    assert world.copies == [0]
    assert world.settled == 1
    assert not world.pending
    assert world.num_reads == 2  # that of block 1 was under way
    copies.copy_in(1, 1)
    copies.wait_for(1)
    assert world.num_reads == 3


def test_measuring_uses_no_buffer_that_is_read_to_and_leaves_nothing_behind() -> None:
    world = World([PAGE_BYTES] * 6, {1, 2, 4}, 2, 2)
    copies = world.copies_in_order
    copies.copy_in(4, 0)
    copies.foresee([1, 2])
    assert copies.measure() > 0
    assert world.copies == [4]
    num_reads = world.num_reads
    copies.copy_in(1, 1)
    copies.wait_for(1)
    assert world.num_reads == num_reads + 1


@pytest.mark.parametrize("num_staging", [1, 2, 3])
def test_threads_bring_the_right_blocks_in_any_order(num_staging: int) -> None:
    chance = random.Random(num_staging)
    num_blocks, size = 9, 2 * PAGE_BYTES
    sources = [torch.full((size,), number, dtype=torch.uint8) for number in range(num_blocks)]
    slots = [torch.zeros(size, dtype=torch.uint8) for _ in range(2)]

    def read(into: memoryview, offset: int) -> None:
        time.sleep(chance.random() * 2e-4)
        into[:] = bytes([offset // size]) * len(into)

    reader = DiskReader(read, num_threads=4, chunk_bytes=PAGE_BYTES // 4)
    on_disk = {
        number: DiskBlock(name="", offset=number * size, size_bytes=size, version=lambda: 0)
        for number in range(num_blocks)
        if number % 3
    }
    staging = [torch.zeros(size, dtype=torch.uint8) for _ in range(num_staging)]
    copies = DiskCopies(HostCopies(sources, slots), on_disk, staging, reader)
    ring = Ring(num_blocks, 2, copies)
    for turn in range(12):
        ring.begin()
        for block in range(num_blocks if turn % 3 else 4):
            slot = ring.acquire(block)
            assert slots[slot].unique().tolist() == [block]
            ring.release(block)
        for _ in range(chance.randrange(8)):
            block = chance.randrange(num_blocks)
            assert slots[ring.read(block)].unique().tolist() == [block]
    assert copies.measure() > 0
    copies.close()
    assert not [one for one in threading.enumerate() if one.name.startswith(THREAD_NAME)]


def test_on_a_gpu_a_thread_issues_the_copy_after_the_last_use_of_the_slot_and_the_host_waits_for_that_alone(
    cuda: FakeCuda,
) -> None:
    slots = [torch.zeros(8, dtype=torch.uint8) for _ in range(2)]
    to_slots = CudaCopies([torch.zeros(8, dtype=torch.uint8)] * 2, slots, torch.device("cpu"))
    threads: list[str] = []

    def read(into: memoryview, offset: int) -> None:
        into[:] = b"\x07" * len(into)
        threads.append(threading.current_thread().name)

    block = DiskBlock(name="", offset=0, size_bytes=8, version=lambda: 0)
    copies = DiskCopies(to_slots, {1: block}, [torch.zeros(PAGE_BYTES, dtype=torch.uint8)], DiskReader(read))
    cuda.current = FakeStream(cuda, "another")
    copies.done_with(0)
    begin = len(cuda.log)
    copies.copy_in(1, 0)
    copies.wait_for(0)
    waits, copied, marked, uses = cuda.log[begin:]
    assert waits == ("copies", "waits for", cuda.log[begin - 1][2])
    assert copied[:2] == marked[:2] == ("copies", "marks")
    assert uses == ("another", "waits for", copied[2])
    assert slots[0].tolist() == [7] * 8
    copies.copy_in(1, 1)  # to the same staging buffer: a thread of the reader waits for the copy from it
    copies.wait_for(1)
    assert cuda.log[begin + 4] == ("host", "waits for", marked[2])
    copies.close()
    assert all(name.startswith(THREAD_NAME) for name in threads)
