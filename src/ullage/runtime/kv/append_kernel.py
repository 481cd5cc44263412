"""Writes new keys and values to pages, in Triton: turned, rounded, packed and scattered in one pass.

Shapes: T new tokens, K KV heads, D values of a vector in two halves of D2 (padded to P2), N tokens a program.
"""

# A kernel has many arguments: several to a line.
# fmt: off

from __future__ import annotations

import triton
import triton.language as tl

from ullage.runtime.kv.page_tiles import rotation_signs

_SMALLEST = tl.constexpr(6.2e-5)
_LARGEST = tl.constexpr(65504.0)
_FP8_MAX = tl.constexpr(448.0)


@triton.jit
def _turned(
    x_ptr, h_ptr, at, mask, offs_d, in_dim, rotate_scale, D: tl.constexpr, D2: tl.constexpr, ROTATE: tl.constexpr,
    FAST: tl.constexpr,
):
    """Load vectors, both halves [N, P2] as float32, turned where asked.

    Tensor cores multiply 16-bit vectors by signs exactly; float32 ones, and what an interpreter runs, go without them.
    """
    x0 = tl.load(x_ptr + at, mask=mask, other=0)
    x1 = tl.load(x_ptr + at + D2, mask=mask, other=0)
    if ROTATE:
        h00, h01, h10, h11 = rotation_signs(h_ptr, offs_d, in_dim, D, D2)
        if not FAST:
            x0 = x0.to(tl.float32)
            x1 = x1.to(tl.float32)
        y0 = tl.dot(x0, h00.to(x0.dtype), input_precision="ieee")
        y0 = tl.dot(x1, h10.to(x0.dtype), y0, input_precision="ieee") * rotate_scale
        y1 = tl.dot(x0, h01.to(x0.dtype), input_precision="ieee")
        y1 = tl.dot(x1, h11.to(x0.dtype), y1, input_precision="ieee") * rotate_scale
    else:
        y0 = x0.to(tl.float32)
        y1 = x1.to(tl.float32)
    return y0, y1


@triton.jit
def _range(x0, x1, in_dim, GROUPS: tl.constexpr):
    """Return the lowest and highest value of each half's group, [N]."""
    low0 = tl.min(tl.where(in_dim[None, :], x0, float("inf")), 1)
    low1 = tl.min(tl.where(in_dim[None, :], x1, float("inf")), 1)
    high0 = tl.max(tl.where(in_dim[None, :], x0, float("-inf")), 1)
    high1 = tl.max(tl.where(in_dim[None, :], x1, float("-inf")), 1)
    if GROUPS == 1:
        low0 = tl.minimum(low0, low1)
        high0 = tl.maximum(high0, high1)
        low1 = low0
        high1 = high0
    return low0, high0, low1, high1


@triton.jit
def _storable(scale):
    return tl.minimum(tl.maximum(scale, _SMALLEST), _LARGEST).to(tl.float16)


@triton.jit
def _fp8(x, FAST: tl.constexpr):
    """Round to e4m3, as its bits."""
    x = tl.minimum(tl.maximum(x, -_FP8_MAX), _FP8_MAX)
    if not FAST:
        # Triton's interpreter (3.9) halves what rounds up to a power of two; so it gets values that need no rounding.
        stretched = x * 1048577.0  # 2**20 + 1: the difference below keeps four bits of 24
        rounded = stretched - (stretched - x)
        x = tl.where(tl.abs(x) < 0.015625, tl.floor(x * 512.0 + 0.5) / 512.0, rounded)
    return x.to(tl.float8e4nv).to(tl.uint8, bitcast=True)


@triton.jit
def _coded(x, low, scale, LEVELS: tl.constexpr):
    steps = tl.floor((x - low.to(tl.float32)[:, None]) / scale.to(tl.float32)[:, None] + 0.5)
    return tl.minimum(tl.maximum(steps, 0.0), LEVELS).to(tl.uint8)


