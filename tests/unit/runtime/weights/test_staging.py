"""A staging buffer goes to the block that is wanted first, and never while something is read to it."""

from __future__ import annotations

import torch

from ullage.runtime.weights.staging import Staging, StagingBuffer


def staging(num_buffers: int = 2) -> Staging:
    return Staging([torch.zeros(1, dtype=torch.uint8) for _ in range(num_buffers)])


def blocks(buffers: list[StagingBuffer]) -> list[int | None]:
    return [one.block for one in buffers]


def end_reads(one: Staging) -> None:
    for buffer in one.buffers:
        buffer.is_reading = False


def test_what_is_asked_for_comes_before_what_is_foreseen() -> None:
    assert blocks(staging().next_reads([5], [1, 2])) == [5, 1]
    assert blocks(staging(1).next_reads([], [1, 2])) == [1]


def test_what_is_there_or_being_read_is_not_read_again() -> None:
    one = staging()
    one.next_reads([], [1])
    assert blocks(one.next_reads([1], [1, 2])) == [2]
    end_reads(one)
    assert one.next_reads([1, 2], [3]) == []


def test_a_block_that_nobody_foresaw_takes_the_buffer_of_one_that_is_wanted_last() -> None:
    one = staging()
    one.next_reads([], [1, 2])
    end_reads(one)
    assert blocks(one.next_reads([7], [1, 2])) == [7]
    assert one.of(1) is not None
    assert one.of(2) is None


def test_what_is_no_longer_foreseen_gives_way_and_what_is_foreseen_later_too() -> None:
    one = staging()
    one.next_reads([], [6, 7])
    end_reads(one)
    assert blocks(one.next_reads([], [5, 4, 6])) == [5, 4]


def test_a_buffer_that_is_read_to_is_not_given_away_before_that_has_ended() -> None:
    one = staging(1)
    (buffer,) = one.next_reads([], [1])
    assert one.next_reads([7], []) == []
    assert buffer.block is None  # nobody need read on
    assert one.next_reads([7], []) == []
    buffer.is_reading = False
    assert blocks(one.next_reads([7], [])) == [7]


def test_only_one_buffer_is_taken_for_a_block_that_waits() -> None:
    one = staging()
    one.next_reads([], [1, 2])
    for _ in range(3):
        assert one.next_reads([7], [1, 2]) == []
    assert one.of(1) is not None


def test_a_buffer_of_a_block_that_was_asked_for_is_not_taken() -> None:
    one = staging()
    one.next_reads([1, 2], [])
    end_reads(one)
    assert one.next_reads([1, 2, 3], [4]) == []
    assert blocks(one.buffers) == [1, 2]


def test_the_buffer_that_was_copied_from_first_is_read_to_first() -> None:
    one = staging()
    first, second = one.next_reads([1, 2], [])
    end_reads(one)
    one.copied(second, lambda: None)
    one.copied(first, lambda: None)
    assert one.next_reads([3], []) == [second]


def test_a_block_that_is_asked_for_first_takes_the_buffer_of_one_that_is_asked_for_later() -> None:
    one = staging()
    one.next_reads([2, 3], [])
    end_reads(one)
    assert blocks(one.next_reads([1, 2, 3], [])) == [1]
    assert one.of(2) is not None


def test_what_nobody_wants_gives_way_even_if_something_is_still_read_to_it() -> None:
    one = staging()
    first, second = one.next_reads([], [1, 2])
    first.is_reading = False
    assert one.next_reads([], [7, 1]) == []
    assert (first.block, second.block) == (1, None)


def test_what_is_stale_is_read_again() -> None:
    one = staging()
    one.next_reads([1, 2], [])
    end_reads(one)
    one.drop(1)
    assert blocks(one.next_reads([1, 2], [])) == [1]
    one.keep([2])
    assert one.of(1) is None
    assert one.of(2) is not None
