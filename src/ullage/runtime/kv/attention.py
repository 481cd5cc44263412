"""Appends to and attends over pages: Triton's kernels on a GPU, plain PyTorch elsewhere.

Shapes: B sequences, T new tokens, H query heads, K KV heads, D values of a head's vector.
"""

from __future__ import annotations

import os
from functools import cache
from typing import TYPE_CHECKING, Any

import torch

from ullage.runtime.kv.reference import append_reference, decode_reference
from ullage.runtime.kv.rounding import hadamard, hadamard_block

if TYPE_CHECKING:
    from ullage.runtime.kv.formats import PageLayout

_KINDS = {"bf16": 0, "fp16": 0, "fp8": 1, "int8": 2, "int4": 3}
_WARPS = {"bf16": 2, "fp16": 2, "fp8": 1, "int8": 2, "int4": 2}
_MOST_SPLITS = 128
_BLOCK_T = 16  # tokens that a program of the append kernel writes
_WAVES = 4  # programs for each multiprocessor that the parts of all sequences come to, at least


def append_kv(
    k_TKD: torch.Tensor,
    v_TKD: torch.Tensor,
    pages: torch.Tensor,
    layout: PageLayout,
    table: torch.Tensor,
    rows: torch.Tensor,
    positions: torch.Tensor,
) -> None:
    """Write new tokens' keys and values to their pages.

    Args:
        k_TKD: Keys, [T, K, D], float16, bfloat16 or float32; of equal strides with the values, the last being 1.
        v_TKD: Values, likewise.
        pages: A layer's pages, uint8 [num_pages, page_bytes].
        layout: What a page looks like.
        table: Each sequence's pages, int32 [B, max_pages].
        rows: The sequence of each token, as a row of the table, int32 [T].
        positions: The place of each token in its sequence, int32 [T].

    Raises:
        ValueError: A shape or stride does not fit.

    Cost: one kernel; nothing waits for the GPU.
    """
    if k_TKD.shape != v_TKD.shape or k_TKD.shape[1:] != (layout.num_kv_heads, layout.head_dim):
        raise ValueError(
            f"keys {tuple(k_TKD.shape)} and values {tuple(v_TKD.shape)} do not fit "
            f"{layout.num_kv_heads} heads of {layout.head_dim}"
        )
    if k_TKD.stride() != v_TKD.stride() or k_TKD.stride(-1) != 1:
        k_TKD, v_TKD = k_TKD.contiguous(), v_TKD.contiguous()
    if not uses_kernels(pages):
        append_reference(k_TKD, v_TKD, pages, layout, table, rows, positions)
        return
    from ullage.runtime.kv.append_kernel import append_kernel

    num_tokens = k_TKD.shape[0]
    if not num_tokens:
        return
    form = layout.format
    strides = (k_TKD.stride(0), k_TKD.stride(1), table.stride(0), layout.page_bytes)
    tensors = (k_TKD, v_TKD, pages, table, rows, positions, _signs(layout.head_dim, str(pages.device)))
    append_kernel[(-(-num_tokens // _BLOCK_T), layout.num_kv_heads)](
        *tensors,
        num_tokens,
        *strides,
        _rotate_scale(layout),
        **_constants(layout),
        ROTATE_K=form.rotates_keys,
        ROTATE_V=form.rotates_values,
        BLOCK_T=_BLOCK_T,
    )


def decode_attention(
    q_BHD: torch.Tensor,
    pages: torch.Tensor,
    layout: PageLayout,
    table: torch.Tensor,
    lengths: torch.Tensor,
    *,
    scale: float | None = None,
    softcap: float = 0.0,
    window: int = 0,
    num_splits: int | None = None,
    num_warps: int | None = None,
    num_stages: int = 3,
) -> torch.Tensor:
    """Attend with one token of each sequence over all that its pages hold, itself included.

    Args:
        q_BHD: Queries, [B, H, D], the last stride being 1.
        pages: A layer's pages, uint8 [num_pages, page_bytes].
        layout: What a page looks like.
        table: Each sequence's pages, int32 [B, max_pages].
        lengths: The tokens of each, int32 [B]. A sequence of none gives zeros.
        scale: What scores are multiplied by; None: 1 / sqrt(D).
        softcap: Scores become softcap * tanh(score / softcap); 0: they stay.
        window: How many of the last tokens are seen; 0: all.
        num_splits: The parts that a sequence is read in at a time; None: enough to fill the GPU.
        num_warps: The kernel's warps; None: what was fastest on an H200.
        num_stages: The kernel's loads in flight.

    Returns:
        [B, H, D], of the queries' type.

    Raises:
        ValueError: A shape does not fit.

    Cost: two kernels; nothing waits for the GPU, so it can be captured in a CUDA graph.
    """
    num_batch, num_heads, dim = q_BHD.shape
    if dim != layout.head_dim or num_heads % layout.num_kv_heads or table.shape[0] != num_batch:
        raise ValueError(
            f"queries {tuple(q_BHD.shape)} and a table of {table.shape[0]} do not fit "
            f"{layout.num_kv_heads} KV heads of {layout.head_dim}"
        )
    scale = dim**-0.5 if scale is None else scale
    if not uses_kernels(pages):
        return decode_reference(q_BHD, pages, layout, table, lengths, scale=scale, softcap=softcap, window=window)
    if q_BHD.stride(-1) != 1:
        q_BHD = q_BHD.contiguous()
    splits = num_splits or _num_splits(num_batch * layout.num_kv_heads, table.shape[1], q_BHD.device)
    sees = {"scale": scale, "softcap": softcap, "window": window}
    warps = num_warps or _WARPS[layout.format.kind]
    part, lse = _decode_parts(q_BHD, pages, layout, table, lengths, sees, splits, warps, num_stages)
    return _merged(part, lse, layout, q_BHD.dtype)


def _decode_parts(
    q_BHD: torch.Tensor,
    pages: torch.Tensor,
    layout: PageLayout,
    table: torch.Tensor,
    lengths: torch.Tensor,
    sees: dict[str, Any],
    splits: int,
    num_warps: int,
    num_stages: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return each part's output, float32 [B, H, S, D], and the logarithm of its weight, [B, H, S]."""
    from ullage.runtime.kv.decode_kernel import decode_part_kernel

    num_batch, num_heads, dim = q_BHD.shape
    queries = num_heads // layout.num_kv_heads
    part = torch.empty((num_batch, num_heads, splits, dim), dtype=torch.float32, device=q_BHD.device)
    lse = torch.empty((num_batch, num_heads, splits), dtype=torch.float32, device=q_BHD.device)
    strides = (q_BHD.stride(0), q_BHD.stride(1), table.stride(0), layout.page_bytes)
    decode_part_kernel[(num_batch * layout.num_kv_heads, splits)](
        *(q_BHD, pages, table, lengths, _signs(dim, str(pages.device)), part, lse),
        *strides,
        *(sees["scale"], sees["softcap"], sees["window"], _rotate_scale(layout), splits),
        **_constants(layout),
        QUERIES=queries,
        HAS_ZERO=layout.format.has_zero,
        ROTATE=layout.format.rotates_keys,
        SOFTCAP=sees["softcap"] > 0,
        WINDOW=sees["window"] > 0,
        BLOCK_Q=max(8, _power_of_two(queries)),
        STAGES=num_stages,
        num_warps=num_warps,
    )
    return part, lse


def _merged(part: torch.Tensor, lse: torch.Tensor, layout: PageLayout, dtype: torch.dtype) -> torch.Tensor:
    from ullage.runtime.kv.decode_kernel import merge_kernel

    num_batch, num_heads, splits, dim = part.shape
    out = torch.empty((num_batch, num_heads, dim), dtype=dtype, device=part.device)
    merge_kernel[(num_batch * num_heads,)](
        *(part, lse, _signs(dim, str(part.device)), out, splits, _rotate_scale(layout)),
        D=dim,
        P=_power_of_two(dim),
        ROTATE=layout.format.rotates_values,
        BLOCK_S=_power_of_two(splits),
    )
    return out


def _constants(layout: PageLayout) -> dict[str, Any]:
    """Return what both kernels know of a page when they are compiled."""
    half = layout.head_dim // 2
    return {
        "HEADS": layout.num_kv_heads,
        "D": layout.head_dim,
        "D2": half,
        "P2": _power_of_two(half),
        "PAGE": layout.page_tokens,
        "CODE_BYTES": layout.code_bytes,
        "GROUPS": layout.num_groups,
        "KIND": _KINDS[layout.format.kind],
        "BF16": layout.format.kind == "bf16",
        "FAST": not is_interpreted(),
    }


def _power_of_two(number: int) -> int:
    """Return the least power of two that is not below a number."""
    return 1 << (number - 1).bit_length()


def uses_kernels(pages: torch.Tensor) -> bool:
    """Tell whether kernels run here: on a GPU, or where Triton interprets them."""
    return pages.device.type == "cuda" or is_interpreted()


def is_interpreted() -> bool:
    """Tell whether Triton interprets its kernels instead of compiling them."""
    return os.environ.get("TRITON_INTERPRET") == "1"


def _num_splits(pairs: int, max_pages: int, device: torch.device) -> int:
    if device.type != "cuda":
        return min(4, max_pages)
    processors: int = torch.cuda.get_device_properties(device).multi_processor_count
    wanted = -(-_WAVES * processors // pairs)
    return max(1, min(wanted, max_pages, _MOST_SPLITS))


@cache
def _signs(head_dim: int, device: str) -> torch.Tensor:
    """Return the block-Hadamard matrix without its scale: -1, 0 and 1, exact in float16."""
    return (hadamard(head_dim) * hadamard_block(head_dim) ** 0.5).round().half().to(device)


def _rotate_scale(layout: PageLayout) -> float:
    return float(hadamard_block(layout.head_dim) ** -0.5)