@triton.jit
def _store(
    codes_ptr, params_ptr, offset, x0, x1, mask, in_token, offs_d, in_dim, D2: tl.constexpr, PAGE: tl.constexpr,
    CODE_BYTES: tl.constexpr, GROUPS: tl.constexpr, KIND: tl.constexpr, BF16: tl.constexpr, IS_VALUE: tl.constexpr,
    FAST: tl.constexpr,
):
    """Round vectors and write them; the pointers are those of each token's page and head."""
    if KIND == 0:
        if BF16:
            at = (
                codes_ptr.to(tl.pointer_type(tl.bfloat16))[:, None]
                + (offset * (CODE_BYTES // 2))[:, None]
                + offs_d[None, :]
            )
            tl.store(at, x0.to(tl.bfloat16), mask=mask)
            tl.store(at + D2, x1.to(tl.bfloat16), mask=mask)
        else:
            at = (
                codes_ptr.to(tl.pointer_type(tl.float16))[:, None]
                + (offset * (CODE_BYTES // 2))[:, None]
                + offs_d[None, :]
            )
            tl.store(at, x0.to(tl.float16), mask=mask)
            tl.store(at + D2, x1.to(tl.float16), mask=mask)
    else:
        low0, high0, low1, high1 = _range(x0, x1, in_dim, GROUPS)
        if IS_VALUE:
            at = codes_ptr[:, None] + offset[:, None] + offs_d[None, :] * PAGE
        else:
            at = codes_ptr[:, None] + (offset * CODE_BYTES)[:, None] + offs_d[None, :]
        HALF: tl.constexpr = D2 * PAGE if IS_VALUE else D2
        if KIND == 1:
            s0 = _storable(tl.maximum(tl.abs(low0), tl.abs(high0)) / _FP8_MAX)
            s1 = _storable(tl.maximum(tl.abs(low1), tl.abs(high1)) / _FP8_MAX)
            tl.store(at, _fp8(x0 / s0.to(tl.float32)[:, None], FAST), mask=mask)
            tl.store(at + HALF, _fp8(x1 / s1.to(tl.float32)[:, None], FAST), mask=mask)
            z0 = s0 * 0.0
            z1 = s1 * 0.0
        else:
            LEVELS: tl.constexpr = 15.0 if KIND == 3 else 255.0
            s0 = _storable((high0 - low0) / LEVELS)
            s1 = _storable((high1 - low1) / LEVELS)
            z0 = tl.minimum(tl.maximum(low0, -_LARGEST), _LARGEST).to(tl.float16)
            z1 = tl.minimum(tl.maximum(low1, -_LARGEST), _LARGEST).to(tl.float16)
            c0 = _coded(x0, z0, s0, LEVELS)
            c1 = _coded(x1, z1, s1, LEVELS)
            if KIND == 3:
                tl.store(at, c0 | (c1 << 4), mask=mask)
            else:
                tl.store(at, c0, mask=mask)
                tl.store(at + HALF, c1, mask=mask)
        params = params_ptr.to(tl.pointer_type(tl.float16)) + 2 * offset
        tl.store(params, s0, mask=in_token)
        tl.store(params + 1, z0, mask=in_token)
        if GROUPS == 2:
            tl.store(params + 2 * PAGE, s1, mask=in_token)
            tl.store(params + 2 * PAGE + 1, z1, mask=in_token)


@triton.jit
def append_kernel(
    k_ptr, v_ptr, pages_ptr, table_ptr, rows_ptr, positions_ptr, h_ptr, num_tokens, token_stride, head_stride,
    table_stride, page_bytes, rotate_scale, HEADS: tl.constexpr, D: tl.constexpr, D2: tl.constexpr, P2: tl.constexpr,
    PAGE: tl.constexpr, CODE_BYTES: tl.constexpr, GROUPS: tl.constexpr, KIND: tl.constexpr, BF16: tl.constexpr,
    ROTATE_K: tl.constexpr, ROTATE_V: tl.constexpr, BLOCK_T: tl.constexpr, FAST: tl.constexpr,
):
    """Write one head of a block of tokens. Grid: (cdiv(T, BLOCK_T), K).

    Token i goes to place positions[i] of the sequence in row rows[i] of the table; where that place has no page (-1), or is
    below 0, it is left out.
    """
    offs_t = tl.program_id(0) * BLOCK_T + tl.arange(0, BLOCK_T)
    head = tl.program_id(1)
    in_token = offs_t < num_tokens
    row = tl.load(rows_ptr + offs_t, mask=in_token, other=0)
    position = tl.load(positions_ptr + offs_t, mask=in_token, other=0)
    in_token = in_token & (position >= 0)
    page = tl.load(table_ptr + row * table_stride + position // PAGE, mask=in_token, other=-1).to(tl.int64)
    in_token = in_token & (page >= 0)
    offset = position % PAGE
    offs_d = tl.arange(0, P2)
    in_dim = offs_d < D2
    mask = in_token[:, None] & in_dim[None, :]
    at = offs_t.to(tl.int64)[:, None] * token_stride + head * head_stride + offs_d[None, :]
    base = pages_ptr + tl.where(in_token, page, 0) * page_bytes
    CODES: tl.constexpr = HEADS * PAGE * CODE_BYTES
    PARAMS: tl.constexpr = HEADS * GROUPS * 2 * PAGE * 2
    codes = base + head * (PAGE * CODE_BYTES)
    params = base + 2 * CODES + head * (GROUPS * 2 * PAGE * 2)
    k0, k1 = _turned(k_ptr, h_ptr, at, mask, offs_d, in_dim, rotate_scale, D, D2, ROTATE_K, FAST)
    _store(
        codes, params, offset, k0, k1, mask, in_token, offs_d, in_dim, D2, PAGE, CODE_BYTES, GROUPS, KIND, BF16,
        False, FAST,
    )
    v0, v1 = _turned(v_ptr, h_ptr, at, mask, offs_d, in_dim, rotate_scale, D, D2, ROTATE_V, FAST)
    _store(
        codes + CODES, params + PARAMS, offset, v0, v1, mask, in_token, offs_d, in_dim, D2, PAGE, CODE_BYTES, GROUPS,
        KIND, BF16, True, FAST,
    )
