"""Models generate from pages what they generate from transformers' own cache.

The models are tiny and random, in float32, with keys and values stored as float16 where nothing else is said: rounding is
then all that differs.
"""

from __future__ import annotations

import copy
import gc
import importlib
import sys
import weakref

import pytest
import torch
import transformers

from tests.unit.runtime.kv.models import (
    ALL_KINDS,
    LOGIT_ERROR,
    MARKS,
    PAGE,
    assert_clean,
    assert_same,
    dynamic,
    forward,
    generated,
    ids_of,
    model_of,
    padded,
    paged,
)
from ullage.errors import OutOfPagesError, RuntimeMemoryError, UllageError
from ullage.runtime.kv import KVFormat, paged_layer, transformers_cache
from ullage.runtime.kv.transformers_cache import cache_for

pytestmark = MARKS


@pytest.fixture
def nothing_is_read_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a test fail where keys and values are taken out of pages other than by attention."""
    monkeypatch.setattr(paged_layer, "read_reference", None)


@ALL_KINDS
def test_greedy_generation_reads_pages_only_and_gives_the_same_tokens(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, ids = model_of(kind), ids_of(2, 20)
    expected = generated(model, ids, dynamic(model))
    cache = paged(model)
    monkeypatch.setattr(paged_layer, "read_reference", None)  # nothing is read back
    assert_same(generated(model, ids, cache), expected)
    assert cache.get_seq_length() == 20 + 24 - 1
    assert cache.pool.stats().num_tokens == 2 * (20 + 24 - 1)
    assert_clean(cache)


@ALL_KINDS
def test_padding_is_neither_stored_nor_seen(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, (ids, mask) = model_of(kind), padded(20, 3, 11)
    expected = generated(model, ids, dynamic(model), attention_mask=mask)
    cache = paged(model)
    monkeypatch.setattr(paged_layer, "read_reference", None)
    assert_same(generated(model, ids, cache, attention_mask=mask), expected)
    assert [one.num_tokens for one in cache.batch.sequences] == [20 + 23, 3 + 23, 11 + 23]
    assert_clean(cache)


@ALL_KINDS
def test_beams_share_pages_and_give_the_same_tokens(kind: str) -> None:
    model, (ids, mask) = model_of(kind), padded(18, 9)
    options = {"num_beams": 3, "num_return_sequences": 2, "attention_mask": mask}
    expected, _ = generated(model, ids, dynamic(model), **options)
    cache = paged(model)
    found, _ = generated(model, ids, cache, **options)
    assert found.tolist() == expected.tolist()
    assert cache.pool.account() == ""
    assert cache.pool.stats().num_shared > 0
    assert_clean(cache)


@ALL_KINDS
def test_a_chat_goes_on_with_what_is_held(kind: str, nothing_is_read_back: None) -> None:
    model, (ids, mask) = model_of(kind), padded(20, 13)
    caches = [dynamic(model), paged(model)]
    turns = [generated(model, ids, cache, num_new=10, attention_mask=mask) for cache in caches]
    assert_same(*turns)
    more = torch.cat([turns[0][0], ids_of(2, 7, seed=2)], 1)
    seen = torch.cat([mask, torch.ones(2, 17, dtype=torch.long)], 1)
    assert_same(*[generated(model, more, cache, num_new=12, attention_mask=seen) for cache in caches])
    assert_clean(caches[1])


@ALL_KINDS
def test_what_is_cropped_is_forgotten(kind: str) -> None:
    model, (ids, mask) = model_of(kind), padded(20, 13)
    logits = []
    for cache in (dynamic(model), paged(model)):
        cache.activate_past_recording()
        forward(model, ids, cache, mask)
        cache.crop(-3)
        assert cache.get_seq_length() == 17
        steps = []
        for num_new in (1, 5, 1):
            more = torch.ones(2, cache.get_seq_length() + num_new, dtype=torch.long)
            more[:, :20] = mask[:, : more.shape[1]]
            more[:, 17:] = 1
            steps.append(forward(model, ids_of(2, num_new, seed=num_new), cache, more))
        logits.append(torch.cat(steps, 1))
    torch.testing.assert_close(logits[0], logits[1], rtol=0, atol=LOGIT_ERROR)
    assert_clean(cache)


@pytest.mark.parametrize("kind", ["llama", "mistral", "gemma2"])
def test_assisted_decoding_gives_the_same_tokens(kind: str, nothing_is_read_back: None) -> None:
    model, ids = model_of(kind), ids_of(1, 12)
    assistant = model_of("llama", num_hidden_layers=1)
    expected, _ = generated(model, ids, dynamic(model))
    for how in ({"assistant_model": assistant}, {"prompt_lookup_num_tokens": 3}):
        cache = paged(model)
        found, _ = generated(model, ids, cache, **how)
        assert found.tolist() == expected.tolist()
        assert_clean(cache)


def test_a_prompt_in_chunks_gives_the_same_tokens(nothing_is_read_back: None) -> None:
    model, ids = model_of("gemma3"), ids_of(1, 20)
    cache = paged(model)
    assert_same(generated(model, ids, cache, prefill_chunk_size=6), generated(model, ids, dynamic(model)))
    assert_clean(cache)


def test_attention_weights_are_there_where_they_are_asked_for() -> None:
    model, ids = model_of("llama"), ids_of(1, 6)
    model.set_attn_implementation("eager")
    weights = []
    for cache in (dynamic(model), paged(model)):
        forward(model, ids, cache)
        with torch.no_grad():
            out = model(ids_of(1, 1, seed=2), past_key_values=cache, output_attentions=True)
        weights.append(out.attentions)
    torch.testing.assert_close(weights[0], weights[1], rtol=0, atol=0.005)


def test_holes_in_a_mask_are_seen_to() -> None:
    """Padding between turns: a window then counts columns that no page holds, so the history is read back."""
    model = model_of("mistral")
    ids, mask = ids_of(2, 12), torch.ones(2, 12, dtype=torch.long)
    mask[1, 4:9] = 0
    steps = []
    for cache in (dynamic(model), paged(model)):
        logits = [forward(model, ids, cache, mask)[:, -1:]]
        for num_new in range(1, 6):
            seen = torch.cat([mask, torch.ones(2, num_new, dtype=torch.long)], 1)
            logits.append(forward(model, ids_of(2, 1, seed=num_new), cache, seen))
        steps.append(torch.cat(logits, 1))
    torch.testing.assert_close(steps[0], steps[1], rtol=0, atol=LOGIT_ERROR)


def test_a_mask_of_ones_does_not_bring_padding_back() -> None:
    model, (ids, mask) = model_of("llama"), padded(9, 4)
    more = ids_of(2, 3, seed=2)
    positions = torch.tensor([[9, 10, 11], [4, 5, 6]])
    logits = []
    for seen in (torch.cat([mask, torch.ones(2, 3, dtype=torch.long)], 1), torch.ones(2, 12, dtype=torch.long)):
        cache = paged(model)
        forward(model, ids, cache, mask)
        with torch.no_grad():
            out = model(more, past_key_values=cache, attention_mask=seen, position_ids=positions)
        logits.append(out.logits)
    torch.testing.assert_close(logits[0], logits[1])


def test_fewer_bits_cost_more_and_8_nearly_nothing() -> None:
    model, ids = model_of("llama", head_dim=32), ids_of(2, 40)
    expected = generated(model, ids, dynamic(model), num_new=20)
    follow = expected[0][:, 40:]
    errors = {}
    for form in ("fp16", "bf16", "int8", "int4"):
        cache = paged(model, form)
        forward(model, ids, cache)
        logits = torch.cat([forward(model, follow[:, at : at + 1], cache) for at in range(19)], 1)
        errors[form] = ((logits - expected[1][:, 1:]).norm() / expected[1][:, 1:].norm()).item()
        assert_clean(cache)
    assert errors["fp16"] < errors["bf16"] < errors["int8"] < errors["int4"]
    assert errors["fp16"] < 0.002
    assert errors["int8"] < 0.03
    assert errors["int4"] < 0.4


def test_a_bf16_model_over_bf16_pages_differs_by_its_own_rounding_only() -> None:
    model, ids = model_of("qwen3").bfloat16(), ids_of(2, 20)
    expected = generated(model, ids, dynamic(model))
    cache = paged(model, "bf16")
    follow = expected[0][:, 20:]
    forward(model, ids, cache)
    logits = torch.cat([forward(model, follow[:, at : at + 1], cache) for at in range(23)], 1)
    assert (logits - expected[1][:, 1:]).norm() < 0.02 * expected[1].norm()


def test_each_layer_may_have_its_own_format() -> None:
    model = model_of("llama")
    cache = paged(model, ["int4", KVFormat.named("fp16")])
    assert [layout.format.kind for layout in cache.pool.layouts] == ["int4", "fp16"]
    assert generated(model, ids_of(1, 9), cache, num_new=4)[0].shape == (1, 13)
    with pytest.raises(ValueError, match="3 formats for 2 layers"):
        cache_for(model, ["int4"] * 3)


@pytest.mark.with_kernels
def test_kernels_give_the_same_tokens() -> None:
    model, (ids, mask) = model_of("gemma2"), padded(10, 5)
    expected = generated(model, ids, dynamic(model), num_new=3, attention_mask=mask)
    cache = paged(model)
    assert_same(generated(model, ids, cache, num_new=3, attention_mask=mask), expected)
    assert_clean(cache)


def test_too_few_pages_are_an_error_that_leaves_the_cache_as_it_was() -> None:
    model, ids = model_of("llama"), ids_of(1, 30)
    cache = paged(model, num_pages=2)
    with pytest.raises(OutOfPagesError, match="1 more tokens in 1 sequences needs 1, 0 of 2 are free"):
        generated(model, ids, cache)
    assert (cache.get_seq_length(), cache.pool.account()) == (32, "")
    cache.crop(-2)
    torch.testing.assert_close(
        forward(model, ids_of(1, 1), cache)[:, -1],
        forward(model, torch.cat([ids, ids_of(1, 1)], 1), None)[:, -1],
        rtol=0,
        atol=LOGIT_ERROR,
    )
    assert_clean(cache)
    with pytest.raises(OutOfPagesError):
        forward(model, ids_of(3, 30), cache)
    assert cache.pool.stats().num_sequences == 0
    assert forward(model, ids, cache).shape == (1, 30, 97)  # another batch size: nothing was begun


def test_a_pass_that_stopped_half_way_is_noticed_and_can_be_cropped() -> None:
    model, ids = model_of("llama"), ids_of(1, 6)
    cache = paged(model)
    expected = forward(model, ids_of(1, 4), dynamic(model))
    forward(model, ids_of(1, 4)[:, :2], cache)
    hook = model.model.layers[1].register_forward_pre_hook(lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        forward(model, ids, cache)
    hook.remove()
    with pytest.raises(RuntimeMemoryError, match="stopped half way"):
        forward(model, ids, cache)
    cache.crop(2)
    found = forward(model, ids_of(1, 4)[:, 2:], cache)
    torch.testing.assert_close(found, expected[:, 2:], rtol=0, atol=LOGIT_ERROR)
    assert_clean(cache)


def test_pages_go_back_when_the_cache_is_collected() -> None:
    model = model_of("llama")
    cache = paged(model)
    generated(model, ids_of(2, 20), cache, num_new=4)
    pool, gone = cache.pool, weakref.ref(cache)
    assert pool.stats().num_sequences == 2
    del cache
    gc.collect()
    assert gone() is None
    assert (pool.stats().num_free, pool.account()) == (40, "")


def test_a_copy_shares_pages_until_one_of_the_two_writes() -> None:
    model, ids = model_of("llama"), ids_of(1, PAGE + 3)
    cache = paged(model)
    forward(model, ids, cache)
    other = copy.deepcopy(cache)
    assert other.pool is cache.pool
    assert cache.pool.stats().num_shared == 2
    forward(model, ids_of(1, 5, seed=2), cache)
    expected = forward(model, torch.cat([ids, ids_of(1, 1)], 1), None)[:, -1:]
    torch.testing.assert_close(forward(model, ids_of(1, 1), other), expected, rtol=0, atol=LOGIT_ERROR)
    other.reset()
    assert_clean(cache)


def test_sequences_are_repeated_and_selected_by_sharing_pages() -> None:
    model, (ids, mask) = model_of("qwen2"), padded(20, 6)
    logits = []
    for cache in (dynamic(model), paged(model)):
        forward(model, ids, cache, mask)
        cache.batch_repeat_interleave(2)
        cache.batch_select_indices(torch.tensor([3, 0, 2]))
        seen = torch.cat([mask[[1, 0, 1]], torch.ones(3, 1, dtype=torch.long)], 1)
        logits.append(forward(model, ids_of(3, 1, seed=2), cache, seen))
    torch.testing.assert_close(logits[0], logits[1], rtol=0, atol=LOGIT_ERROR)
    cache.batch_select_indices(torch.tensor([False, True, False]))
    assert cache.batch_size == 1
    assert cache.pool.stats().num_tokens == 21
    assert_clean(cache)


@ALL_KINDS
def test_a_model_with_our_attention_does_as_before_with_other_caches(kind: str) -> None:
    model, (ids, mask) = model_of(kind), padded(20, 7)
    before = generated(model, ids, dynamic(model), attention_mask=mask)
    paged(model)
    assert model.config._attn_implementation.startswith("ullage_paged_")
    after = generated(model, ids, dynamic(model), attention_mask=mask)
    assert after[0].tolist() == before[0].tolist()
    assert torch.equal(after[1], before[1])


def test_a_cache_that_the_model_went_past_is_noticed() -> None:
    model = model_of("llama")
    cache = paged(model)
    model.set_attn_implementation("sdpa")
    forward(model, ids_of(1, 4), cache)
    with pytest.raises(RuntimeMemoryError, match="its attention implementation was changed; make the cache again"):
        forward(model, ids_of(1, 1), cache)


def test_another_batch_size_needs_a_reset() -> None:
    model = model_of("llama")
    cache = paged(model)
    forward(model, ids_of(2, 4), cache)
    with pytest.raises(RuntimeMemoryError, match=r"holds 2 sequences, the model runs 3: reset\(\) it first"):
        forward(model, ids_of(3, 4), cache)
    cache.reset()
    forward(model, ids_of(3, 4), cache)
    assert cache.batch_size == 3


def test_another_models_vectors_are_refused() -> None:
    cache = paged(model_of("llama"))
    other = model_of("qwen3")
    paged(other)
    with pytest.raises(RuntimeMemoryError, match="layer 0 has 2 KV heads of 32 on cpu, the pages 2 of 16 on cpu"):
        forward(other, ids_of(1, 4), cache)


def test_models_that_cannot_be_served_are_refused_with_the_reason() -> None:
    model = model_of("llama")
    model.set_attn_implementation("flex_attention")
    with pytest.raises(RuntimeMemoryError, match=r"call model.set_attn_implementation\('sdpa'\), or 'eager', first"):
        cache_for(model)
    sizes = {"d_model": 16, "d_kv": 16, "d_ff": 16, "num_layers": 1, "num_heads": 1, "vocab_size": 16}
    with pytest.raises(RuntimeMemoryError, match="has cross attention"):
        cache_for(transformers.T5ForConditionalGeneration(transformers.T5Config(**sizes)))
    hybrid = model_of("qwen3", layer_types=["full_attention", "linear_attention"])
    with pytest.raises(RuntimeMemoryError, match="layer 1 of Qwen3ForCausalLM keeps a LinearAttentionLayer"):
        cache_for(hybrid)
    with pytest.raises(ValueError, match="give either max_tokens or num_pages"):
        cache_for(model_of("llama"), max_tokens=3, num_pages=3)


def test_the_size_is_in_tokens_or_pages_or_the_models_positions() -> None:
    model = model_of("llama")
    pools = [cache_for(model, "int4", **size).pool for size in ({}, {"max_tokens": 65}, {"num_pages": 7})]
    assert [pool.stats().num_pages for pool in pools] == [256 // 64, 2, 7]
    assert pools[0].layouts[0].format == KVFormat.named("int4")


def test_without_transformers_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    monkeypatch.delitem(sys.modules, transformers_cache.__name__)
    with pytest.raises(UllageError, match=r"needs transformers 5.24 or newer .*: pip install 'ullage\[transformers\]'"):
        importlib.import_module(transformers_cache.__name__)
