"""Tiny random models of each kind that pages serve, and how the tests run them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers
from transformers import DynamicCache

from ullage.runtime.kv.transformers_cache import PagedCache, cache_for

MARKS = [
    pytest.mark.filterwarnings("ignore:`past_key_values` is deprecated:FutureWarning"),
    pytest.mark.usefixtures("one_thread", "plain_pytorch"),
]
"""What tests that run these models are marked with."""

PAGE = 16
FP16_ERROR = 0.0122
"""How far a step's logits, whose standard deviation is about 2.4, are from float32's: root mean square over the vocabulary.

Of the worst of 40 steps of these models, in plain attention with queries, keys, values and weights rounded to fp16.
Each rounding draws anew: over 36 prompts the worst step was off by 0.006 to 0.03, and three went on to other tokens.
"""
WINDOW = 8
LOGIT_ERROR = 0.03  # of a single logit, on a CPU
SHAPE = {
    "vocab_size": 97,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "initializer_range": 0.3,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": None,
}
GEMMA = {"head_dim": 32, "query_pre_attn_scalar": 24, "sliding_window": WINDOW, "tie_word_embeddings": False}
MIXED = {"layer_types": ["sliding_attention", "full_attention"]}
KINDS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "llama": ("LlamaForCausalLM", "LlamaConfig", {}),
    "qwen2": ("Qwen2ForCausalLM", "Qwen2Config", {}),
    "qwen3": ("Qwen3ForCausalLM", "Qwen3Config", {"head_dim": 32}),
    "mistral": ("MistralForCausalLM", "MistralConfig", {"sliding_window": WINDOW}),
    "gemma2": ("Gemma2ForCausalLM", "Gemma2Config", {**GEMMA, **MIXED, "attn_logit_softcapping": 4.0}),
    "gemma3": ("Gemma3ForCausalLM", "Gemma3TextConfig", {**GEMMA, **MIXED}),
}
ALL_KINDS = pytest.mark.parametrize("kind", KINDS)


def model_of(kind: str, **changes: Any) -> Any:
    model_name, config_name, more = KINDS[kind]
    torch.manual_seed(5)
    config = getattr(transformers, config_name)(**{**SHAPE, **more, **changes})
    return getattr(transformers, model_name)(config).eval()


def paged(model: Any, form: Any = "fp16", num_pages: int = 40) -> PagedCache:
    return cache_for(model, form, num_pages=num_pages, page_tokens=PAGE)


def dynamic(model: Any) -> Any:
    return DynamicCache(config=model.config)


def ids_of(num_batch: int, num_tokens: int, seed: int = 1) -> torch.Tensor:
    return torch.randint(3, 97, (num_batch, num_tokens), generator=torch.Generator().manual_seed(seed))


def padded(*lengths: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return left-padded ids, and the mask that says so."""
    ids = ids_of(len(lengths), max(lengths))
    mask = torch.arange(max(lengths)) >= max(lengths) - torch.tensor(lengths)[:, None]
    return ids * mask, mask.long()


def generated(model: Any, ids: torch.Tensor, cache: Any, num_new: int = 24, **options: Any) -> Any:
    """Generate greedily; return the tokens and the logits [B, num_new, V]."""
    asked = {"max_new_tokens": num_new, "do_sample": False, "return_dict_in_generate": True, "output_logits": True}
    out = model.generate(ids, past_key_values=cache, **{"attention_mask": torch.ones_like(ids), **asked, **options})
    return out.sequences, torch.stack(out.logits, 1)


def forward(model: Any, ids: torch.Tensor, cache: Any, mask: torch.Tensor | None = None) -> torch.Tensor:
    with torch.no_grad():
        logits: torch.Tensor = model(ids, past_key_values=cache, attention_mask=mask, use_cache=True).logits
    return logits


def assert_same(one: Any, other: Any) -> None:
    """Check that tokens are equal, and that no step's logits, [..., V], are further apart than fp16 makes them.

    On a CPU only keys and values are rounded; a GPU rounds queries and weights too, and its draw may be up to twice as far.
    """
    assert one[0].tolist() == other[0].tolist()
    assert one[1].shape == other[1].shape
    step_errors = (one[1] - other[1]).square().mean(-1).sqrt()
    assert step_errors.max().item() <= FP16_ERROR * (2 if one[1].is_cuda else 1)


def assert_clean(cache: PagedCache) -> None:
    """Check that no page is lost, and that all are free after a reset."""
    pool = cache.pool
    assert pool.account() == ""
    cache.reset()
    assert pool.account() == ""
    assert pool.stats().num_free == pool.stats().num_pages
    assert pool.stats().num_sequences == 0
