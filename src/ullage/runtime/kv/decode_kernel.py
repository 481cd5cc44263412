"""Decode attention straight from pages, in Triton: one new token of each sequence against all that its pages hold.

Shapes: B sequences, H query heads, K KV heads, M = H / K queries that share a KV head (padded to BLOCK_M), D values of a
vector in two halves of D2 (padded to P2), N tokens of a page, S parts that a sequence's pages are split into.

A code c of a group with scale s and zero z stands for c * s + z. Neither is applied to codes: they go to the tensor cores as
the small integers that they are, and

    q . k = s * (q . codes) + z * sum(q)          sum of p * v = sum of (p * s) * codes + sum of p * z

so dequantising costs one multiplication for each token and half, and none for each value.
"""

# A kernel has many arguments: several to a line.
# fmt: off

from __future__ import annotations

import triton
import triton.language as tl

from ullage.runtime.kv.page_tiles import (
    CODE_UNIT,
    UNITS,
    key_halves,
    rotation_signs,
    scale_and_zero,
    value_halves,
)

# Weights of tokens times scales of values are float16: this keeps small ones from losing their last bits.
_LIFT = tl.constexpr(64.0)
_LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def _scores(
    k_ptr, params, q0, q1, sum0, sum1, offs_n, offs_d, in_dim, is_there, softcap, PAGE: tl.constexpr,
    CODE_BYTES: tl.constexpr, GROUPS: tl.constexpr, D2: tl.constexpr, KIND: tl.constexpr, HAS_ZERO: tl.constexpr,
    SOFTCAP: tl.constexpr, MASKED: tl.constexpr, PADDED: tl.constexpr, FAST: tl.constexpr,
):
    """Return the scores of a page's tokens, to the base 2, [N, Q]."""
    k0, k1 = key_halves(k_ptr, offs_n, offs_d, in_dim, is_there, CODE_BYTES, D2, KIND, MASKED, PADDED, FAST)
    s0 = tl.dot(k0, q0)
    if KIND == 0:
        scores = tl.dot(k1, q1, s0)
    else:
        ks0, kz0 = scale_and_zero(params, offs_n, is_there, MASKED)
        if GROUPS == 1:
            scores = tl.dot(k1, q1, s0) * ks0[:, None]
            if HAS_ZERO:
                scores += kz0[:, None] * (sum0 + sum1)[None, :]
        else:
            ks1, kz1 = scale_and_zero(params + 2 * PAGE, offs_n, is_there, MASKED)
            scores = s0 * ks0[:, None] + tl.dot(k1, q1) * ks1[:, None]
            if HAS_ZERO:
                scores += kz0[:, None] * sum0[None, :] + kz1[:, None] * sum1[None, :]
        if KIND >= 2:
            scores *= UNITS
    if SOFTCAP:
        # tanh(x) = 1 - 2 / (exp(2x) + 1)
        scores = (softcap * _LOG2E) * (1.0 - 2.0 / (tl.exp2(scores * (2.0 * _LOG2E / softcap)) + 1.0))
    return scores


