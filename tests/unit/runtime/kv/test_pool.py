"""The pool holds what sequences wrote, whatever is forked, truncated, swapped and freed in between."""

from __future__ import annotations

import pytest
import torch
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ullage.errors import OutOfPagesError, PageAccountError
from ullage.runtime.kv import KVFormat, KVPool, Sequence

PAGE = 16


def pool_of(num_pages: int, num_layers: int = 1, formats: KVFormat | list[KVFormat] = KVFormat()) -> KVPool:  # noqa: B008
    return KVPool(
        num_layers=num_layers,
        num_kv_heads=1,
        head_dim=16,
        formats=formats,
        page_tokens=PAGE,
        num_pages=num_pages,
        device="cpu",
    )


def test_a_pool_of_some_bytes_takes_whole_pages_of_all_layers() -> None:
    pool = KVPool(
        num_layers=2, num_kv_heads=8, head_dim=128, formats=KVFormat.named("int4"), size_bytes=1_000_000, device="cpu"
    )
    assert pool.page_bytes == 2 * 73728
    assert pool.stats().num_pages == 1_000_000 // (2 * 73728)


def test_layers_of_one_format_lie_in_one_allocation() -> None:
    formats = [KVFormat(kind="bf16"), KVFormat(kind="int8"), KVFormat(kind="bf16")]
    pool = pool_of(4, num_layers=3, formats=formats)
    storages = [pool.layer(index).untyped_storage().data_ptr() for index in range(3)]
    assert storages[0] == storages[2] != storages[1]


def test_appending_to_several_sequences_is_all_or_nothing() -> None:
    pool = pool_of(3)
    one, other = pool.new_sequence(PAGE), pool.new_sequence(PAGE)
    with pytest.raises(OutOfPagesError, match="needs 2, 1 of 3 are free"):
        pool.append([one, other])
    assert (one.num_tokens, other.num_tokens, pool.pages.num_free) == (PAGE, PAGE, 1)


def test_a_fork_shares_pages_until_one_of_the_two_writes() -> None:
    pool = pool_of(4)
    one = pool.new_sequence(PAGE + 3)
    pool.layer(0)[one.pages[1]] = 7
    other = pool.fork(one)
    assert other.pages == one.pages
    assert pool.stats().num_shared == 2
    pool.append([other])
    assert other.pages[0] == one.pages[0]
    assert other.pages[1] != one.pages[1]
    assert bool((pool.layer(0)[other.pages[1]] == 7).all())
    pool.append([one])  # its page is its own again: nothing is copied
    assert pool.pages.num_free == 1


def test_two_forks_that_write_in_one_call_copy_for_all_but_one() -> None:
    pool = pool_of(3)
    one = pool.new_sequence(3)
    two, three = pool.fork(one), pool.fork(one)
    pool.append([one, two, three])
    assert len({one.pages[0], two.pages[0], three.pages[0]}) == 3
    assert pool.account() == ""


def test_a_swapped_sequence_comes_back_with_what_it_held() -> None:
    pool = pool_of(2, num_layers=2)
    one = pool.new_sequence(PAGE + 1)
    for layer in range(2):
        pool.layer(layer)[one.pages] = torch.arange(2, dtype=torch.uint8).view(2, 1) + 10 * layer
    pool.swap_out(one)
    assert pool.pages.num_free == 2
    assert pool.stats().host_bytes == 2 * pool.page_bytes
    with pytest.raises(PageAccountError, match="swapped out: bring it back first"):
        pool.append([one])
    other = pool.new_sequence(1)
    with pytest.raises(OutOfPagesError):
        pool.swap_in(one)
    assert one.is_swapped_out
    pool.free(other)
    pool.swap_in(one)
    assert [pool.layer(1)[page][0].item() for page in one.pages] == [10, 11]


def test_a_sequence_cannot_be_freed_twice_nor_used_after() -> None:
    pool = pool_of(2)
    one = pool.new_sequence(1)
    pool.free(one)
    for use in (pool.free, pool.fork, lambda it: pool.append([it]), lambda it: pool.table([it])):
        with pytest.raises(PageAccountError, match="a double free, or a use after it"):
            use(one)


def test_another_pools_sequence_is_refused() -> None:
    with pytest.raises(PageAccountError, match="another pool's"):
        pool_of(1).free(pool_of(1).new_sequence(1))


def test_the_account_tells_a_leak_from_a_double_free() -> None:
    pool = pool_of(3)
    one = pool.new_sequence(PAGE * 2)
    assert pool.account() == ""
    lost = one.pages.pop()
    assert pool.account() == f"1 holders too many: pages are leaked (first: page {lost})"
    one.pages += [lost, lost]
    assert pool.account().startswith("1 holders too few: pages were freed twice")


