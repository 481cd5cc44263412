"""The pool holds what sequences wrote, whatever is forked, truncated, swapped and freed in between."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from hypothesis import given, note, settings
from hypothesis import strategies as st

from tests.unit.runtime.kv.conftest import DEVICE
from ullage.errors import OutOfPagesError, PageAccountError
from ullage.runtime.kv import KVFormat, KVPool, Sequence

PAGE = 16


pytestmark = pytest.mark.usefixtures("one_thread")


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


def test_a_prefetched_sequence_comes_back_beside_what_runs() -> None:
    pool = KVPool(num_layers=1, num_kv_heads=1, head_dim=16, page_tokens=PAGE, num_pages=3, device=DEVICE)
    one = pool.new_sequence(2 * PAGE)
    held = pool.layer(0)[one.pages].random_(0, 255)
    pool.layer(0)[one.pages] = held
    pool.swap_out(one)
    other = pool.new_sequence(2 * PAGE)
    with pytest.raises(OutOfPagesError):
        pool.prefetch(one)
    pool.free(other)
    pool.prefetch(one)
    with pytest.raises(PageAccountError, match="not swapped out"):
        pool.prefetch(one)
    table = pool.table([one])  # waits for the copies, on the GPU
    assert torch.equal(pool.layer(0)[table[0].long()], held)
    pool.swap_out(one)
    pool.prefetch(one)
    pool.free(one)
    assert pool.account() == ""
    assert pool.pages.num_free == 3


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


NUM_PAGES, NUM_RUNS, NUM_OPERATIONS = 6, 10_000, 50
OPERATIONS = ("nothing", "begin", "append", "append", "fork", "fork", "truncate", "swap", "free")


def operations_of(drawn: bytes) -> list[tuple[str, int, int]]:
    """Make an operation of each three bytes: its name, which sequences (0 to 63), how many tokens or which share (0 to 40).

    hypothesis draws all bytes at once, in a tenth of the time of 150 draws, and shrinks them towards 0, which is nothing.
    """
    return [
        (OPERATIONS[name % len(OPERATIONS)], which % 64, amount % 41)
        for name, which, amount in zip(drawn[::3], drawn[1::3], drawn[2::3], strict=True)
        if name % len(OPERATIONS)
    ]


class PoolAndModel:
    """A pool of two layers, and beside each of its sequences what its tokens should be: one number each, in both layers."""

    def __init__(self) -> None:
        self.pool = pool_of(NUM_PAGES, num_layers=2, formats=[KVFormat(), KVFormat.named("int8")])
        self.contents: list[tuple[Sequence, bytearray]] = []
        self.counter = 0
        # The first byte of each token's key, [pages, PAGE]: a view, so that it is read and written without torch's overhead.
        self.firsts = [
            self.pool.layer(index).numpy()[:, : PAGE * layout.code_bytes : layout.code_bytes]
            for index, layout in enumerate(self.pool.layouts)
        ]

    def apply(self, name: str, which: int, amount: int) -> None:
        """Do one operation on both; some do nothing where there is no sequence, or it is swapped out."""
        if name == "begin":
            self.begin(amount)
        elif name != "nothing" and self.contents:
            one, tokens = self.contents[which % len(self.contents)]
            if name == "append":
                self.append({which % 4, which // 4 % 4, which // 16}, amount // 2)
            elif name == "swap":
                self.swap(one, tokens)
            elif name == "free":
                self.free(one)
            elif not one.is_swapped_out:
                share = len(tokens) * amount // 40
                self.fork(one, tokens[:share]) if name == "fork" else self.truncate(one, tokens, share)

    def write(self, sequence: Sequence, tokens: bytearray, count: int) -> None:
        """Write a number for each new token, another one than for any of the last 250."""
        for place in range(len(tokens), len(tokens) + count):
            self.counter = self.counter % 251 + 1
            for firsts in self.firsts:
                firsts[sequence.pages[place // PAGE], place % PAGE] = self.counter
            tokens.append(self.counter)

    @contextmanager
    def refused(self) -> Iterator[None]:
        """Expect that there are too few pages, and that nothing changes."""
        before = self.state()
        with pytest.raises(OutOfPagesError):
            yield
        assert self.state() == before

    def state(self) -> tuple[object, ...]:
        held = [(list(one.pages), one.num_tokens, one.is_swapped_out) for one, _ in self.contents]
        return held, self.pool.pages.num_free, self.pool.account()

    def begin(self, count: int) -> None:
        if pages_of(count) > self.pool.pages.num_free:
            with self.refused():
                self.pool.new_sequence(count)
            return
        self.contents.append((self.pool.new_sequence(count), bytearray()))
        self.write(*self.contents[-1], count)

    def append(self, indices: set[int], count: int) -> None:
        chosen = [one for index, one in enumerate(self.contents) if index in indices and not one[0].is_swapped_out]
        if self.num_pages_to_append(chosen, count) > self.pool.pages.num_free:
            with self.refused():
                self.pool.append([one for one, _ in chosen], count)
            return
        self.pool.append([one for one, _ in chosen], count)
        for one, tokens in chosen:
            self.write(one, tokens, count)

    def num_pages_to_append(self, chosen: list[tuple[Sequence, bytearray]], count: int) -> int:
        """Count new pages, and a copy for each that writes to a page which another one still holds after it."""
        holders = Counter(page for one, _ in self.contents for page in one.pages)
        needed = sum(pages_of(len(tokens) + count) - pages_of(len(tokens)) for _, tokens in chosen)
        for one, tokens in chosen:
            if count and len(tokens) % PAGE and holders[one.pages[-1]] > 1:
                holders[one.pages[-1]] -= 1
                needed += 1
        return needed

    def fork(self, one: Sequence, tokens: bytearray) -> None:
        self.contents.append((self.pool.fork(one, len(tokens)), tokens))

    def truncate(self, one: Sequence, tokens: bytearray, count: int) -> None:
        self.pool.truncate(one, count)
        del tokens[count:]

    def swap(self, one: Sequence, tokens: bytearray) -> None:
        if not one.is_swapped_out:
            self.pool.swap_out(one)
        elif pages_of(len(tokens)) <= self.pool.pages.num_free:
            self.pool.swap_in(one)
        else:
            with self.refused():
                self.pool.swap_in(one)

    def free(self, one: Sequence) -> None:
        self.contents = [each for each in self.contents if each[0] is not one]
        self.pool.free(one)
        with pytest.raises(PageAccountError):
            self.pool.free(one)

    def check(self) -> None:
        """Assert that each sequence reads what it wrote, and that no page is lost or held too often."""
        held: set[int] = set()
        for one, tokens in self.contents:
            assert one.num_tokens == len(tokens)
            if not one.is_swapped_out:
                assert len(one.pages) == pages_of(len(tokens))
                held.update(one.pages)
                for firsts in self.firsts if tokens else ():
                    assert firsts.take(one.pages, 0).tobytes()[: len(tokens)] == tokens
        assert self.pool.account() == ""
        assert self.pool.pages.num_free == NUM_PAGES - len(held)

    def check_stats(self) -> None:
        """Assert that what the pool says of itself is what the model counts."""
        stats = self.pool.stats()
        holders = Counter(page for one, _ in self.contents for page in one.pages)
        assert stats.num_free == NUM_PAGES - len(holders)
        assert stats.num_shared == sum(count > 1 for count in holders.values())
        assert (stats.num_sequences, stats.num_tokens) == (
            len(self.contents),
            sum(len(tokens) for _, tokens in self.contents),
        )
        num_outside = sum(pages_of(len(tokens)) for one, tokens in self.contents if one.is_swapped_out)
        assert stats.host_bytes == num_outside * self.pool.page_bytes


def pages_of(num_tokens: int) -> int:
    return -(-num_tokens // PAGE)


@settings(max_examples=NUM_RUNS, deadline=None)
@given(st.binary(min_size=3 * NUM_OPERATIONS, max_size=3 * NUM_OPERATIONS))
def test_whatever_is_done_every_sequence_reads_what_it_wrote(drawn: bytes) -> None:
    """Run NUM_RUNS random histories of a pool, checked after each operation; note() prints the smallest that fails."""
    operations = operations_of(drawn)
    note(str(operations))
    both = PoolAndModel()
    for operation in operations:
        both.apply(*operation)
        both.check()
    both.check_stats()
