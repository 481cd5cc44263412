"""A batch keeps which columns are tokens, whatever is padded, reordered and cropped in between."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ullage.errors import OutOfPagesError, RuntimeMemoryError
from ullage.runtime.kv import KVPool
from ullage.runtime.kv.batch import Batch
from ullage.runtime.kv.forward_pass import ForwardPass
from ullage.runtime.kv.tables import StepTables

PAGE = 16


def batch_of(num_pages: int = 64, num_layers: int = 1) -> Batch:
    return Batch(
        KVPool(num_layers=num_layers, num_kv_heads=1, head_dim=16, page_tokens=PAGE, num_pages=num_pages, device="cpu")
    )


def mask_of(held: list[list[bool]], past: list[list[bool]] | None = None) -> torch.Tensor:
    """Return the causal mask that hides what is not held, bool [B, 1, Q, C]."""
    new = torch.tensor(held)
    both = new if past is None else torch.cat([torch.tensor(past), new], 1)
    num_new, num_columns = new.shape[1], both.shape[1]
    return torch.ones(num_new, num_columns, dtype=torch.bool).tril(num_columns - num_new) & both[:, None, None]


def test_padding_has_no_place_and_the_rest_follow_each_other() -> None:
    batch = batch_of()
    first = batch.enter(0, 2, 3, mask_of([[False, True, True], [True, True, True]]))
    assert (first.rows.tolist(), first.positions.tolist()) == ([0, 0, 1, 1, 1], [0, 1, 0, 1, 2])
    assert first.kept is not None
    assert first.kept.tolist() == [1, 2, 3, 4, 5]
    second = batch.enter(0, 2, 1, None)
    assert (second.rows.tolist(), second.positions.tolist()) == ([0, 1], [2, 3])
    assert second.held(4) is not None
    assert second.lengths.tolist() == second.tokens == [3, 4]
    assert batch.num_columns == 4


def test_a_mask_shows_all_when_it_shows_as_many_as_are_held_or_seen_through_a_window() -> None:
    batch = batch_of()
    past = [[False, True, True], [True, True, True]]
    batch.enter(0, 2, 3, mask_of(past))
    mask = mask_of([[True], [True]], past)
    step = batch.enter(0, 2, 1, mask)
    windowed = mask.clone()
    windowed[..., :2] = False
    added = torch.where(windowed, 0.0, torch.finfo(torch.float32).min)
    assert step.shows_all(None, 0)
    assert step.shows_all(mask, 0)
    assert not step.shows_all(windowed, 0)
    assert step.shows_all(windowed, 2)
    assert step.shows_all(added, 2)
    assert step.shows_all(torch.ones_like(mask), 0)  # what it shows of padding does not count
    hidden = step.without_padding(torch.ones_like(mask), 4)
    assert hidden is not None
    assert hidden[:, 0, 0].tolist() == [[False, True, True, True], [True, True, True, True]]


def test_a_pass_must_reach_all_layers() -> None:
    batch = batch_of(num_layers=2)
    batch.enter(0, 1, 3, None)
    with pytest.raises(RuntimeMemoryError, match="stopped half way"):
        batch.enter(0, 1, 1, None)
    assert batch.enter(1, 1, 3, None).num_columns == 3
    batch.enter(0, 1, 1, None)
    batch.crop(3)
    assert batch.columns_of == [3, 3]
    assert batch.sequences[0].num_tokens == 3
    batch.enter(1, 1, 2, None)
    batch.clear()
    assert batch.columns_of == [0, 0]
    assert batch.pool.stats().num_free == 64


def test_a_pass_without_room_begins_nothing() -> None:
    batch = batch_of(num_pages=3)
    with pytest.raises(OutOfPagesError):
        batch.enter(0, 4, 3, None)
    assert (batch.sequences, batch.num_columns, batch.pool.stats().num_sequences) == ([], 0, 0)
    batch.enter(0, 2, PAGE, None)
    with pytest.raises(OutOfPagesError):
        batch.enter(0, 2, 1, None)
    assert (batch.num_columns, batch.columns_of) == (PAGE, [PAGE])


ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("enter"), st.integers(1, 6), st.integers(0, 2**18 - 1)),
        st.tuples(st.just("select"), st.lists(st.integers(0, 2), min_size=1, max_size=3)),
        st.tuples(st.just("crop"), st.integers(1, 9)),
        st.tuples(st.just("copy")),
    ),
    max_size=12,
)


def next_pass(batch: Batch, rows: list[list[bool]], num_new: int, bits: int) -> tuple[ForwardPass, list[list[bool]]]:
    num_batch = len(rows) or 2
    held = [[bool(bits >> (row * 6 + at) & 1) for at in range(num_new)] for row in range(num_batch)]
    return batch.enter(0, num_batch, num_new, mask_of(held, rows or None)), held


@settings(max_examples=150, deadline=None)
@given(ACTIONS)
def test_a_batch_does_what_lists_of_columns_do(actions: list[tuple]) -> None:  # type: ignore[type-arg]
    batch = batch_of()
    rows: list[list[bool]] = []
    for name, *arguments in actions:
        if name == "enter":
            step, held = next_pass(batch, rows, *arguments)
            before = [sum(row) for row in rows] or [0] * len(held)
            places = [(at, before[at] + place) for at, row in enumerate(held) for place in range(sum(row))]
            assert list(zip(step.rows.tolist(), step.positions.tolist(), strict=True)) == places
            rows = [row + new for row, new in zip(rows or [[] for _ in held], held, strict=True)]
        elif name == "select" and rows:
            chosen = [index % len(rows) for index in arguments[0]]
            batch.select(chosen)
            rows = [rows[index] for index in chosen]
        elif name == "crop" and rows:
            left = max(len(rows[0]) - arguments[0], 0)
            batch.crop(left)
            rows = [row[:left] for row in rows] if left else []
        elif name == "copy":
            old, batch = batch, batch.copy()
            old.clear()
        assert [one.num_tokens for one in batch.sequences] == [sum(row) for row in rows]
        assert batch.num_columns == (len(rows[0]) if rows else 0)
        assert batch.pool.account() == ""
    batch.clear()
    assert batch.pool.stats().num_free == 64


def test_several_queries_are_shown_all_where_each_sees_what_is_held_up_to_it() -> None:
    batch = batch_of()
    past = [[False, True, True], [True, True, True]]
    batch.enter(0, 2, 3, mask_of(past))
    mask = mask_of([[True, True], [True, True]], past)
    step = batch.enter(0, 2, 2, mask)
    assert step.shows_all(mask, 0)
    assert step.shows_all(torch.where(mask, 0.0, torch.finfo(torch.float32).min), 0)
    with_padding = mask.clone()
    with_padding[0, 0, :, 0] = True  # what it shows of padding does not count
    assert step.shows_all(with_padding, 0)
    for query, column in ((0, 1), (1, 3)):
        hole = mask.clone()
        hole[0, 0, query, column] = False
        assert not step.shows_all(hole, 0)
    ahead = mask.clone()
    ahead[1, 0, 0, 4] = True
    assert not step.shows_all(ahead, 0)
    assert not step.shows_all(None, 0)


def test_several_queries_see_through_a_window_of_tokens() -> None:
    batch = batch_of()
    batch.enter(0, 1, 4, None)
    columns = torch.arange(6)
    distance = columns[4:, None] - columns
    windowed = ((distance >= 0) & (distance < 3))[None, None]
    step = batch.enter(0, 1, 2, windowed)
    assert step.shows_all(windowed, 3)
    assert step.shows_all(windowed[..., 2:], 3)  # as transformers makes it: without the columns that nobody sees
    assert not step.shows_all(windowed[..., 2:].clone(), 4)
    assert not step.shows_all(windowed.clone(), 0)


def test_sequences_that_were_swapped_out_are_found_where_they_came_back_to() -> None:
    batch = batch_of(num_pages=8)
    batch.enter(0, 2, 20, None)
    batch.enter(0, 2, 1, None)
    pool = batch.pool
    for one in batch.sequences:
        pool.swap_out(one)
    pool.new_sequence(30)  # takes the pages that they had
    for one in batch.sequences:
        pool.swap_in(one)
    step = batch.enter(0, 2, 1, None)
    assert [row[:2] for row in step.table.tolist()] == [one.pages for one in batch.sequences]


@pytest.mark.parametrize("num_new", [1, 3])
def test_a_pass_for_which_there_is_no_memory_leaves_the_batch_as_it_was(
    monkeypatch: pytest.MonkeyPatch, num_new: int
) -> None:
    batch = batch_of()
    batch.enter(0, 2, PAGE, None)

    def refuses(*args: object) -> None:
        raise torch.OutOfMemoryError("no memory for tables")

    with monkeypatch.context() as patch:
        patch.setattr(StepTables, "update", refuses)
        with pytest.raises(torch.OutOfMemoryError):
            batch.enter(0, 2, num_new, None)
    assert [one.num_tokens for one in batch.sequences] == [PAGE, PAGE]
    assert (batch.num_columns, batch.columns_of) == (PAGE, [PAGE])
    step = batch.enter(0, 2, num_new, None)
    assert step.tokens == [PAGE + num_new] * 2
    assert [row[:2] for row in step.table.tolist()] == [one.pages for one in batch.sequences]


def test_a_first_pass_for_which_there_is_no_memory_leaves_no_sequence(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = batch_of()

    def refuses(*args: object) -> None:
        raise torch.OutOfMemoryError("no memory for tables")

    with monkeypatch.context() as patch:
        patch.setattr(StepTables, "update", refuses)
        with pytest.raises(torch.OutOfMemoryError):
            batch.enter(0, 2, 5, None)
    assert batch.pool.stats().num_sequences == 0
    assert batch.pool.account() == ""