@triton.jit
def _page_step(
    state, q0, q1, sum0, sum1, pages_ptr, table_ptr, index, head, first_token, length, offs_n, offs_d, in_dim,
    page_bytes, softcap, HEADS: tl.constexpr, PAGE: tl.constexpr, CODE_BYTES: tl.constexpr, GROUPS: tl.constexpr,
    D2: tl.constexpr, KIND: tl.constexpr, BF16: tl.constexpr, HAS_ZERO: tl.constexpr, SOFTCAP: tl.constexpr,
    MASKED: tl.constexpr, PADDED: tl.constexpr, FAST: tl.constexpr,
):
    """Take one page into the running softmax."""
    acc0, acc1, zero0, zero1, weight, top = state
    page = tl.load(table_ptr + index).to(tl.int64)
    base = pages_ptr + page * page_bytes
    token = index * PAGE + offs_n
    is_there = (token < length) & (token >= first_token)
    CODES: tl.constexpr = HEADS * PAGE * CODE_BYTES
    PARAMS: tl.constexpr = HEADS * GROUPS * 2 * PAGE
    k_ptr = base + head * (PAGE * CODE_BYTES)
    v_ptr = k_ptr + CODES
    if KIND == 0:
        if BF16:
            k_ptr = k_ptr.to(tl.pointer_type(tl.bfloat16))
            v_ptr = v_ptr.to(tl.pointer_type(tl.bfloat16))
        else:
            k_ptr = k_ptr.to(tl.pointer_type(tl.float16))
            v_ptr = v_ptr.to(tl.pointer_type(tl.float16))
    params = (base + 2 * CODES).to(tl.pointer_type(tl.float16)) + head * (GROUPS * 2 * PAGE)
    scores = _scores(
        k_ptr, params, q0, q1, sum0, sum1, offs_n, offs_d, in_dim, is_there, softcap, PAGE, CODE_BYTES, GROUPS, D2,
        KIND, HAS_ZERO, SOFTCAP, MASKED, PADDED, FAST,
    )
    if MASKED:
        scores = tl.where(is_there[:, None], scores, float("-inf"))
    new_top = tl.maximum(top, tl.max(scores, 0))
    if MASKED:
        new_top = tl.maximum(new_top, -1e30)  # of a page of which nothing is seen
    p = tl.exp2(scores - new_top[None, :])
    fade = tl.exp2(top - new_top)
    weight = weight * fade[None, :] + p
    v0, v1 = value_halves(v_ptr, offs_n, offs_d, in_dim, is_there, PAGE, CODE_BYTES, D2, KIND, MASKED, PADDED, FAST)
    if KIND == 0:
        w0 = p.to(v0.dtype)
        w1 = w0
    else:
        vs0, vz0 = scale_and_zero(params + PARAMS, offs_n, is_there, MASKED)
        w0 = (p * (vs0 * _LIFT)[:, None]).to(tl.float16)
        w1 = w0
        if HAS_ZERO:
            zero0 = zero0 * fade[None, :] + p * vz0[:, None]
        if GROUPS == 2:
            vs1, vz1 = scale_and_zero(params + PARAMS + 2 * PAGE, offs_n, is_there, MASKED)
            w1 = (p * (vs1 * _LIFT)[:, None]).to(tl.float16)
            if HAS_ZERO:
                zero1 = zero1 * fade[None, :] + p * vz1[:, None]
    acc0 = tl.dot(v0, w0, acc0 * fade[None, :])
    acc1 = tl.dot(v1, w1, acc1 * fade[None, :])
    return acc0, acc1, zero0, zero1, weight, new_top


@triton.jit
def _query(
    q_ptr, h_ptr, rows, offs_d, in_row, in_dim, q_stride, scale, D: tl.constexpr, D2: tl.constexpr,
    ROTATE: tl.constexpr, BF16_DOT: tl.constexpr, FLOAT_DOT: tl.constexpr,
):
    """Load the queries that share a KV head, both halves [P2, Q], turned where keys are, times a scale."""
    mask = in_dim[:, None] & in_row[None, :]
    at = q_ptr + rows[None, :] * q_stride + offs_d[:, None]
    q0 = tl.load(at, mask=mask, other=0)
    q1 = tl.load(at + D2, mask=mask, other=0)
    if ROTATE:
        h00, h01, h10, h11 = rotation_signs(h_ptr, offs_d, in_dim, D, D2)
        x0 = q0.to(h00.dtype)
        x1 = q1.to(h00.dtype)
        y0 = tl.dot(h01, x1, tl.dot(h00, x0))  # the matrix is symmetric
        y1 = tl.dot(h11, x1, tl.dot(h10, x0))
    else:
        y0 = q0.to(tl.float32)
        y1 = q1.to(tl.float32)
    y0 *= scale
    y1 *= scale
    if FLOAT_DOT:
        z0 = y0
        z1 = y1
    elif BF16_DOT:
        z0 = y0.to(tl.bfloat16)
        z1 = y1.to(tl.bfloat16)
    else:
        z0 = y0.to(tl.float16)
        z1 = y1.to(tl.float16)
    return z0, z1


@triton.jit
def _seen(lengths_ptr, bounds_ptr, batch, window, WINDOW: tl.constexpr, BOUND: tl.constexpr):
    """Return the first token of a sequence that is seen, and the one after the last."""
    end = tl.load(lengths_ptr + batch)
    first_token = 0
    if WINDOW:
        first_token = tl.maximum(end - window, 0)
    if BOUND == 1:
        end = tl.minimum(end, tl.load(bounds_ptr + batch))
    elif BOUND == 2:
        first_token = tl.maximum(first_token, tl.load(bounds_ptr + batch))
    return first_token, end


