"""Attends with many new tokens over pages and over each other: Triton's kernels on a GPU, plain PyTorch elsewhere.

Shapes: B sequences, T new tokens of all of them, H query heads, K KV heads, D values of a head's vector.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from ullage.runtime.kv import attention
from ullage.runtime.kv.reference import prefill_reference

if TYPE_CHECKING:
    from ullage.runtime.kv.formats import PageLayout

_BLOCK_N = 64  # new tokens that are taken at a time
_MOST_SPLITS = 128
_LEAST_TOKENS = 256  # that a part is worth
_FEW_ROWS = 32


@dataclass(frozen=True, kw_only=True)
class PrefillConfig:
    """How the prefill kernel is run.

    Attributes:
        block_rows: The rows of a program, each a new token and one of its heads: 16, 32, 64 or 128.
        num_warps: The warps of a program.
        num_stages: The loads in flight.
        num_splits: The parts that what a row sees is read in at a time. With one the output is written as it is.
    """

    block_rows: int
    num_warps: int
    num_stages: int
    num_splits: int

    def __post_init__(self) -> None:
        if self.block_rows not in (16, 32, 64, 128):
            raise ValueError(f"block_rows is {self.block_rows}: use 16, 32, 64 or 128")
        if self.num_splits < 1:
            raise ValueError(f"num_splits is {self.num_splits}: use 1 or more")


def prefill_attention(
    q_THD: torch.Tensor,
    k_TKD: torch.Tensor,
    v_TKD: torch.Tensor,
    pages: torch.Tensor,
    layout: PageLayout,
    table: torch.Tensor,
    starts: torch.Tensor,
    past: torch.Tensor,
    *,
    scale: float | None = None,
    softcap: float = 0.0,
    window: int = 0,
    max_new: int | None = None,
    config: PrefillConfig | None = None,
) -> torch.Tensor:
    """Attend with the new tokens of each sequence over its history in pages, and causally over each other.

    Args:
        q_THD: Queries of all sequences, one after another, [T, H, D], float16, bfloat16 or float32, the last stride being 1.
            A GPU takes float32 as float16.
        k_TKD: The new tokens' keys, [T, K, D], of the same type. They are read here, whether pages hold them too or not.
        v_TKD: Their values, likewise.
        pages: A layer's pages, uint8 [num_pages, page_bytes].
        layout: What a page looks like.
        table: Each sequence's pages, int32 [B, max_pages].
        starts: Where each sequence's new tokens begin, and where the last ones end, int32 [B + 1].
        past: The tokens of each sequence before its new ones, int32 [B]: so many are read from pages.
        scale: What scores are multiplied by, above 0; None: 1 / sqrt(D).
        softcap: Scores become softcap * tanh(score / softcap); 0: they stay.
        window: How many of the last tokens a token sees, itself included; 0: all.
        max_new: The most new tokens of a sequence, for a better default; None: T.
        config: How the kernel is run; None: a default for such a shape.

    Returns:
        [T, H, D], of the queries' type. Tokens after those of the last sequence get what there happens to be in memory.

    Raises:
        ValueError: A shape or type does not fit, or the scale is not above 0.

    Cost: one kernel, or two where few tokens attend over much and that is split; nothing waits for the GPU, so it can be
    captured in a CUDA graph. Parts take 4 * T * H * D bytes for each split.
    """
    num_tokens, num_heads, dim = q_THD.shape
    scale = dim**-0.5 if scale is None else scale
    _check(q_THD, k_TKD, v_TKD, layout, table, starts, past, scale)
    if not num_tokens:
        return torch.empty_like(q_THD)
    sees: dict[str, Any] = {"scale": scale, "softcap": softcap, "window": window}
    if not attention.uses_kernels(pages):
        return prefill_reference(q_THD, k_TKD, v_TKD, pages, layout, table, starts, past, **sees)
    dtype = q_THD.dtype
    if dtype == torch.float32 and not attention.is_interpreted():
        q_THD, k_TKD, v_TKD = q_THD.half(), k_TKD.half(), v_TKD.half()
    q_THD, k_TKD, v_TKD = (x if x.stride(-1) == 1 else x.contiguous() for x in (q_THD, k_TKD, v_TKD))
    config = config or _default_config(layout, q_THD, table, window, max_new)
    if config.num_splits == 1:
        out = torch.empty((num_tokens, num_heads, dim), dtype=dtype, device=q_THD.device)
        _launch(q_THD, k_TKD, v_TKD, pages, layout, table, starts, past, out, out, sees, config)
        return out
    shape = (num_tokens, num_heads, config.num_splits)
    part = torch.empty((*shape, dim), dtype=torch.float32, device=q_THD.device)
    lse = torch.empty(shape, dtype=torch.float32, device=q_THD.device)
    _launch(q_THD, k_TKD, v_TKD, pages, layout, table, starts, past, part, lse, sees, config)
    return attention.merged_parts(part, lse, layout, dtype, rotate=False)


def _check(
    q_THD: torch.Tensor,
    k_TKD: torch.Tensor,
    v_TKD: torch.Tensor,
    layout: PageLayout,
    table: torch.Tensor,
    starts: torch.Tensor,
    past: torch.Tensor,
    scale: float,
) -> None:
    num_tokens, num_heads, dim = q_THD.shape
    kv_shape = (num_tokens, layout.num_kv_heads, layout.head_dim)
    if k_TKD.shape != kv_shape or v_TKD.shape != kv_shape or dim != layout.head_dim or num_heads % kv_shape[1]:
        raise ValueError(
            f"queries {tuple(q_THD.shape)}, keys {tuple(k_TKD.shape)} and values {tuple(v_TKD.shape)} do not fit "
            f"{layout.num_kv_heads} KV heads of {layout.head_dim}"
        )
    if not len(starts) - 1 == len(past) == len(table):
        raise ValueError(f"{len(starts)} starts, {len(past)} histories and a table of {len(table)} do not fit")
    if not q_THD.dtype == k_TKD.dtype == v_TKD.dtype:
        raise ValueError(f"queries are {q_THD.dtype}, keys {k_TKD.dtype} and values {v_TKD.dtype}: use one type")
    if scale <= 0:
        raise ValueError(f"scale is {scale}: it must be above 0")


def _launch(
    q_THD: torch.Tensor,
    k_TKD: torch.Tensor,
    v_TKD: torch.Tensor,
    pages: torch.Tensor,
    layout: PageLayout,
    table: torch.Tensor,
    starts: torch.Tensor,
    past: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    sees: dict[str, Any],
    config: PrefillConfig,
) -> None:
    """Write the output, [T, H, D], or that of parts, [T, H, S, D], with the logarithms of their weights."""
    from ullage.runtime.kv.prefill_kernel import prefill_kernel

    num_tokens, num_heads, dim = q_THD.shape
    queries = num_heads // layout.num_kv_heads
    blocks = num_tokens * queries // config.block_rows + len(past)
    strides = (stride for x in (q_THD, k_TKD, v_TKD) for stride in (x.stride(0), x.stride(1)))
    signs = attention.hadamard_signs(dim, str(pages.device))
    prefill_kernel[(blocks, layout.num_kv_heads, config.num_splits)](
        *(q_THD, k_TKD, v_TKD, pages, table, starts, past, signs, out, lse),
        *(*strides, table.stride(0), layout.page_bytes),
        *(sees["scale"], sees["softcap"], sees["window"], attention.rotation_scale(layout)),
        *(len(past), config.num_splits),
        **attention.page_constants(layout),
        QUERIES=queries,
        HAS_ZERO=layout.format.has_zero,
        ROTATE_K=layout.format.rotates_keys,
        ROTATE_V=layout.format.rotates_values,
        SOFTCAP=sees["softcap"] > 0,
        WINDOW=sees["window"] > 0,
        IS_SPLIT=config.num_splits > 1,
        BLOCK_M=config.block_rows,
        BLOCK_N=_BLOCK_N,
        STAGES=config.num_stages,
        num_warps=config.num_warps,
    )


def default_config(
    layout: PageLayout,
    num_heads: int,
    num_batch: int,
    num_tokens: int,
    max_new: int,
    max_seen: int,
    num_processors: int,
) -> PrefillConfig:
    """Return a configuration whose programs fill a GPU, and hold all of a sequence's rows where these are few.

    Args:
        layout: What a page looks like.
        num_heads: Query heads.
        num_batch: Sequences.
        num_tokens: New tokens of all of them.
        max_new: The most new tokens of one.
        max_seen: The most tokens that a program's rows can see.
        num_processors: The GPU's multiprocessors.

    Example:
        >>> from ullage.runtime.kv.formats import KVFormat, PageLayout
        >>> layout = PageLayout(format=KVFormat(kind="int4"), num_kv_heads=8, head_dim=128)
        >>> default_config(layout, 32, 1, 5, 5, 32_768, 132)
        PrefillConfig(block_rows=32, num_warps=4, num_stages=3, num_splits=66)
        >>> default_config(layout, 32, 1, 8192, 8192, 8192, 132)
        PrefillConfig(block_rows=128, num_warps=8, num_stages=2, num_splits=1)
    """
    queries = num_heads // layout.num_kv_heads
    rows = max_new * queries
    block_rows = min(max(attention.power_of_two(rows), 16), 128)
    is_few = block_rows <= _FEW_ROWS
    blocks = min(num_tokens * queries // block_rows + num_batch, num_batch * -(-rows // block_rows))
    wanted = -(-(4 if is_few else 2) * num_processors // (blocks * layout.num_kv_heads))
    return PrefillConfig(
        block_rows=block_rows,
        num_warps=8 if block_rows == 128 else 4,
        num_stages=3 if is_few and layout.head_dim <= 128 else 2,
        num_splits=max(min(wanted, max_seen // _LEAST_TOKENS, _MOST_SPLITS), 1),
    )


def _default_config(
    layout: PageLayout, q_THD: torch.Tensor, table: torch.Tensor, window: int, max_new: int | None
) -> PrefillConfig:
    num_tokens, num_heads, _ = q_THD.shape
    num_batch, max_pages = table.shape
    max_new = min(max_new or num_tokens, num_tokens)
    max_seen = max_pages * layout.page_tokens + max_new
    if window:
        max_seen = min(max_seen, window + 128)
    num_processors = 1
    if q_THD.device.type == "cuda":
        num_processors = torch.cuda.get_device_properties(q_THD.device).multi_processor_count
    return default_config(layout, num_heads, num_batch, num_tokens, max_new, max_seen, num_processors)