def test_a_table_has_the_pages_of_each_sequence_and_a_fixed_width_on_request() -> None:
    pool = pool_of(4)
    one, other = pool.new_sequence(PAGE + 1), pool.new_sequence(0)
    assert pool.table([one, other]).tolist() == [[0, 1], [-1, -1]]
    assert pool.table([one], max_pages=3).tolist() == [[0, 1, -1]]
    assert pool.lengths([one, other]).tolist() == [PAGE + 1, 0]
    with pytest.raises(ValueError, match="has 2 pages, the table 1"):
        pool.table([one], max_pages=1)


class PoolAgainstModel(RuleBasedStateMachine):
    """Runs random operations on a pool, and on lists of what each sequence's tokens should be."""

    NUM_PAGES = 8

    def __init__(self) -> None:
        super().__init__()
        self.pool = pool_of(self.NUM_PAGES)
        self.contents: list[tuple[Sequence, list[int]]] = []
        self.counter = 0

    def write(self, sequence: Sequence, tokens: list[int], count: int) -> None:
        """Write a number for each new token: the first byte of its key."""
        layout = self.pool.layouts[0]
        for _ in range(count):
            self.counter = (self.counter + 1) % 251
            place = len(tokens)
            page = self.pool.layer(0)[sequence.pages[place // PAGE]]
            page[place % PAGE * layout.code_bytes] = self.counter
            tokens.append(self.counter)

    def pages_needed(self) -> int:
        return sum(-(-len(tokens) // PAGE) for _, tokens in self.contents)

    def pick(self, index: int) -> tuple[Sequence, list[int]]:
        return self.contents[index % len(self.contents)]

    @rule(count=st.integers(0, 40))
    def begin(self, count: int) -> None:
        free = self.pool.pages.num_free
        if -(-count // PAGE) > free:
            with pytest.raises(OutOfPagesError):
                self.pool.new_sequence(count)
            assert self.pool.pages.num_free == free
            return
        self.contents.append((self.pool.new_sequence(count), []))
        self.write(*self.contents[-1], count)

    @precondition(lambda self: self.contents)
    @rule(indices=st.sets(st.integers(0, 20), min_size=1, max_size=3), count=st.integers(0, 20))
    def append(self, indices: set[int], count: int) -> None:
        chosen = {id(one[0]): one for one in (self.pick(index) for index in indices) if not one[0].is_swapped_out}
        before = [(list(one.pages), one.num_tokens) for one, _ in self.contents]
        free = self.pool.pages.num_free
        try:
            self.pool.append([one for one, _ in chosen.values()], count)
        except OutOfPagesError:
            assert [(list(one.pages), one.num_tokens) for one, _ in self.contents] == before
            assert self.pool.pages.num_free == free
            return
        for one, tokens in chosen.values():
            self.write(one, tokens, count)

    @precondition(lambda self: self.contents)
    @rule(index=st.integers(0, 20), share=st.floats(0, 1))
    def fork(self, index: int, share: float) -> None:
        one, tokens = self.pick(index)
        if one.is_swapped_out:
            return
        count = int(len(tokens) * share)
        self.contents.append((self.pool.fork(one, count), tokens[:count]))

    @precondition(lambda self: self.contents)
    @rule(index=st.integers(0, 20), share=st.floats(0, 1))
    def truncate(self, index: int, share: float) -> None:
        one, tokens = self.pick(index)
        if one.is_swapped_out:
            return
        del tokens[int(len(tokens) * share) :]
        self.pool.truncate(one, len(tokens))

    @precondition(lambda self: self.contents)
    @rule(index=st.integers(0, 20))
    def swap(self, index: int) -> None:
        one, tokens = self.pick(index)
        if not one.is_swapped_out:
            self.pool.swap_out(one)
        elif -(-len(tokens) // PAGE) <= self.pool.pages.num_free:
            self.pool.swap_in(one)
        else:
            with pytest.raises(OutOfPagesError):
                self.pool.swap_in(one)

    @precondition(lambda self: self.contents)
    @rule(index=st.integers(0, 20))
    def free(self, index: int) -> None:
        self.pool.free(self.contents.pop(index % len(self.contents))[0])

    @invariant()
    def every_sequence_reads_what_it_wrote(self) -> None:
        stride = self.pool.layouts[0].code_bytes
        for one, tokens in self.contents:
            assert one.num_tokens == len(tokens)
            if one.is_swapped_out:
                continue
            assert len(one.pages) == -(-len(tokens) // PAGE)
            read = [
                int(self.pool.layer(0)[one.pages[place // PAGE]][place % PAGE * stride]) for place in range(len(tokens))
            ]
            assert read == tokens

    @invariant()
    def pages_add_up(self) -> None:
        assert self.pool.account() == ""
        held = {page for one, _ in self.contents for page in one.pages}
        assert self.pool.pages.num_free == self.NUM_PAGES - len(held)
        assert self.pool.stats().num_tokens == sum(len(tokens) for _, tokens in self.contents)


TestPoolAgainstModel = PoolAgainstModel.TestCase
TestPoolAgainstModel.settings = settings(
    max_examples=200, stateful_step_count=50, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