@triton.jit
def _pages_of(first_token, length, split, num_splits, PAGE: tl.constexpr):
    """Return the pages of a part: the first, and the one after the last."""
    first_page = first_token // PAGE
    end_page = tl.cdiv(length, PAGE)
    per_split = tl.cdiv(tl.maximum(end_page - first_page, 0), num_splits)
    begin = first_page + split * per_split
    return begin, tl.minimum(begin + per_split, end_page)


@triton.jit
def _nothing(P2: tl.constexpr, BLOCK_Q: tl.constexpr, PAGE: tl.constexpr):
    """Return the state before any page. Sums over tokens wait until the end: until then each thread keeps its own."""
    return (
        tl.zeros([P2, BLOCK_Q], tl.float32), tl.zeros([P2, BLOCK_Q], tl.float32),
        tl.zeros([PAGE, BLOCK_Q], tl.float32), tl.zeros([PAGE, BLOCK_Q], tl.float32),
        tl.zeros([PAGE, BLOCK_Q], tl.float32), tl.full([BLOCK_Q], float("-inf"), tl.float32),
    )


@triton.jit
def _write_part(
    state, part, lse_ptr, in_row, in_dim, D2: tl.constexpr, GROUPS: tl.constexpr, KIND: tl.constexpr,
    HAS_ZERO: tl.constexpr,
):
    """Write a part's output, both halves [P2, Q], and the logarithm of its weight [Q]."""
    acc0, acc1, zero0, zero1, weights, top = state
    weight = tl.sum(weights, 0)
    if KIND != 0:
        BACK: tl.constexpr = (UNITS if KIND >= 2 else 1.0) / _LIFT
        acc0 = acc0 * BACK
        acc1 = acc1 * BACK
        if HAS_ZERO:
            both0 = tl.sum(zero0, 0)
            both1 = both0
            if GROUPS == 2:
                both1 = tl.sum(zero1, 0)
            acc0 += both0[None, :]
            acc1 += both1[None, :]
    is_empty = weight == 0.0
    known = tl.where(is_empty, 1.0, weight)
    lse = tl.where(is_empty, float("-inf"), top + tl.log2(known))
    mask = in_dim[:, None] & in_row[None, :]
    tl.store(part, acc0 / known[None, :], mask=mask)
    tl.store(part + D2, acc1 / known[None, :], mask=mask)
    tl.store(lse_ptr, lse, mask=in_row)


