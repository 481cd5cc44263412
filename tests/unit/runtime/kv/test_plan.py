"""How many tokens fit is arithmetic: held against figures that served models print."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from ullage.runtime.kv import KVFormat, KVPool, plan_tokens

QWEN_0_6B = SimpleNamespace(num_hidden_layers=28, num_attention_heads=16, num_key_value_heads=8, head_dim=128)
LLAMA_8B = SimpleNamespace(num_hidden_layers=32, num_attention_heads=32, num_key_value_heads=8, hidden_size=4096)
GIB = 1 << 30


def test_the_bytes_of_a_token_are_those_of_the_models() -> None:
    (qwen,) = plan_tokens(QWEN_0_6B, 64 * GIB, weights_bytes=0, formats=[KVFormat(kind="bf16")])
    (llama,) = plan_tokens(LLAMA_8B, 64 * GIB, weights_bytes=0, formats=[KVFormat(kind="bf16")])
    assert (qwen.bytes_per_token, llama.bytes_per_token) == (114_688, 131_072)


def test_a_served_models_tokens_are_met() -> None:
    # A server of Qwen3-0.6B printed 556,202 tokens in 59.4 GiB.
    (plan,) = plan_tokens(QWEN_0_6B, 556_224 * 114_688, weights_bytes=0, formats=[KVFormat(kind="bf16")])
    assert plan.num_tokens == 556_224  # whole pages of 64
    assert round(plan.pool_bytes / GIB, 1) == 59.4


def test_weights_workspaces_and_graphs_are_taken_off() -> None:
    plans = plan_tokens(LLAMA_8B, 80 * GIB, weights_bytes=16 * GIB, workspace_bytes=3 * GIB, graph_bytes=GIB)
    by_kind = {plan.kind: plan for plan in plans}
    assert list(by_kind) == ["bf16", "fp16", "fp8", "int8", "int4"]
    assert by_kind["bf16"].num_pages == 60 * GIB // (64 * 131_072)
    assert by_kind["int4"].num_tokens / by_kind["bf16"].num_tokens == pytest.approx(256 / 72, rel=1e-3)


def test_a_plan_is_what_a_pool_of_so_many_bytes_holds() -> None:
    small = SimpleNamespace(num_hidden_layers=2, num_attention_heads=2, head_dim=16)
    (plan,) = KVPool.plan(small, 1_000_000, weights_bytes=100_000, formats=[KVFormat.named("int8")], page_tokens=16)
    form = KVFormat.named("int8")
    pool = KVPool(
        num_layers=2, num_kv_heads=2, head_dim=16, formats=form, page_tokens=16, size_bytes=900_000, device="cpu"
    )
    assert (plan.num_pages, plan.pool_bytes) == (pool.stats().num_pages, pool.stats().pool_bytes)


def test_nothing_left_and_missing_figures_are_said() -> None:
    with pytest.raises(ValueError, match="nothing is left for a cache: 10 GiB less 16 GiB of weights"):
        plan_tokens(LLAMA_8B, 10 * GIB, weights_bytes=16 * GIB)
    with pytest.raises(ValueError, match="no num_hidden_layers"):
        plan_tokens(SimpleNamespace(num_attention_heads=8), GIB, weights_bytes=0)
    with pytest.raises(ValueError, match="neither head_dim nor hidden_size"):
        plan_tokens(SimpleNamespace(num_hidden_layers=1, num_attention_heads=8), GIB, weights_bytes=0)
