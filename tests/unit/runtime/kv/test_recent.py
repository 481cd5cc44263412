"""A sequence's last tokens are read in 16 bits, and the ones before them from pages, whatever the sequence went through."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.runtime.kv.conftest import DEVICE
from tests.unit.runtime.kv.models import assert_clean, dynamic, generated, ids_of, model_of
from ullage.errors import RuntimeMemoryError
from ullage.runtime.kv import KVFormat, KVPool, Sequence, append_kv, decode_attention
from ullage.runtime.kv.decode_graphs import decode_graphs
from ullage.runtime.kv.page_memory import PageMemory
from ullage.runtime.kv.reference import decode_reference
from ullage.runtime.kv.transformers_cache import cache_for

PAGE = 16
HEADS, DIM = 2, 32


def pool_of(kind: str = "int4", recent: int = 2 * PAGE, num_pages: int = 40, **options: Any) -> KVPool:
    form = KVFormat(kind=kind, group_size=32, rotates_keys=True, rotates_values=True)  # type: ignore[arg-type]
    return KVPool(
        num_layers=1,
        num_kv_heads=HEADS,
        head_dim=DIM,
        formats=form,
        page_tokens=PAGE,
        num_pages=num_pages,
        recent_tokens=recent,
        device=DEVICE,
        **options,
    )


def write(pool: KVPool, one: Sequence, k_TKD: torch.Tensor, v_TKD: torch.Tensor) -> None:
    """Append tokens, and write their keys and values to pages and ring."""
    assert pool.recent is not None
    first, count = one.num_tokens, len(k_TKD)
    pool.append([one], count)
    rows = torch.zeros(count, dtype=torch.int32, device=DEVICE)
    places = torch.arange(first, first + count, dtype=torch.int32, device=DEVICE)
    k_TKD, v_TKD = k_TKD.to(DEVICE), v_TKD.to(DEVICE)
    append_kv(k_TKD, v_TKD, pool.layer(0), pool.layouts[0], pool.table([one]), rows, places)
    tables = pool.recent_tables([one])
    append_kv(k_TKD, v_TKD, pool.recent.layer(0), pool.recent.layouts[0], tables.table, rows, places - tables.bases[0])


def attend(pool: KVPool, q_BHD: torch.Tensor, sequences: list[Sequence], **sees: Any) -> torch.Tensor:
    assert pool.recent is not None
    part = pool.recent.part(0, pool.recent_tables(sequences))
    table, lengths = pool.table(sequences), pool.lengths(sequences)
    return decode_attention(q_BHD.to(DEVICE), pool.layer(0), pool.layouts[0], table, lengths, recent=part, **sees).cpu()


def exact(
    q_HD: torch.Tensor, k_TKD: torch.Tensor, v_TKD: torch.Tensor, window: int = 0, softcap: float = 0.0
) -> torch.Tensor:
    """Attend in float64."""
    queries = len(q_HD) // HEADS
    k, v = (x.double()[-window:].repeat_interleave(queries, 1) for x in (k_TKD, v_TKD))
    scores = torch.einsum("hd,thd->ht", q_HD.double(), k) * DIM**-0.5
    if softcap:
        scores = softcap * torch.tanh(scores / softcap)
    return torch.einsum("ht,thd->hd", scores.softmax(-1), v)


def vectors(count: int, heads: int = HEADS, seed: int = 0) -> torch.Tensor:
    return torch.randn(count, heads, DIM, generator=torch.Generator().manual_seed(seed)).half()


@pytest.mark.parametrize("length", [1, 2 * PAGE, 3 * PAGE - 1, 3 * PAGE])
def test_a_sequence_that_its_ring_holds_is_read_in_16_bits(length: int) -> None:
    pool = pool_of()
    one = pool.new_sequence()
    k, v, q = vectors(length), vectors(length, seed=1), vectors(1, 4, seed=2)
    write(pool, one, k, v)
    assert one.recent_from == 0
    pool.layer(0).fill_(0x7F)  # the pages are not read
    torch.testing.assert_close(attend(pool, q, [one])[0].double(), exact(q[0], k, v), rtol=0, atol=0.01)


@pytest.mark.parametrize("softcap", [0.0, 2.0])
@pytest.mark.parametrize("window", [0, 5, 40, 70])
@pytest.mark.parametrize("length", [3 * PAGE + 1, 5 * PAGE, 100])
def test_kernels_join_pages_and_rings(length: int, window: int, softcap: float) -> None:
    pool = pool_of("int8")
    sequences = [pool.new_sequence(), pool.new_sequence()]
    keys = [vectors(length), vectors(length // 3, seed=5)]
    values = [vectors(length, seed=1), vectors(length // 3, seed=6)]
    q = vectors(2, 4, seed=2)
    for one, k, v in zip(sequences, keys, values, strict=True):
        for begin in range(0, len(k), 7):
            write(pool, one, k[begin : begin + 7], v[begin : begin + 7])
    out = attend(pool, q, sequences, window=window, softcap=softcap)
    for row in range(2):
        want = exact(q[row], keys[row], values[row], window, softcap)
        torch.testing.assert_close(out[row].double(), want, rtol=0, atol=0.03)
    assert pool.recent is not None
    part = pool.recent.part(0, pool.recent_tables(sequences))
    args = (q.to(DEVICE), pool.layer(0), pool.layouts[0], pool.table(sequences), pool.lengths(sequences))
    want = decode_reference(*args, scale=DIM**-0.5, softcap=softcap, window=window, recent=part)
    torch.testing.assert_close(out, want.cpu(), rtol=0, atol=0.005)


def test_recent_tokens_are_nearer_to_the_truth() -> None:
    k, v, q = vectors(90), vectors(90, seed=1), vectors(1, 4, seed=2)
    errors = []
    for recent in (PAGE, 4 * PAGE):
        pool = pool_of(recent=recent)
        one = pool.new_sequence()
        write(pool, one, k, v)
        errors.append(float((attend(pool, q, [one])[0].double() - exact(q[0], k, v)).norm()))
    assert errors[1] < 0.7 * errors[0]


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["append", "append", "truncate", "fork", "free", "swap"]), st.integers(0, 7), st.integers(0, 60)
    ),
    max_size=25,
)


@settings(max_examples=150, deadline=None)
@given(STEPS)
def test_a_ring_holds_what_it_says_whatever_happens(steps: list[tuple[str, int, int]]) -> None:
    """Each token is a number: it is written where the tables say, and read back from there."""
    pool = pool_of("int8", recent=PAGE, num_pages=60, max_sequences=4)
    recent = pool.recent
    assert recent is not None
    held: list[tuple[Sequence, list[int]]] = []
    counter = 0
    for name, which, amount in steps:
        if name == "append" and not held:
            held.append((pool.new_sequence(), []))
        if not held:
            continue
        one, tokens = held[which % len(held)]
        try:
            if name == "append":
                new = list(range(counter, counter + amount % 20))
                counter += len(new)
                pool.append([one], len(new))
                tables = pool.recent_tables([one])
                for place, value in enumerate(new, len(tokens)):
                    at = place - int(tables.bases[0])
                    if at >= 0:
                        page = int(tables.table[0, at // PAGE])
                        recent.layer(0)[page].view(torch.int32)[at % PAGE] = value
                tokens += new
            elif name == "truncate":
                kept = min(amount, len(tokens))
                pool.truncate(one, kept)
                del tokens[kept:]
            elif name == "fork":
                kept = min(amount, len(tokens))
                held.append((pool.fork(one, kept), tokens[:kept]))
            elif name == "free":
                pool.free(one)
                held = [pair for pair in held if pair[0] is not one]
            elif name == "swap":
                pool.swap_out(one)
                pool.swap_in(one)
        except RuntimeMemoryError:
            pass
        for one, tokens in held:
            tables = pool.recent_tables([one])
            begin, base = int(tables.ends[0]), int(tables.bases[0])
            assert int(tables.begins[0]) == begin - base
            assert int(tables.lengths[0]) == len(tokens) - base
            got = [
                int(
                    recent.layer(0)[int(tables.table[0, (place - base) // PAGE])].view(torch.int32)[
                        (place - base) % PAGE
                    ]
                )
                for place in range(begin, len(tokens))
            ]
            assert got == tokens[begin:]
    for one, _ in held:
        pool.free(one)
    recent.check(4)


def test_growing_by_tokens_holds_at_least_as_many_as_asked() -> None:
    pool = pool_of(recent=2 * PAGE)
    one = pool.new_sequence()
    for count in range(1, 150):
        pool.append([one])
        assert one.num_tokens - one.recent_from >= min(count, 2 * PAGE)


def test_too_few_rings_are_an_error_that_changes_nothing() -> None:
    pool = pool_of(max_sequences=2)
    one = pool.new_sequence(20)
    other = pool.fork(one)
    before = pool.stats()
    for attempt in (lambda: pool.fork(one), lambda: pool.new_sequence(3)):
        with pytest.raises(RuntimeMemoryError, match="all but 0 of 2 rings"):
            attempt()
    assert pool.stats() == before
    pool.swap_out(other)
    third = pool.new_sequence(3)
    with pytest.raises(RuntimeMemoryError, match="rings"):
        pool.swap_in(other)
    pool.free(third)
    pool.swap_in(other)
    assert pool.account() == ""


def test_figures_out_of_range_are_refused() -> None:
    with pytest.raises(ValueError, match="multiple of the 16 tokens"):
        pool_of(recent=PAGE + 1)
    with pytest.raises(ValueError, match="max_sequences is 0"):
        pool_of(max_sequences=0)
    plain = KVPool(num_layers=1, num_kv_heads=1, head_dim=16, page_tokens=PAGE, num_pages=2, device="cpu")
    with pytest.raises(ValueError, match="without recent_tokens"):
        plain.recent_tables([])


@pytest.mark.parametrize("part", ["pages", "ring"])
def test_a_copy_that_fails_takes_no_page_and_no_ring(monkeypatch: pytest.MonkeyPatch, part: str) -> None:
    pool = pool_of(max_sequences=2)
    one = pool.new_sequence(40)
    calls: list[int] = []

    def fails_at(number: int, real: Any) -> Any:
        def copied(self: Any, *args: Any) -> Any:
            calls.append(1)
            if len(calls) == number:
                raise torch.OutOfMemoryError("no memory for a copy")
            return real(self, *args)

        return copied

    number = 1 if part == "pages" else 2
    for name, act, swapped in (("to_host", pool.swap_out, False), ("from_host", pool.swap_in, True)):
        calls.clear()
        before = pool.stats()
        with monkeypatch.context() as patch:
            patch.setattr(PageMemory, name, fails_at(number, getattr(PageMemory, name)))
            with pytest.raises(torch.OutOfMemoryError):
                act(one)
        assert one.is_swapped_out == swapped
        assert pool.stats().num_free == before.num_free
        assert pool.account() == ""
        act(one)
    assert pool.recent is not None
    pool.free(one)
    pool.recent.check(2)


@pytest.mark.filterwarnings("ignore:`past_key_values` is deprecated:FutureWarning")
@pytest.mark.usefixtures("one_thread", "plain_pytorch")
@pytest.mark.parametrize("kind", ["llama", "mistral", "gemma2"])
def test_a_model_generates_nearer_to_16_bits(kind: str) -> None:
    model, ids = model_of(kind).to(DEVICE), ids_of(2, 21).to(DEVICE)
    want = generated(model, ids, dynamic(model), num_new=8)
    errors = []
    for recent in (0, PAGE, 4 * PAGE):
        cache = cache_for(model, "int4", num_pages=40, page_tokens=PAGE, recent_tokens=recent)
        with decode_graphs(model, cache):
            got = generated(model, ids, cache, num_new=2)
        errors.append(float((got[1][:, 1] - want[1][:, 1]).norm()))  # the second token's: the first reads no pages
        assert_clean(cache)
    assert errors[2] < 0.1 * errors[0]  # a float32 model, and bf16 in the ring
    assert errors[1] < errors[0]


@pytest.mark.filterwarnings("ignore:`past_key_values` is deprecated:FutureWarning")
@pytest.mark.usefixtures("one_thread", "plain_pytorch")
def test_beams_that_find_no_ring_leave_no_sequence_behind() -> None:
    model, ids = model_of("llama").to(DEVICE), ids_of(2, 21).to(DEVICE)
    options = {"num_beams": 2, "max_new_tokens": 12, "do_sample": False}
    cache = cache_for(model, "int8", num_pages=40, page_tokens=PAGE, recent_tokens=PAGE, max_sequences=8)
    model.generate(ids, past_key_values=cache, **options)
    assert_clean(cache)
    small = cache_for(model, "int8", num_pages=40, page_tokens=PAGE, recent_tokens=PAGE, max_sequences=3)
    with pytest.raises(RuntimeMemoryError, match="rings"):
        model.generate(ids, past_key_values=small, **options)
    assert_clean(small)
