"""A paged KV cache in 16, 8 or 4 bits: pages for many sequences, appending to them, and attention straight from them."""

from ullage.runtime.kv.attention import append_kv, decode_attention, tune_decode
from ullage.runtime.kv.formats import KVFormat, PageLayout
from ullage.runtime.kv.plan import KVPlan, plan_tokens
from ullage.runtime.kv.pool import KVPool
from ullage.runtime.kv.prefill import PrefillConfig, prefill_attention
from ullage.runtime.kv.sequence import PoolStats, Sequence
from ullage.runtime.kv.tuning import DecodeConfig

__all__ = [
    "DecodeConfig",
    "KVFormat",
    "KVPlan",
    "KVPool",
    "PageLayout",
    "PoolStats",
    "PrefillConfig",
    "Sequence",
    "append_kv",
    "decode_attention",
    "plan_tokens",
    "prefill_attention",
    "tune_decode",
]
