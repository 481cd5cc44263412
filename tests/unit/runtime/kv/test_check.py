"""What a check says of small random models whose attention matters: no GPU, no weights from elsewhere."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import pytest
import torch
import transformers
from benchmarks.kv_accuracy import plant_outlier

from ullage.runtime.kv.check import check
from ullage.runtime.kv.check.model import reference_format, rounded, rounding_cache, run_chunk, token_batches
from ullage.runtime.kv.check.result import FormatLoss, Loss, LossBudget
from ullage.runtime.kv.check.text import format_label
from ullage.runtime.kv.formats import KVFormat, PageLayout
from ullage.runtime.kv.reference import append_reference, read_reference

WORDS, TOKENS = 61, 96
PLAIN_INT4 = KVFormat(kind="int4")
CPU = torch.device("cpu")


def tiny_model(*, seed: int = 0, **changes: Any) -> Any:
    """A model of two layers whose weights are large enough for attention to pick."""
    shape = {
        "vocab_size": WORDS,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "bos_token_id": None,
        "eos_token_id": None,
    }
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**(shape | changes)))
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() == 2:
                weight.copy_(torch.randn(weight.shape, generator=generator) * 1.5 * weight.shape[1] ** -0.5)
    return model


def rows(count: int = 3, length: int = TOKENS, seed: int = 1) -> list[list[int]]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(WORDS, (count, length), generator=generator).tolist()


def by_label(formats: tuple[FormatLoss, ...]) -> dict[str, Loss]:
    return {format_label(one.format): one.loss for one in formats}


KL_ONLY = LossBudget(perplexity_rise=None, kl=0.05)


def test_sixteen_bits_change_nothing_and_fewer_bits_change_more() -> None:
    found = check(tiny_model(), rows(), formats=["bf16", "int8", "int4"], budget=KL_ONLY)
    losses = by_label(found.formats)
    assert losses["bf16"] == replace(
        losses["bf16"], perplexity=found.perplexity, perplexity_rise=0, rise_error=0, kl=0, top1_agreement=1
    )
    assert 0 < losses["int8"].kl < losses["int4"].kl / 10
    for layer in found.layers:
        none, small, large = layer.errors
        assert (none.output_error, none.key_error, none.value_error, none.num_lost_channels) == (0, 0, 0, 0)
        assert 0 < small.output_error < large.output_error / 4
        assert 0 < small.key_error < large.key_error / 4
    assert found.num_tokens == 3 * (TOKENS - 1)


def test_chunks_padding_and_company_change_nothing() -> None:
    model, texts = tiny_model(), [*rows(2), rows(1, 40, seed=2)[0], rows(1, 7, seed=3)[0]]
    options: dict[str, Any] = {"formats": ["int4"], "budget": LossBudget(perplexity_rise=None, kl=9.0)}
    whole = check(model, texts, chunk_tokens=4096, **options)
    for chunk in (13, 200):
        parts = check(model, texts, chunk_tokens=chunk, **options)
        assert parts.num_tokens == whole.num_tokens == 2 * 95 + 39 + 6
        assert parts.perplexity == pytest.approx(whole.perplexity, rel=1e-4)
        assert parts.formats[0].loss.kl == pytest.approx(whole.formats[0].loss.kl, rel=0.02)
        assert parts.layers[1].errors[0].output_error == pytest.approx(whole.layers[1].errors[0].output_error, rel=0.02)
    tensors = [torch.tensor(texts[:2]), torch.tensor(texts[2]), texts[3]]
    assert check(model, tensors, chunk_tokens=4096, **options) == whole


def test_a_whole_text_at_once_is_what_decoding_token_by_token_gives() -> None:
    model, form = tiny_model().eval(), KVFormat.named("int4")
    ids = torch.tensor(rows(1, 24))
    with torch.no_grad():
        whole = run_chunk(model, ids, rounding_cache(model, lambda _: form))
        cache = rounding_cache(model, lambda _: form)
        single = torch.cat([run_chunk(model, ids[:, at : at + 1], cache) for at in range(24)], 1)
    torch.testing.assert_close(single, whole, rtol=1e-3, atol=1e-3)
    assert cache.get_seq_length() == 24


@pytest.mark.parametrize("form", [PLAIN_INT4, KVFormat.named("int4"), KVFormat.named("fp8"), KVFormat.named("int8")])
def test_what_a_cache_keeps_is_what_a_page_gives_back(form: KVFormat) -> None:
    k_TKD, v_TKD = torch.randn(2, 20, 3, 32, generator=torch.Generator().manual_seed(0)).bfloat16()
    layout = PageLayout(format=form, num_kv_heads=3, head_dim=32, page_tokens=16)
    pages, table = torch.zeros(2, layout.page_bytes, dtype=torch.uint8), torch.tensor([[1, 0]], dtype=torch.int32)
    places = torch.arange(20, dtype=torch.int32)
    append_reference(k_TKD, v_TKD, pages, layout, table, torch.zeros_like(places), places)
    for x_TKD, page_TKD, rotate in zip(
        (k_TKD, v_TKD),
        read_reference(pages, layout, table[0], 0, 20),
        (form.rotates_keys, form.rotates_values),
        strict=True,
    ):
        kept_BKTD = rounded(x_TKD.transpose(0, 1)[None], form, rotate=rotate)
        assert torch.equal(kept_BKTD[0].transpose(0, 1), page_TKD.bfloat16())


def test_a_planted_channel_is_named_refused_without_rotation_and_borne_with_it() -> None:
    model = tiny_model()
    formats = [PLAIN_INT4, KVFormat.named("int4")]
    usual = check(model, rows(), formats=formats, budget=KL_ONLY)
    plant_outlier(model, layer=1, head=1, channel=7, times=32.0)
    found = check(model, rows(), formats=formats, budget=KL_ONLY)
    assert found.perplexity == pytest.approx(usual.perplexity, rel=1e-5)
    top, second = found.layers[1].largest_channels[:2]
    assert {(top.head, top.channel), (second.head, second.channel)} == {(1, 7), (1, 7 + 16)}
    assert top.times_median > 10 > max(one.times_median for one in found.layers[0].largest_channels)
    plain, turned = found.layers[1].errors
    assert plain.num_lost_channels > 20
    assert plain.output_error > 2 * turned.output_error
    budget = LossBudget(perplexity_rise=None, kl=math.sqrt(found.formats[0].loss.kl * found.formats[1].loss.kl))
    assert found.formats[0].loss.kl > 1.5 * found.formats[1].loss.kl
    again = check(model, rows(), formats=formats, budget=budget)
    assert [one.verdict for one in again.formats] == ["unsafe", "safe"]
    text = str(again)
    assert text.startswith("int4 is safe: ")
    assert "int4 without rotation is not: " in text
    assert f"key channel {top.channel} of head 1" in " ".join(text.split())
    assert max(map(len, text.splitlines())) <= 80
    alone = check(model, rows(), formats=[PLAIN_INT4], budget=LossBudget(perplexity_rise=None, kl=1e-9))
    assert not alone.advice.is_safe
    assert str(alone).startswith("No: no format is safe within the budget (KL 1e-09).")
    assert alone.advice.formats == (KVFormat(),) * 2


def test_a_mixture_raises_the_layer_that_suffers() -> None:
    model = tiny_model(num_hidden_layers=3)
    plant_outlier(model, layer=2, head=0, channel=4, times=64.0)
    plant_outlier(model, layer=2, head=1, channel=9, times=64.0)
    formats = [PLAIN_INT4, KVFormat.named("int8")]
    first = check(model, rows(), formats=formats, budget=LossBudget(perplexity_rise=None, kl=1e-9))
    kl = {(one.layer, one.format.kind): one.kl for one in first.sensitivities}
    assert len(kl) == 6
    assert kl[2, "int4"] > 1.5 * max(kl[0, "int4"], kl[1, "int4"])
    limit = 0.5 * (first.formats[0].loss.kl + kl[0, "int4"] + kl[1, "int4"])
    said: list[str] = []
    found = check(
        model, rows(), formats=formats, budget=LossBudget(perplexity_rise=None, kl=limit), progress=said.append
    )
    assert found.advice.is_safe
    assert [one.kind for one in found.advice.formats] == ["int4", "int4", "int8"]
    assert 0 < found.advice.loss.kl <= limit < found.formats[0].loss.kl
    # 2 of K and V, 2 heads; a vector of 32 takes 16 + 4 bytes in int4, 32 + 4 in int8, 64 in 16 bits
    assert found.advice.bytes_per_token == 4 * (20 + 20 + 36)
    assert found.advice.reference_bytes_per_token == 3 * 4 * 64
    assert found.advice.reason.startswith("A mixture is safe, int8 in layer 2, int4 without rotation in the other 2: ")
    assert said[:3] == ["layers", "int4 without rotation, int8", "each layer alone"]


def test_too_little_text_is_told_from_a_bad_format() -> None:
    loss = Loss(num_tokens=120, perplexity=4.0, perplexity_rise=0.004, rise_error=0.01, kl=0.001, top1_agreement=0.99)
    assert LossBudget().verdict(loss) == "unsure"
    assert LossBudget().verdict(replace(loss, rise_error=0.001)) == "safe"
    assert LossBudget().verdict(replace(loss, perplexity_rise=math.nan)) == "unsafe"
    assert LossBudget(top1_agreement=0.995).verdict(loss) == "unsafe"
    with pytest.raises(ValueError, match="at least one of"):
        LossBudget(perplexity_rise=None)


def test_short_empty_and_unreadable_texts_are_refused() -> None:
    model = tiny_model()
    for texts, count in (([], 0), ([[]], 0), ([[5]] * 500, 0), ([[1, 2, 3]] * 4, 8)):
        with pytest.raises(ValueError, match=f"the texts have {count} tokens to foretell: give at least 100"):
            check(model, texts)
    with pytest.raises(ValueError, match="give the model's tokenizer too"):
        check(model, ["some text"])
    with pytest.raises(ValueError, match="texts is one string"):
        check(model, "some text")


def test_strings_go_through_the_tokenizer() -> None:
    def tokenizer(text: str) -> dict[str, list[int]]:
        return {"input_ids": [ord(letter) % WORDS for letter in text]}

    batches = token_batches(["abc" * 50, "", "xy"], tokenizer, context_tokens=64, chunk_tokens=128, device=CPU)
    assert [one.ids.shape for one in batches] == [(2, 64), (2, 22)]
    assert [one.lengths.tolist() for one in batches] == [[64, 64], [22, 2]]
    assert batches[1].ids[1].tolist() == [ord("x") % WORDS, ord("y") % WORDS] + [0] * 20


def test_texts_are_cut_to_what_the_model_was_made_for() -> None:
    shape = {"vocab_size": WORDS, "bos_token_id": None, "eos_token_id": None, "n_positions": 32}
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(n_embd=64, n_layer=1, n_head=2, **shape))
    found = check(
        model, rows(2), formats=["int8"], budget=KL_ONLY
    )  # its positions end at 32: one more is an IndexError
    assert found.num_tokens == 2 * (TOKENS - 3)


def test_the_model_is_left_as_it_was() -> None:
    model = tiny_model(attention_dropout=0.5).train()
    model.model.layers[0].eval()
    first = check(model, rows(), formats=["int4"], budget=KL_ONLY)
    assert first == check(model, rows(), formats=["int4"], budget=KL_ONLY)
    assert model.training
    assert not model.model.layers[0].training
    assert not any(one._forward_hooks or one._forward_pre_hooks for one in model.modules())
    assert all(one.grad is None for one in model.parameters())


def test_other_shapes_of_models_are_checked_too() -> None:
    shape = {"vocab_size": WORDS, "bos_token_id": None, "eos_token_id": None}
    gpt2 = transformers.GPT2LMHeadModel(transformers.GPT2Config(n_embd=64, n_layer=2, n_head=2, **shape)).half()
    assert reference_format(gpt2).kind == "fp16"
    window = transformers.MistralConfig(
        hidden_size=64, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
        head_dim=16, sliding_window=24, **shape,
    )  # fmt: skip
    mistral = transformers.MistralForCausalLM(window).bfloat16()
    for model in (gpt2, mistral):
        found = check(model, rows(), formats=[reference_format(model), "int8"], budget=KL_ONLY, chunk_tokens=40)
        assert [one.layer for one in found.layers] == [0, 1]
        assert found.formats[0].loss.kl == 0 < found.formats[1].loss.kl
        assert all(one.errors[0].output_error == 0 < one.errors[1].output_error < 0.05 for one in found.layers)


def test_vectors_that_fit_no_page_are_refused() -> None:
    with pytest.raises(ValueError, match="head_dim is 24"):
        check(tiny_model(head_dim=24), rows())


def test_the_plain_data_has_stable_keys() -> None:
    found = check(tiny_model(), rows(), formats=["int4"], budget=LossBudget(perplexity_rise=None, kl=1e-9))
    plain = json.loads(json.dumps(found.to_json(), allow_nan=False))
    keys = ["budget", "reference", "perplexity", "num_tokens", "formats", "layers", "sensitivities", "advice"]
    assert list(plain) == keys
    assert list(plain["budget"]) == ["perplexity_rise", "kl", "top1_agreement"]
    assert plain["reference"] == {"kind": "bf16", "group_size": 64, "rotates_keys": False, "rotates_values": False}
    assert list(plain["formats"][0]) == ["format", "loss", "verdict"]
    loss = ["num_tokens", "perplexity", "perplexity_rise", "rise_error", "kl", "top1_agreement"]
    assert list(plain["formats"][0]["loss"]) == list(plain["advice"]["loss"]) == loss
    assert list(plain["layers"][0]) == ["layer", "num_kv_heads", "head_dim", "largest_channels", "errors"]
    assert list(plain["layers"][0]["largest_channels"][0]) == ["head", "channel", "size", "times_median"]
    error = ["format", "output_error", "key_error", "value_error", "num_lost_channels"]
    assert list(plain["layers"][0]["errors"][0]) == error
    assert list(plain["sensitivities"][0]) == ["layer", "format", "kl"]
    advice = ["is_safe", "formats", "loss", "bytes_per_token", "reference_bytes_per_token", "reason"]
    assert list(plain["advice"]) == advice
    assert replace(found.formats[0].loss, kl=math.inf).to_json()["kl"] == "inf"
