"""The ring copies each block in time and to a buffer that nobody reads, on a device that is a fake: it only keeps clocks."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ullage.runtime.weights.plan import StreamPlan
from ullage.runtime.weights.ring import Ring

times = st.floats(min_value=0.01, max_value=10.0)


class FakeDevice:
    """A link and a processor with a clock each. What is computed reads buffers, and must find the right block there.

    Attributes:
        copies: Each copy's block, in order.
        foreseen: The blocks that will be copied after those.
        num_begun: How often a pass began.
        now: When all that was computed so far ends.
        issued: When the copies that are issued now are issued.
    """

    def __init__(self, copy_s: list[float], num_slots: int) -> None:
        self.copies: list[int] = []
        self.foreseen: list[int] = []
        self.num_begun = 0
        self.now = 0.0
        self.issued = 0.0
        self._copy_s = copy_s
        self._link_free = 0.0
        self._usable = [0.0] * num_slots  # from when on a buffer may be written to
        self._there = [0.0] * num_slots  # from when on its last copy is there
        self._held: list[int | None] = [None] * num_slots
        self._waited = [False] * num_slots
        self._reads: list[list[float]] = [[] for _ in range(num_slots)]

    def copy_in(self, block: int, slot: int) -> None:
        begin = max(self._link_free, self._usable[slot], self.issued)
        assert all(end <= begin for end in self._reads[slot]), "a buffer is written to while it is read"
        self._link_free = self._there[slot] = begin + self._copy_s[block]
        self._held[slot], self._waited[slot], self._reads[slot] = block, False, []
        self.copies.append(block)

    def wait_for(self, slot: int) -> None:
        self.now = max(self.now, self._there[slot])
        self._waited[slot] = True

    def done_with(self, slot: int) -> None:
        self._usable[slot] = self.now

    def foresee(self, blocks: Sequence[int]) -> None:
        self.foreseen = list(blocks)

    def begin(self) -> None:
        self.foreseen = []
        self.num_begun += 1

    def compute(self, block: int, slot: int, seconds: float) -> None:
        assert self._held[slot] == block
        assert self._waited[slot], "a block is read that was not waited for"
        self.now += seconds
        self._reads[slot].append(self.now)


def forwards(ring: Ring, device: FakeDevice, compute_s: list[float]) -> None:
    ring.begin()
    for block, seconds in enumerate(compute_s):
        device.compute(block, ring.acquire(block), seconds)
        ring.release(block)


def backwards(ring: Ring, device: FakeDevice, compute_s: list[float]) -> None:
    for block in reversed(range(len(compute_s))):
        for _ in range(2):  # autograd reads a block's weights one after another
            device.compute(block, ring.read(block), compute_s[block] / 2)


blocks = st.lists(st.tuples(times, times), min_size=1, max_size=12)


@given(blocks, st.integers(1, 5), st.integers(1, 4))
def test_passes_copy_each_block_once_and_in_order(
    pairs: list[tuple[float, float]], num_slots: int, num_passes: int
) -> None:
    device = FakeDevice([copy for copy, _ in pairs], num_slots)
    ring = Ring(len(pairs), num_slots, device)
    for _ in range(num_passes):
        forwards(ring, device, [compute for _, compute in pairs])
    assert device.copies == list(range(len(pairs))) * num_passes
    assert ring.num_copies == len(device.copies)


@given(blocks, st.integers(1, 5))
def test_a_pass_takes_as_long_as_was_planned(pairs: list[tuple[float, float]], num_slots: int) -> None:
    copy_s, compute_s = [copy for copy, _ in pairs], [compute for _, compute in pairs]
    device = FakeDevice([round(copy * 1000) / 1e6 for copy in copy_s], num_slots)
    plan = StreamPlan(
        block_bytes=tuple(round(copy * 1000) for copy in copy_s),
        is_resident=(False,) * len(pairs),
        num_slots=num_slots,
        slot_bytes=0,
        other_bytes=0,
    )
    forwards(Ring(len(pairs), num_slots, device), device, compute_s)
    assert abs(device.now - plan.step_s(compute_s, 1e6)) < 1e-9


@given(st.integers(2, 40), times, times, st.integers(2, 4))
def test_equal_blocks_overlap_all_but_one_copy_or_one_computation(
    num_blocks: int, copy: float, compute: float, num_slots: int
) -> None:
    device = FakeDevice([copy] * num_blocks, num_slots)
    forwards(Ring(num_blocks, num_slots, device), device, [compute] * num_blocks)
    bound = num_blocks * max(copy, compute) + min(copy, compute)
    assert device.now <= bound * (1 + 1e-9)


@given(blocks, st.integers(1, 5))
def test_a_pass_backwards_begins_with_what_the_pass_forwards_left(
    pairs: list[tuple[float, float]], num_slots: int
) -> None:
    device = FakeDevice([copy for copy, _ in pairs], num_slots)
    ring = Ring(len(pairs), num_slots, device)
    compute_s = [compute for _, compute in pairs]
    forwards(ring, device, compute_s)
    backwards(ring, device, compute_s)
    again = device.copies[len(pairs) :]
    assert again == list(reversed(range(max(len(pairs) - num_slots, 0))))
    forwards(ring, device, compute_s)


@given(st.integers(3, 30), times, times)
def test_a_pass_backwards_overlaps_too(num_blocks: int, copy: float, compute: float) -> None:
    device = FakeDevice([copy] * num_blocks, 2)
    ring = Ring(num_blocks, 2, device)
    forwards(ring, device, [compute] * num_blocks)
    begin = device.now
    backwards(ring, device, [compute] * num_blocks)
    assert device.now - begin <= num_blocks * max(copy, compute) + 2 * (copy + compute)


@given(st.integers(1, 10), st.integers(1, 4), st.lists(st.tuples(st.integers(0, 9), st.booleans(), times), max_size=40))
def test_blocks_in_any_order_are_right(num_blocks: int, num_slots: int, steps: list[tuple[int, bool, float]]) -> None:
    device = FakeDevice([1.0] * num_blocks, num_slots)
    ring = Ring(num_blocks, num_slots, device)
    for number, runs, seconds in steps:
        block = number % num_blocks
        if runs:
            device.compute(block, ring.acquire(block), seconds)
            ring.release(block)
        else:
            device.compute(block, ring.read(block), seconds)
        assert all(ring.slot_of(one) is None for one in device.foreseen)


def test_what_is_stale_is_copied_again() -> None:
    device = FakeDevice([1.0] * 4, 2)
    ring = Ring(4, 2, device)
    ring.begin()
    ring.acquire(0)
    ring.release(0)
    ring.forget(1)
    device.compute(1, ring.acquire(1), 1.0)
    assert device.copies == [0, 1, 2, 1]


def test_what_comes_after_the_window_is_foreseen_in_the_direction_of_the_pass() -> None:
    device = FakeDevice([1.0] * 6, 2)
    ring = Ring(6, 2, device)
    ring.begin()
    assert device.foreseen == [2, 3, 4, 5]
    for block in range(3):
        ring.acquire(block)
        ring.release(block)
    assert device.foreseen == [5]
    for block in range(3, 6):
        ring.acquire(block)
        ring.release(block)
    assert device.foreseen == []
    ring.read(5)
    assert device.foreseen == [3, 2, 1, 0]
    ring.read(4)
    assert device.foreseen == [2, 1, 0]


def test_a_block_that_runs_is_not_foreseen() -> None:
    device = FakeDevice([1.0] * 6, 3)
    ring = Ring(6, 3, device)
    ring.acquire(4)
    ring.read(0)
    ring.read(1)
    assert device.foreseen == [3, 5]


def test_a_block_that_did_not_arrive_is_copied_again_when_it_is_wanted_again() -> None:
    class Failing(FakeDevice):
        fails = True

        def wait_for(self, slot: int) -> None:
            if self.fails:
                raise OSError("no")
            super().wait_for(slot)

    device = Failing([1.0] * 4, 2)
    ring = Ring(4, 2, device)
    ring.begin()
    with pytest.raises(OSError, match="no"):
        ring.acquire(0)
    device.fails = False
    for block in range(4):
        device.compute(block, ring.acquire(block), 1.0)
        ring.release(block)
    assert device.copies == [0, 1, 0, 2, 3]


def test_a_copy_that_is_refused_does_not_cost_a_buffer() -> None:
    class Refusing(FakeDevice):
        refuses = True

        def copy_in(self, block: int, slot: int) -> None:
            if self.refuses:
                raise OSError("no")
            super().copy_in(block, slot)

    device = Refusing([1.0] * 4, 2)
    ring = Ring(4, 2, device)
    for _ in range(3):
        with pytest.raises(OSError, match="no"):
            ring.begin()
    device.refuses = False
    forwards(ring, device, [1.0] * 4)
    assert device.copies == [0, 1, 2, 3]


@given(num_blocks=st.integers(1, 9), num_slots=st.integers(1, 4), goes_back=st.booleans())
def test_a_block_finds_the_same_buffer_in_each_pass_forwards(num_blocks: int, num_slots: int, goes_back: bool) -> None:
    device = FakeDevice([1.0] * num_blocks, num_slots)
    ring = Ring(num_blocks, num_slots, device)
    seen = []
    for _ in range(3):
        ring.begin()
        slots = []
        for block in range(num_blocks):
            slots.append(ring.acquire(block))
            ring.release(block)
        seen.append(slots)
        if goes_back:
            for block in reversed(range(num_blocks)):
                ring.read(block)
    assert seen[0] == seen[1] == seen[2] == [block % num_slots for block in range(num_blocks)]


def test_a_second_pass_takes_nothing_over() -> None:
    device = FakeDevice([1.0] * 2, 3)
    ring = Ring(2, 3, device)
    for _ in range(2):
        forwards(ring, device, [1.0, 1.0])
    assert device.num_begun == 2
    assert all(one != other for one, other in pairwise(device.copies))
    assert device.copies == [0, 1, 0, 1]
