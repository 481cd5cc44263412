"""How many tokens a GPU holds, by format: arithmetic before anything runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ullage.runtime.kv.formats import CODE_BITS, KVFormat, PageLayout
from ullage.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, kw_only=True)
class KVPlan:
    """What fits in one format.

    Attributes:
        kind: The format.
        bytes_per_token: The bytes of a token over all layers.
        num_pages: The pages that fit.
        num_tokens: The tokens that they hold.
        pool_bytes: What they take.
    """

    kind: str
    bytes_per_token: int
    num_pages: int
    num_tokens: int
    pool_bytes: int

    def __str__(self) -> str:
        return f"{self.kind}: {self.num_tokens:,} tokens of {self.bytes_per_token:,} bytes, {format_bytes(self.pool_bytes)}"


def plan_tokens(
    config: Any,
    gpu_bytes: int,
    *,
    weights_bytes: int,
    workspace_bytes: int = 0,
    graph_bytes: int = 0,
    formats: Sequence[KVFormat] | None = None,
    page_tokens: int = 64,
) -> list[KVPlan]:
    """Work out how many tokens fit beside a model, by format.

    Args:
        config: The model's shape: anything with `num_hidden_layers`, `num_attention_heads`, and where they differ from
            what follows `num_key_value_heads` and `head_dim` (without: `hidden_size / num_attention_heads`), as transformers'
            configurations have.
        gpu_bytes: What the process may use.
        weights_bytes: The model's weights.
        workspace_bytes: Activations, cuBLAS workspaces and the CUDA context, as measured.
        graph_bytes: All captured CUDA graphs together, as measured: graphs that share a pool cost far less than the first
            one times their number.
        formats: The formats; None: each kind as `KVFormat.named` makes it.
        page_tokens: The tokens of a page.

    Returns:
        A plan for each format, in the order given.

    Raises:
        ValueError: Nothing is left for a cache, or the configuration lacks a figure.

    Example:
        >>> from types import SimpleNamespace
        >>> qwen = SimpleNamespace(num_hidden_layers=28, num_attention_heads=16, num_key_value_heads=8, head_dim=128)
        >>> for one in plan_tokens(qwen, 80 << 30, weights_bytes=3 << 29, workspace_bytes=2 << 30)[::4]:
        ...     print(one)
        bf16: 716,160 tokens of 114,688 bytes, 76.5 GiB
        int4: 2,546,496 tokens of 32,256 bytes, 76.5 GiB
    """
    layers, heads, dim = _shape(config)
    left = gpu_bytes - weights_bytes - workspace_bytes - graph_bytes
    if left <= 0:
        raise ValueError(
            f"nothing is left for a cache: {format_bytes(gpu_bytes)} less {format_bytes(weights_bytes)} of weights, "
            f"{format_bytes(workspace_bytes)} of workspaces and {format_bytes(graph_bytes)} of graphs"
        )
    plans = []
    for form in formats or [KVFormat.named(kind) for kind in CODE_BITS]:
        layout = PageLayout(format=form, num_kv_heads=heads, head_dim=dim, page_tokens=page_tokens)
        page_bytes = layers * layout.page_bytes
        pages = left // page_bytes
        plans.append(
            KVPlan(
                kind=form.kind,
                bytes_per_token=-(-page_bytes // page_tokens),
                num_pages=pages,
                num_tokens=pages * page_tokens,
                pool_bytes=pages * page_bytes,
            )
        )
    return plans


def _shape(config: Any) -> tuple[int, int, int]:
    """Return a configuration's layers, KV heads and head_dim."""
    layers = getattr(config, "num_hidden_layers", None)
    attention_heads = getattr(config, "num_attention_heads", None)
    if not layers or not attention_heads:
        raise ValueError("the configuration has no num_hidden_layers or no num_attention_heads")
    dim = getattr(config, "head_dim", None) or getattr(config, "hidden_size", 0) // attention_heads
    if not dim:
        raise ValueError("the configuration has neither head_dim nor hidden_size")
    return layers, getattr(config, "num_key_value_heads", None) or attention_heads, dim
