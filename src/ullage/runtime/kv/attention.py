"""Appends to and attends over pages: Triton's kernels on a GPU, plain PyTorch elsewhere.

Shapes: B sequences, T new tokens, H query heads, K KV heads, D values of a head's vector.
"""

from __future__ import annotations

import os
from functools import cache
from typing import TYPE_CHECKING, Any

import torch

from ullage.errors import DeviceError
from ullage.runtime.kv.reference import append_reference, decode_reference
from ullage.runtime.kv.rounding import hadamard, hadamard_block
from ullage.runtime.kv.tuning import ConfigStore, DecodeConfig, candidates, config_key, fastest, store_path

if TYPE_CHECKING:
    from ullage.runtime.kv.formats import PageLayout
    from ullage.runtime.kv.recent import RecentPart

_KINDS = {"bf16": 0, "fp16": 0, "fp8": 1, "int8": 2, "int4": 3}
_WARPS = {"bf16": 2, "fp16": 2, "fp8": 1, "int8": 2, "int4": 2}
_STAGES = 3
_MOST_SPLITS = 128
_BLOCK_T = 16  # tokens that a program of the append kernel writes
_SEEN_TO, _SEEN_FROM = 1, 2  # what a sequence's bound is to the decode kernel: where tokens end, or where they begin
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
        positions: The place of each token in its sequence, int32 [T]; one below 0 is left out.

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
    tensors = (k_TKD, v_TKD, pages, table, rows, positions, hadamard_signs(layout.head_dim, str(pages.device)))
    append_kernel[(-(-num_tokens // _BLOCK_T), layout.num_kv_heads)](
        *tensors,
        num_tokens,
        *strides,
        rotation_scale(layout),
        **page_constants(layout),
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
    recent: RecentPart | None = None,
    config: DecodeConfig | None = None,
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
        recent: The last tokens of each sequence in 16 bits, which are read instead of those in pages; None: there are none.
        config: How the kernel is run; None: what `tune_decode` found on this GPU for such a shape, or else a default.

    Returns:
        [B, H, D], of the queries' type.

    Raises:
        ValueError: A shape does not fit.

    Cost: two kernels, three with recent tokens; nothing waits for the GPU, so it can be captured in a CUDA graph.
    """
    num_batch, num_heads, dim = q_BHD.shape
    if dim != layout.head_dim or num_heads % layout.num_kv_heads or table.shape[0] != num_batch:
        raise ValueError(
            f"queries {tuple(q_BHD.shape)} and a table of {table.shape[0]} do not fit "
            f"{layout.num_kv_heads} KV heads of {layout.head_dim}"
        )
    scale = dim**-0.5 if scale is None else scale
    sees: dict[str, Any] = {"scale": scale, "softcap": softcap, "window": window}
    if not uses_kernels(pages):
        return decode_reference(q_BHD, pages, layout, table, lengths, **sees, recent=recent)
    if q_BHD.stride(-1) != 1:
        q_BHD = q_BHD.contiguous()
    config = config or _known_config(layout, num_batch, num_heads, table.shape[1], q_BHD.device)
    splits = config.num_splits
    shape = (num_batch, num_heads, splits + (recent is not None))
    part = torch.empty((*shape, dim), dtype=torch.float32, device=q_BHD.device)
    lse = torch.empty(shape, dtype=torch.float32, device=q_BHD.device)
    ends = None if recent is None else recent.tables.ends
    _decode_parts(q_BHD, pages, layout, table, lengths, (_SEEN_TO, ends), part, lse, (0, splits), sees, config)
    if recent is not None:
        tables, bound = recent.tables, (_SEEN_FROM, recent.tables.begins)
        _decode_parts(
            *(
                q_BHD,
                recent.pages,
                recent.layout,
                tables.table,
                tables.lengths,
                bound,
                part,
                lse,
                (splits, 1),
                sees,
                config,
            )
        )
    return merged_parts(part, lse, layout, q_BHD.dtype, rotate=layout.format.rotates_values)


def _decode_parts(
    q_BHD: torch.Tensor,
    pages: torch.Tensor,
    layout: PageLayout,
    table: torch.Tensor,
    lengths: torch.Tensor,
    bound: tuple[int, torch.Tensor | None],
    part: torch.Tensor,
    lse: torch.Tensor,
    places: tuple[int, int],
    sees: dict[str, Any],
    config: DecodeConfig,
) -> None:
    """Write some parts' outputs, float32 [B, H, S, D], and the logarithms of their weights, [B, H, S].

    `bound` says what kind of bound there is, and each sequence's; None: there is none. `places` are the first of the S parts
    that are written, and how many.
    """
    from ullage.runtime.kv.decode_kernel import decode_part_kernel

    num_batch, num_heads, dim = q_BHD.shape
    queries = num_heads // layout.num_kv_heads
    kind, bounds = bound
    strides = (q_BHD.stride(0), q_BHD.stride(1), table.stride(0), layout.page_bytes)
    decode_part_kernel[(num_batch * layout.num_kv_heads, places[1])](
        *(q_BHD, pages, table, lengths, lengths if bounds is None else bounds),
        *(hadamard_signs(dim, str(pages.device)), part, lse),
        *strides,
        *(sees["scale"], sees["softcap"], sees["window"], rotation_scale(layout)),
        *(places[1], places[0], part.shape[2]),
        **page_constants(layout),
        QUERIES=queries,
        HAS_ZERO=layout.format.has_zero,
        ROTATE=layout.format.rotates_keys,
        SOFTCAP=sees["softcap"] > 0,
        WINDOW=sees["window"] > 0,
        BOUND=0 if bounds is None else kind,
        BLOCK_Q=max(8, power_of_two(queries)),
        STAGES=config.num_stages,
        num_warps=config.num_warps,
    )


def merged_parts(
    part: torch.Tensor, lse: torch.Tensor, layout: PageLayout, dtype: torch.dtype, *, rotate: bool
) -> torch.Tensor:
    """Join parts, float32 [B, H, S, D], by the logarithms of their weights, [B, H, S], and turn them back if `rotate`."""
    from ullage.runtime.kv.decode_kernel import merge_kernel

    num_batch, num_heads, splits, dim = part.shape
    out = torch.empty((num_batch, num_heads, dim), dtype=dtype, device=part.device)
    merge_kernel[(num_batch * num_heads,)](
        *(part, lse, hadamard_signs(dim, str(part.device)), out, splits, rotation_scale(layout)),
        D=dim,
        P=power_of_two(dim),
        ROTATE=rotate,
        BLOCK_S=power_of_two(splits),
    )
    return out


def page_constants(layout: PageLayout) -> dict[str, Any]:
    """Return what all kernels know of a page when they are compiled."""
    half = layout.head_dim // 2
    return {
        "HEADS": layout.num_kv_heads,
        "D": layout.head_dim,
        "D2": half,
        "P2": max(power_of_two(half), 16),  # tensor cores add up 16 values at a time
        "PAGE": layout.page_tokens,
        "CODE_BYTES": layout.code_bytes,
        "GROUPS": layout.num_groups,
        "KIND": _KINDS[layout.format.kind],
        "BF16": layout.format.kind == "bf16",
        "FAST": not is_interpreted(),
    }


def power_of_two(number: int) -> int:
    """Return the least power of two that is not below a number."""
    return 1 << (number - 1).bit_length()


def uses_kernels(pages: torch.Tensor) -> bool:
    """Tell whether kernels run here: on a GPU, or where Triton interprets them."""
    return pages.device.type == "cuda" or is_interpreted()


def is_interpreted() -> bool:
    """Tell whether Triton interprets its kernels instead of compiling them."""
    return os.environ.get("TRITON_INTERPRET") == "1"


def tune_decode(
    q_BHD: torch.Tensor, pages: torch.Tensor, layout: PageLayout, table: torch.Tensor, lengths: torch.Tensor
) -> DecodeConfig:
    """Measure which configuration decodes fastest, and keep it for this GPU; `decode_attention` then takes it by itself.

    Args:
        q_BHD: As in `decode_attention`, of the batch to tune for.
        pages: A layer's pages; those of a cache that is larger than the GPU's L2, for a figure that holds.
        layout: What a page looks like.
        table: Each sequence's pages; its width counts, rounded up to a power of two.
        lengths: The tokens of each.

    Raises:
        DeviceError: The pages are on no GPU.

    Cost: compiles and runs some twenty configurations: tens of seconds, once for a shape and GPU.
    """
    if pages.device.type != "cuda":
        raise DeviceError("tuning measures on a GPU, and these pages are on none")
    processors = torch.cuda.get_device_properties(pages.device).multi_processor_count
    configs = candidates(layout, q_BHD.shape[0], table.shape[1], processors)
    best = fastest(configs, lambda config: decode_attention(q_BHD, pages, layout, table, lengths, config=config))
    _store(pages.device).put(config_key(layout, q_BHD.shape[0], q_BHD.shape[1], table.shape[1]), best)
    return best


def _known_config(
    layout: PageLayout, num_batch: int, num_heads: int, max_pages: int, device: torch.device
) -> DecodeConfig:
    if device.type != "cuda":
        return DecodeConfig(num_warps=_WARPS[layout.format.kind], num_stages=_STAGES, num_splits=min(4, max_pages))
    known = _store(device).get(config_key(layout, num_batch, num_heads, max_pages))
    if known is not None:
        return known
    processors: int = torch.cuda.get_device_properties(device).multi_processor_count
    wanted = -(-_WAVES * processors // (num_batch * layout.num_kv_heads))
    splits = max(1, min(wanted, max_pages, _MOST_SPLITS))
    return DecodeConfig(num_warps=_WARPS[layout.format.kind], num_stages=_STAGES, num_splits=splits)


@cache
def _store(device: torch.device) -> ConfigStore:
    import triton

    return ConfigStore(store_path(torch.cuda.get_device_name(device), triton.__version__))


@cache
def hadamard_signs(head_dim: int, device: str) -> torch.Tensor:
    """Return the block-Hadamard matrix without its scale: -1, 0 and 1, exact in float16."""
    return (hadamard(head_dim) * hadamard_block(head_dim) ** 0.5).round().half().to(device)


def rotation_scale(layout: PageLayout) -> float:
    """Return what signs are multiplied by for the block-Hadamard matrix."""
    return float(hadamard_block(layout.head_dim) ** -0.5)
