"""A paged KV cache in 16, 8 or 4 bits: pages for many sequences, appending to them, and attention straight from them."""

from ullage.runtime.kv.attention import append_kv, decode_attention
from ullage.runtime.kv.formats import KVFormat, PageLayout
from ullage.runtime.kv.pool import KVPool, PoolStats, Sequence

__all__ = ["KVFormat", "KVPool", "PageLayout", "PoolStats", "Sequence", "append_kv", "decode_attention"]
