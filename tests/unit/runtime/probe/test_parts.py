"""Parts of a block: each byte in turn, and none beyond its end."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ullage.runtime.probe.gpu import Block
from ullage.runtime.probe.parts import Walk, in_turn, parts_of


def block_of(size_bytes: int) -> Block:
    return Block(kind="pageable", address=1000, size_bytes=size_bytes, host=bytes(range(size_bytes)))


@given(st.integers(1, 200), st.integers(1, 250))
def test_parts_lie_side_by_side_within_the_block(size: int, part: int) -> None:
    parts = parts_of(block_of(size), part)
    held = b"".join(one.host for one in parts)
    assert held == bytes(range(len(held)))
    assert len(held) > size - min(part, size)
    assert [one.address for one in parts] == [1000 + index * parts[0].size_bytes for index in range(len(parts))]
    assert {one.size_bytes for one in parts} == {min(part, size)}


@given(st.integers(8, 200), st.lists(st.integers(1, 8), min_size=1, max_size=60))
def test_a_walk_takes_what_comes_next_and_begins_again_at_the_end(size: int, takes: list[int]) -> None:
    walk, at = Walk(block_of(size)), 0
    for take in takes:
        at = at if at + take <= size else 0
        assert walk.take(take).host == bytes(range(at, at + take))
        at += take


def test_prepared_runs_are_done_in_turn() -> None:
    done: list[int] = []
    run = in_turn([lambda index=index: done.append(index) for index in range(3)])  # type: ignore[misc]
    for _ in range(7):
        run()
    assert done == [0, 1, 2, 0, 1, 2, 0]
