"""Steps that are replayed give what steps that are run give. On a CPU, a replay runs the step that would be captured."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

from tests.unit.runtime.kv.conftest import DEVICE
from tests.unit.runtime.kv.models import (
    ALL_KINDS,
    MARKS,
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
from ullage.errors import OutOfPagesError, RuntimeMemoryError
from ullage.runtime.kv.decode_graphs import decode_graphs

pytestmark = MARKS


def model_on_device(kind: str, **changes: Any) -> Any:
    return model_of(kind, **changes).to(DEVICE)


@ALL_KINDS
def test_replays_give_the_same_tokens(kind: str) -> None:
    model, ids = model_on_device(kind), ids_of(2, 21).to(DEVICE)
    want = generated(model, ids, dynamic(model), num_new=40)
    cache = paged(model)
    with decode_graphs(model, cache) as graphs:
        assert_same(generated(model, ids, cache, num_new=40), want)
    assert graphs.num_replayed == 39
    assert graphs.num_captured == 2  # 2 pages became 4 on the way; a page more would have been a third
    assert "forward" not in model.__dict__
    assert_clean(cache)


@ALL_KINDS
def test_padding_is_not_seen_by_a_replay(kind: str) -> None:
    model = model_on_device(kind)
    ids, mask = (one.to(DEVICE) for one in padded(20, 3, 11))
    want = generated(model, ids, dynamic(model), attention_mask=mask)
    cache = paged(model)
    with decode_graphs(model, cache) as graphs:
        assert_same(generated(model, ids, cache, attention_mask=mask), want)
    assert graphs.num_replayed == 23
    assert [one.num_tokens for one in cache.batch.sequences] == [20 + 23, 3 + 23, 11 + 23]


def test_beams_are_reordered_between_replays() -> None:
    model, ids = model_on_device("llama"), ids_of(2, 21).to(DEVICE)
    options = {"num_beams": 3, "max_new_tokens": 20, "do_sample": False}
    want = model.generate(ids, past_key_values=dynamic(model), **options)
    cache = paged(model)
    with decode_graphs(model, cache) as graphs:
        assert model.generate(ids, past_key_values=cache, **options).tolist() == want.tolist()
    assert graphs.num_replayed == 19
    assert_clean(cache)


def test_a_chat_mixes_replays_with_prompts_and_crops() -> None:
    model = model_on_device("qwen3")
    first, second = ids_of(2, 9).to(DEVICE), ids_of(2, 7, seed=2).to(DEVICE)
    out = {}
    for name in ("theirs", "ours"):
        cache = paged(model) if name == "ours" else dynamic(model)
        graphs = decode_graphs(model, cache) if name == "ours" else torch.no_grad()  # type: ignore[arg-type]
        with graphs:
            begun = model.generate(first, past_key_values=cache, max_new_tokens=12, do_sample=False)
            longer = torch.cat([begun, second], 1)
            goes_on = model.generate(longer, past_key_values=cache, max_new_tokens=6, do_sample=False)
            cache.crop(-4)
            logits = forward(model, second[:, :1], cache)
        out[name] = (goes_on, logits)
    assert_same(out["ours"], out["theirs"])


def test_a_mask_that_hides_a_token_is_not_replayed() -> None:
    model, ids = model_on_device("llama"), ids_of(1, 12).to(DEVICE)
    mask = torch.ones(1, 13, dtype=torch.long, device=DEVICE)
    mask[0, 5] = 0
    logits = {}
    for name in ("theirs", "ours"):
        cache = paged(model) if name == "ours" else dynamic(model)
        forward(model, ids, cache)
        if name == "theirs":
            logits[name] = forward(model, ids[:, :1], cache, mask)
            continue
        with decode_graphs(model, cache) as graphs:
            logits[name] = forward(model, ids[:, :1], cache, mask)
        assert graphs.num_replayed == 0
    torch.testing.assert_close(logits["ours"], logits["theirs"], rtol=0, atol=0.03)


def test_what_a_replay_does_not_give_is_run_as_before() -> None:
    model, ids = model_on_device("llama"), ids_of(1, 12).to(DEVICE)
    cache = paged(model)
    forward(model, ids, cache)
    with decode_graphs(model, cache) as graphs, torch.no_grad():
        out = model(ids[:, :1], past_key_values=cache, use_cache=True)  # the ids by place
        assert out.logits.shape[1] == 1
        out = model(input_ids=ids[:, :1], past_key_values=cache, use_cache=True, output_hidden_states=True)
        assert len(out.hidden_states) == 3
        assert graphs.num_replayed == 0
        model(input_ids=ids[:, :1], past_key_values=cache, use_cache=True)
        assert graphs.num_replayed == 1
    assert cache.get_seq_length() == 15


def test_logits_stay_what_they_were_after_the_next_replay() -> None:
    model, ids = model_on_device("llama"), ids_of(1, 12).to(DEVICE)
    cache = paged(model)
    forward(model, ids, cache)
    with decode_graphs(model, cache), torch.no_grad():
        one = model(input_ids=ids[:, :1], past_key_values=cache, use_cache=True).logits
        kept = one.clone()
        model(input_ids=ids[:, 1:2], past_key_values=cache, use_cache=True)
    assert torch.equal(one, kept)


def test_too_few_pages_leave_the_cache_as_it_was() -> None:
    model, ids = model_on_device("llama"), ids_of(1, 16).to(DEVICE)
    cache = paged(model, num_pages=1)
    forward(model, ids, cache)
    with decode_graphs(model, cache), torch.no_grad(), pytest.raises(OutOfPagesError):
        model(input_ids=ids[:, :1], past_key_values=cache, use_cache=True)
    assert cache.get_seq_length() == 16
    assert_clean(cache)


def test_a_step_that_fails_is_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    model, ids = model_on_device("llama"), ids_of(1, 12).to(DEVICE)
    cache, fails = paged(model), True
    before = model.model.layers[1].forward

    def broken(*args: Any, **kwargs: Any) -> Any:
        if fails:
            raise ValueError("a layer's own error")
        return before(*args, **kwargs)

    forward(model, ids, cache)
    untouched = copy.deepcopy(cache)
    monkeypatch.setattr(model.model.layers[1], "forward", broken)
    with decode_graphs(model, cache), torch.no_grad():
        with pytest.raises(ValueError, match="own error"):
            model(input_ids=ids[:, :1], past_key_values=cache, use_cache=True)
        assert cache.get_seq_length() == 12
        fails = False
        logits = model(input_ids=ids[:, :1], past_key_values=cache, use_cache=True).logits
    torch.testing.assert_close(logits, forward(model, ids[:, :1], untouched), rtol=0, atol=1e-4)


def test_a_rotary_embedding_that_looks_at_the_length_is_refused() -> None:
    model = model_on_device("llama", rope_parameters={"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10000.0})
    cache = paged(model)
    with pytest.raises(RuntimeMemoryError, match="'dynamic'"):
        decode_graphs(model, cache)


def test_one_cache_is_replayed_once_at_a_time() -> None:
    model = model_on_device("llama")
    cache = paged(model)
    with decode_graphs(model, cache):
        nested = decode_graphs(model, cache)
        with pytest.raises(RuntimeMemoryError, match="replayed already"):
            nested.__enter__()
    with decode_graphs(model, cache):
        pass


def test_a_model_that_always_gives_more_than_logits_is_run_as_before() -> None:
    model, ids = model_on_device("llama"), ids_of(1, 12).to(DEVICE)
    model.config.output_hidden_states = True
    cache = paged(model)
    forward(model, ids, cache)
    with decode_graphs(model, cache) as graphs, torch.no_grad():
        out = model(input_ids=ids[:, :1], past_key_values=cache, use_cache=True)
    assert len(out.hidden_states) == 3
    assert graphs.num_replayed == 0