@triton.jit
def decode_part_kernel(
    q_ptr, pages_ptr, table_ptr, lengths_ptr, bounds_ptr, h_ptr, part_ptr, lse_ptr, q_batch_stride, q_head_stride,
    table_stride, page_bytes, scale, softcap, window, rotate_scale, num_splits, first_part, num_parts,
    QUERIES: tl.constexpr, HEADS: tl.constexpr, D: tl.constexpr, D2: tl.constexpr, P2: tl.constexpr, PAGE: tl.constexpr,
    CODE_BYTES: tl.constexpr, GROUPS: tl.constexpr, KIND: tl.constexpr, BF16: tl.constexpr, HAS_ZERO: tl.constexpr,
    ROTATE: tl.constexpr, SOFTCAP: tl.constexpr, WINDOW: tl.constexpr, BOUND: tl.constexpr, BLOCK_Q: tl.constexpr,
    FAST: tl.constexpr, STAGES: tl.constexpr,
):
    """Attend to one part of one sequence's pages with the queries of one KV head.

    Grid: (B * K, S). Writes out [B, H, S, D] float32, normalised, and the logarithm (base 2) of its weight [B, H, S]; S is
    num_parts there, and these parts begin at first_part. With BOUND 1, tokens from a sequence's bound on are not seen, with
    BOUND 2 those before it.
    """
    pair = tl.program_id(0)
    split = tl.program_id(1)
    batch = pair // HEADS
    head = pair % HEADS
    first_token, length = _seen(lengths_ptr, bounds_ptr, batch, window, WINDOW, BOUND)
    begin, end = _pages_of(first_token, length, split, num_splits, PAGE)
    offs_q = tl.arange(0, BLOCK_Q)
    offs_d = tl.arange(0, P2)
    offs_n = tl.arange(0, PAGE)
    in_row = offs_q < QUERIES
    in_dim = offs_d < D2
    PADDED: tl.constexpr = P2 != D2
    rows = head * QUERIES + offs_q
    q_scale = scale * rotate_scale if ROTATE else scale
    if not SOFTCAP:
        q_scale *= _LOG2E
    q0, q1 = _query(
        q_ptr + batch * q_batch_stride, h_ptr, rows, offs_d, in_row, in_dim, q_head_stride, q_scale, D, D2, ROTATE,
        KIND == 0 and BF16, KIND == 0 and not FAST,
    )
    UNIT: tl.constexpr = CODE_UNIT if KIND >= 2 else 1.0
    sum0 = tl.sum(q0.to(tl.float32), 0) * UNIT
    sum1 = tl.sum(q1.to(tl.float32), 0) * UNIT
    state = _nothing(P2, BLOCK_Q, PAGE)
    row = table_ptr + batch * table_stride
    # The first page of a window and the last page are seen in part; those between them whole.
    whole_begin = begin
    if WINDOW or BOUND == 2:
        whole_begin = tl.maximum(begin, tl.cdiv(first_token, PAGE))
        if begin < tl.minimum(whole_begin, end):
            state = _page_step(
                state, q0, q1, sum0, sum1, pages_ptr, row, begin, head, first_token, length, offs_n, offs_d, in_dim,
                page_bytes, softcap, HEADS, PAGE, CODE_BYTES, GROUPS, D2, KIND, BF16, HAS_ZERO, SOFTCAP, True,
                PADDED, FAST,
            )
    whole_end = tl.minimum(end, length // PAGE)
    for index in tl.range(whole_begin, whole_end, num_stages=STAGES):
        state = _page_step(
            state, q0, q1, sum0, sum1, pages_ptr, row, index, head, first_token, length, offs_n, offs_d, in_dim,
            page_bytes, softcap, HEADS, PAGE, CODE_BYTES, GROUPS, D2, KIND, BF16, HAS_ZERO, SOFTCAP, False, PADDED,
            FAST,
        )
    if tl.maximum(whole_begin, whole_end) < end:
        state = _page_step(
            state, q0, q1, sum0, sum1, pages_ptr, row, end - 1, head, first_token, length, offs_n, offs_d, in_dim,
            page_bytes, softcap, HEADS, PAGE, CODE_BYTES, GROUPS, D2, KIND, BF16, HAS_ZERO, SOFTCAP, True, PADDED,
            FAST,
        )
    at = ((batch * (HEADS * QUERIES) + rows) * num_parts + first_part + split).to(tl.int64)
    part = part_ptr + at[None, :] * D + offs_d[:, None]
    _write_part(state, part, lse_ptr + at, in_row, in_dim, D2, GROUPS, KIND, HAS_ZERO)


@triton.jit
def merge_kernel(
    part_ptr, lse_ptr, h_ptr, out_ptr, num_splits, rotate_scale, D: tl.constexpr, P: tl.constexpr,
    ROTATE: tl.constexpr, BLOCK_S: tl.constexpr,
):
    """Join the parts of one query head by their weights. Grid: (B * H,). Writes out [B, H, D]."""
    pair = tl.program_id(0).to(tl.int64)
    offs_s = tl.arange(0, BLOCK_S)
    offs_d = tl.arange(0, P)
    is_part = offs_s < num_splits
    lse = tl.load(lse_ptr + pair * num_splits + offs_s, mask=is_part, other=float("-inf"))
    top = tl.maximum(tl.max(lse, 0), -1e30)
    share = tl.exp2(lse - top)
    whole = tl.sum(share, 0)
    share = share / tl.where(whole == 0.0, 1.0, whole)
    at = part_ptr + (pair * num_splits + offs_s)[:, None] * D + offs_d[None, :]
    parts = tl.load(at, mask=is_part[:, None] & (offs_d < D)[None, :], other=0.0)
    out = tl.sum(parts * share[:, None], 0)
    if ROTATE:
        square = (offs_d < D)[:, None] & (offs_d < D)[None, :]
        signs = tl.load(h_ptr + offs_d[:, None] * D + offs_d[None, :], mask=square, other=0).to(tl.float32)
        out = tl.sum(out[:, None] * signs, 0) * rotate_scale
    tl.store(out_ptr + pair * D + offs_d, out.to(out_ptr.dtype.element_ty), mask=offs_d < D)
