"""Prefill attention, in Triton: many new tokens in 16 bits against a history in pages, and causally against each other.

Shapes: T new tokens of B sequences, H query heads, K KV heads, D values of a vector in two halves of D2 (padded to P2),
M rows of a program, N tokens that are taken at a time (a page of the history, a block of new ones), S parts.

A row is a token and one of the query heads that share a KV head, so that these fill the tensor cores together:

    row    0       1       2       3       4       5            QUERIES = 3
           |  token 0: heads 0 1 2 |  token 1: heads 0 1 2 | ...

Codes become float16 values in registers here, where `decode_kernel` leaves them as they are: with as many rows as a vector has
values, two operations for each code are fewer than four for each score and as many for each weight. Values beyond float16's
range cannot be held.
"""

# A kernel has many arguments: several to a line.
# fmt: off

from __future__ import annotations

import triton
import triton.language as tl

from ullage.runtime.kv.page_tiles import decoded_tiles

_LOG2E = tl.constexpr(1.4426950408889634)
_LOWEST = tl.constexpr(-1e30)  # a maximum of nothing; infinities would make NaN of their difference
_SEARCHED = tl.constexpr(256)  # sequences that are looked through at a time


@triton.jit
def _for_dot(x, FLOAT: tl.constexpr, BF16: tl.constexpr):
    if FLOAT:
        y = x.to(tl.float32)
    elif BF16:
        y = x.to(tl.bfloat16)
    else:
        y = x.to(tl.float16)
    return y


@triton.jit
def _sequence_of(block, starts_ptr, num_sequences, QUERIES: tl.constexpr, BLOCK_M: tl.constexpr):
    """Return the sequence that a block of rows belongs to, and the number of that sequence's first block.

    Sequence i begins with block starts[i] * QUERIES // BLOCK_M + i, which leaves each of them enough: no host has to count.
    """
    found = -1
    for begin in range(0, num_sequences, _SEARCHED):
        index = begin + tl.arange(0, _SEARCHED)
        is_there = index < num_sequences
        start = tl.load(starts_ptr + index, mask=is_there, other=0)
        found += tl.sum(((start * QUERIES // BLOCK_M + index <= block) & is_there).to(tl.int32), 0)
    return found, tl.load(starts_ptr + found) * QUERIES // BLOCK_M + found


@triton.jit
def _softmax_step(
    state, scores, v0, v1, scale, softcap, SOFTCAP: tl.constexpr, MASKED: tl.constexpr,
):
    """Take scores [M, N], -inf where a row does not see a token, and values [N, P2] into the running softmax."""
    acc0, acc1, weight, top = state
    to_base_2 = scale * _LOG2E
    if SOFTCAP:
        # tanh(x) = 1 - 2 / (exp(2x) + 1)
        capped = softcap * (1.0 - 2.0 / (tl.exp2(scores * (2.0 * to_base_2 / softcap)) + 1.0))
        if MASKED:
            capped = tl.where(scores == float("-inf"), float("-inf"), capped)
        scores = capped
        to_base_2 = _LOG2E
    new_top = tl.maximum(top, tl.max(scores, 1) * to_base_2)
    if MASKED:
        new_top = tl.maximum(new_top, _LOWEST)
    p = tl.exp2(scores * to_base_2 - new_top[:, None])
    fade = tl.exp2(top - new_top)
    weight = weight * fade + tl.sum(p, 1)
    p = p.to(v0.dtype)
    acc0 = tl.dot(p, v0, acc0 * fade[:, None])
    acc1 = tl.dot(p, v1, acc1 * fade[:, None])
    return acc0, acc1, weight, new_top


@triton.jit
def _plain_tiles(
    k_ptr, v_ptr, offs_n, k_stride, v_stride, is_there, D: tl.constexpr, D2: tl.constexpr, P2: tl.constexpr,
    BF16: tl.constexpr, MASKED: tl.constexpr, FAST: tl.constexpr,
):
    """Load vectors of 16 bits: keys whole [N, 2 * P2], values as halves [N, P2]; what is masked is 0."""
    offs_p = tl.arange(0, 2 * P2)
    offs_d = tl.arange(0, P2)
    k_at = k_ptr + offs_n[:, None] * k_stride + offs_p[None, :]
    v_at = v_ptr + offs_n[:, None] * v_stride + offs_d[None, :]
    if MASKED or P2 != D2:
        k = tl.load(k_at, mask=is_there[:, None] & (offs_p < D)[None, :], other=0)
        mask = is_there[:, None] & (offs_d < D2)[None, :]
        v0 = tl.load(v_at, mask=mask, other=0)
        v1 = tl.load(v_at + D2, mask=mask, other=0)
    else:
        k = tl.load(k_at)
        v0 = tl.load(v_at)
        v1 = tl.load(v_at + D2)
    return _for_dot(k, not FAST, BF16), _for_dot(v0, not FAST, BF16), _for_dot(v1, not FAST, BF16)


@triton.jit
def _take_pages(
    state, begin, end, q0, q1, row_token, pages_ptr, table_ptr, head, first_token, past, page_bytes, scale, softcap,
    window, HEADS: tl.constexpr, PAGE: tl.constexpr, CODE_BYTES: tl.constexpr, GROUPS: tl.constexpr, D: tl.constexpr,
    D2: tl.constexpr, P2: tl.constexpr, KIND: tl.constexpr, BF16: tl.constexpr, HAS_ZERO: tl.constexpr,
    SOFTCAP: tl.constexpr, WINDOW: tl.constexpr, MASKED: tl.constexpr, FAST: tl.constexpr, STAGES: tl.constexpr,
):
    """Take pages [begin, end); not masked: all of them are seen whole by all rows."""
    CODES: tl.constexpr = HEADS * PAGE * CODE_BYTES
    PARAMS: tl.constexpr = HEADS * GROUPS * 2 * PAGE
    offs_n = tl.arange(0, PAGE)
    for index in tl.range(begin, end, num_stages=STAGES):
        token = index * PAGE + offs_n
        is_there = (token < past) & (token >= first_token)
        base = pages_ptr + tl.load(table_ptr + index).to(tl.int64) * page_bytes
        k_ptr = base + head * (PAGE * CODE_BYTES)
        if KIND == 0:
            plain_ptr = k_ptr.to(tl.pointer_type(tl.bfloat16 if BF16 else tl.float16))
            k, v0, v1 = _plain_tiles(
                plain_ptr, plain_ptr + CODES // 2, offs_n, D, D, is_there, D, D2, P2, BF16, MASKED, FAST
            )
            scores = tl.dot(q0, tl.trans(k))
        else:
            params = (base + 2 * CODES).to(tl.pointer_type(tl.float16)) + head * (GROUPS * 2 * PAGE)
            k0, k1, v0, v1 = decoded_tiles(
                k_ptr, k_ptr + CODES, params, offs_n, is_there, PARAMS, PAGE, CODE_BYTES, GROUPS, D2, P2, KIND, HAS_ZERO,
                MASKED, FAST,
            )
            scores = tl.dot(q1, tl.trans(k1), tl.dot(q0, tl.trans(k0)))
        if MASKED:
            is_seen = is_there[None, :]
            if WINDOW:
                is_seen = is_seen & (token[None, :] > past + row_token[:, None] - window)
            scores = tl.where(is_seen, scores, float("-inf"))
        state = _softmax_step(state, scores, v0, v1, scale, softcap, SOFTCAP, MASKED)
    return state


@triton.jit
def _take_new(
    state, begin, end, q, row_token, k_ptr, v_ptr, end_token, k_stride, v_stride, scale, softcap, window,
    D: tl.constexpr, D2: tl.constexpr, P2: tl.constexpr, BF16: tl.constexpr, SOFTCAP: tl.constexpr,
    WINDOW: tl.constexpr, BLOCK_N: tl.constexpr, MASKED: tl.constexpr, FAST: tl.constexpr, STAGES: tl.constexpr,
):
    """Take blocks [begin, end) of the sequence's new tokens; not masked: all of them are seen whole by all rows."""
    offs_n = tl.arange(0, BLOCK_N)
    for index in tl.range(begin, end, num_stages=STAGES):
        token = index * BLOCK_N + offs_n
        first = tl.cast(index * BLOCK_N, tl.int64)
        k, v0, v1 = _plain_tiles(
            k_ptr + first * k_stride, v_ptr + first * v_stride, offs_n, k_stride, v_stride, token < end_token, D, D2, P2,
            BF16, MASKED, FAST,
        )
        scores = tl.dot(q, tl.trans(k))
        if MASKED:
            is_seen = token[None, :] <= row_token[:, None]
            if WINDOW:
                is_seen = is_seen & (token[None, :] > row_token[:, None] - window)
            scores = tl.where(is_seen, scores, float("-inf"))
        state = _softmax_step(state, scores, v0, v1, scale, softcap, SOFTCAP, MASKED)
    return state


@triton.jit
def _turned(
    x, h_ptr, D: tl.constexpr, FROM: tl.constexpr, P_FROM: tl.constexpr, TO: tl.constexpr, P_TO: tl.constexpr
):
    """Multiply rows [M, P_FROM] by FROM x TO signs of the block-Hadamard matrix: float32 [M, P_TO]."""
    offs_from = tl.arange(0, P_FROM)
    offs_to = tl.arange(0, P_TO)
    at = h_ptr + offs_from[:, None] * D + offs_to[None, :]
    signs = tl.load(at, mask=(offs_from < FROM)[:, None] & (offs_to < TO)[None, :], other=0)
    return tl.dot(x.to(signs.dtype), signs)


@triton.jit
def _history_query(
    q_at, h_ptr, in_row, rotate_scale, D: tl.constexpr, D2: tl.constexpr, P2: tl.constexpr, KIND: tl.constexpr,
    BF16: tl.constexpr, ROTATE: tl.constexpr, FAST: tl.constexpr,
):
    """Load queries, turned where keys are: whole [M, 2 * P2] for plain pages (twice the same), or both halves [M, P2]."""
    offs_p = tl.arange(0, 2 * P2)
    offs_d = tl.arange(0, P2)
    whole = in_row[:, None] & (offs_p < D)[None, :]
    half = in_row[:, None] & (offs_d < D2)[None, :]
    if ROTATE:
        q = tl.load(q_at[:, None] + offs_p[None, :], mask=whole, other=0)
        if KIND == 0:
            x0 = _turned(q, h_ptr, D, D, 2 * P2, D, 2 * P2) * rotate_scale
            x1 = x0
        else:
            x0 = _turned(q, h_ptr, D, D, 2 * P2, D2, P2) * rotate_scale
            x1 = _turned(q, h_ptr + D2, D, D, 2 * P2, D2, P2) * rotate_scale
    elif KIND == 0:
        x0 = tl.load(q_at[:, None] + offs_p[None, :], mask=whole, other=0)
        x1 = x0
    else:
        x0 = tl.load(q_at[:, None] + offs_d[None, :], mask=half, other=0)
        x1 = tl.load(q_at[:, None] + D2 + offs_d[None, :], mask=half, other=0)
    FLOAT: tl.constexpr = KIND == 0 and not FAST
    return _for_dot(x0, FLOAT, KIND == 0 and BF16), _for_dot(x1, FLOAT, KIND == 0 and BF16)


@triton.jit
def _turned_back(state, h_ptr, rotate_scale, D: tl.constexpr, D2: tl.constexpr, P2: tl.constexpr):
    """Turn what came of turned values back, since new ones are not turned. float16 holds it once it is normalised."""
    acc0, acc1, weight, top = state
    known = tl.where(weight == 0.0, 1.0, weight)[:, None]
    x0 = acc0 / known
    x1 = acc1 / known
    y0 = _turned(x0, h_ptr, D, D2, P2, D2, P2) + _turned(x1, h_ptr + D2 * D, D, D2, P2, D2, P2)
    y1 = _turned(x0, h_ptr + D2, D, D2, P2, D2, P2) + _turned(x1, h_ptr + D2 * D + D2, D, D2, P2, D2, P2)
    return y0 * (known * rotate_scale), y1 * (known * rotate_scale), weight, top


@triton.jit
def _over_history(
    state, begin, end, q_at, in_row, row_token, pages_ptr, table_ptr, h_ptr, head, first_token, end_token, past,
    page_bytes, scale, softcap, window, rotate_scale, HEADS: tl.constexpr, PAGE: tl.constexpr, CODE_BYTES: tl.constexpr,
    GROUPS: tl.constexpr, D: tl.constexpr, D2: tl.constexpr, P2: tl.constexpr, KIND: tl.constexpr, BF16: tl.constexpr,
    HAS_ZERO: tl.constexpr, ROTATE_K: tl.constexpr, ROTATE_V: tl.constexpr, SOFTCAP: tl.constexpr, WINDOW: tl.constexpr,
    FAST: tl.constexpr, STAGES: tl.constexpr,
):
    """Attend over pages [begin, end): those where windows begin and the last one are seen in part, the others whole."""
    q0, q1 = _history_query(q_at, h_ptr, in_row, rotate_scale, D, D2, P2, KIND, BF16, ROTATE_K, FAST)
    whole_begin = begin
    if WINDOW:
        whole_begin = tl.minimum(tl.maximum(begin, tl.cdiv(past + end_token - window, PAGE)), end)
        state = _take_pages(
            state, begin, whole_begin, q0, q1, row_token, pages_ptr, table_ptr, head, first_token, past, page_bytes, scale,
            softcap, window, HEADS, PAGE, CODE_BYTES, GROUPS, D, D2, P2, KIND, BF16, HAS_ZERO, SOFTCAP, WINDOW, True, FAST,
            STAGES,
        )
    whole_end = tl.maximum(tl.minimum(end, past // PAGE), whole_begin)
    state = _take_pages(
        state, whole_begin, whole_end, q0, q1, row_token, pages_ptr, table_ptr, head, first_token, past, page_bytes, scale,
        softcap, window, HEADS, PAGE, CODE_BYTES, GROUPS, D, D2, P2, KIND, BF16, HAS_ZERO, SOFTCAP, WINDOW, False, FAST,
        STAGES,
    )
    state = _take_pages(
        state, whole_end, end, q0, q1, row_token, pages_ptr, table_ptr, head, first_token, past, page_bytes, scale,
        softcap, window, HEADS, PAGE, CODE_BYTES, GROUPS, D, D2, P2, KIND, BF16, HAS_ZERO, SOFTCAP, WINDOW, True, FAST,
        STAGES,
    )
    if ROTATE_V:
        state = _turned_back(state, h_ptr, rotate_scale, D, D2, P2)
    return state


@triton.jit
def _over_new(
    state, begin, end, q_at, in_row, row_token, k_ptr, v_ptr, low_token, end_token, k_stride, v_stride, scale, softcap,
    window, D: tl.constexpr, D2: tl.constexpr, P2: tl.constexpr, SOFTCAP: tl.constexpr, WINDOW: tl.constexpr,
    BLOCK_N: tl.constexpr, FAST: tl.constexpr, STAGES: tl.constexpr,
):
    """Attend over blocks [begin, end) of new tokens: those where windows begin or end are seen in part, the others whole."""
    BF16: tl.constexpr = k_ptr.dtype.element_ty == tl.bfloat16
    offs_p = tl.arange(0, 2 * P2)
    q = tl.load(q_at[:, None] + offs_p[None, :], mask=in_row[:, None] & (offs_p < D)[None, :], other=0)
    q = _for_dot(q, not FAST, BF16)
    whole_begin = begin
    if WINDOW:
        whole_begin = tl.minimum(tl.maximum(begin, tl.cdiv(tl.maximum(end_token - window, 0), BLOCK_N)), end)
        state = _take_new(
            state, begin, whole_begin, q, row_token, k_ptr, v_ptr, end_token, k_stride, v_stride, scale, softcap, window, D,
            D2, P2, BF16, SOFTCAP, WINDOW, BLOCK_N, True, FAST, STAGES,
        )
    whole_end = tl.maximum(tl.minimum(end, (low_token + 1) // BLOCK_N), whole_begin)
    state = _take_new(
        state, whole_begin, whole_end, q, row_token, k_ptr, v_ptr, end_token, k_stride, v_stride, scale, softcap, window, D,
        D2, P2, BF16, SOFTCAP, WINDOW, BLOCK_N, False, FAST, STAGES,
    )
    return _take_new(
        state, whole_end, end, q, row_token, k_ptr, v_ptr, end_token, k_stride, v_stride, scale, softcap, window, D, D2, P2,
        BF16, SOFTCAP, WINDOW, BLOCK_N, True, FAST, STAGES,
    )


@triton.jit
def _share(first, end, other_first, other_end, split, num_splits, WEIGHT: tl.constexpr):
    """Return a part's share of two ranges, one after the other: [begin, end) of each. One of the second weighs WEIGHT."""
    count = end - first
    per_split = tl.cdiv(count + (other_end - other_first) * WEIGHT, num_splits)
    low = split * per_split
    high = low + per_split
    other_low = other_first + tl.cdiv(tl.maximum(low - count, 0), WEIGHT)
    other_high = other_first + tl.cdiv(tl.maximum(high - count, 0), WEIGHT)
    return first + low, tl.minimum(first + high, end), other_low, tl.minimum(other_high, other_end)


@triton.jit
def _write(
    state, out_ptr, lse_ptr, at, in_row, split, num_splits, D: tl.constexpr, D2: tl.constexpr, P2: tl.constexpr,
    IS_SPLIT: tl.constexpr,
):
    """Write the rows' output, or that of a part and the logarithm of its weight."""
    acc0, acc1, weight, top = state
    known = tl.where(weight == 0.0, 1.0, weight)
    if IS_SPLIT:
        at = at * num_splits + split
        tl.store(lse_ptr + at, tl.where(weight == 0.0, float("-inf"), top + tl.log2(known)), mask=in_row)
    offs_d = tl.arange(0, P2)
    mask = in_row[:, None] & (offs_d < D2)[None, :]
    out_at = out_ptr + at[:, None] * D + offs_d[None, :]
    tl.store(out_at, (acc0 / known[:, None]).to(out_ptr.dtype.element_ty), mask=mask)
    tl.store(out_at + D2, (acc1 / known[:, None]).to(out_ptr.dtype.element_ty), mask=mask)


@triton.jit
def prefill_kernel(
    q_ptr, k_ptr, v_ptr, pages_ptr, table_ptr, starts_ptr, past_ptr, h_ptr, out_ptr, lse_ptr, q_token_stride,
    q_head_stride, k_token_stride, k_head_stride, v_token_stride, v_head_stride, table_stride, page_bytes, scale,
    softcap, window, rotate_scale, num_sequences, num_splits, QUERIES: tl.constexpr, HEADS: tl.constexpr,
    D: tl.constexpr, D2: tl.constexpr, P2: tl.constexpr, PAGE: tl.constexpr, CODE_BYTES: tl.constexpr,
    GROUPS: tl.constexpr, KIND: tl.constexpr, BF16: tl.constexpr, HAS_ZERO: tl.constexpr, ROTATE_K: tl.constexpr,
    ROTATE_V: tl.constexpr, SOFTCAP: tl.constexpr, WINDOW: tl.constexpr, IS_SPLIT: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, FAST: tl.constexpr, STAGES: tl.constexpr,
):
    """Attend with a block of rows of one sequence and KV head to one part of what it sees.

    Grid: (T * QUERIES // BLOCK_M + B, K, S). Writes out [T, H, D], or of each part out [T, H, S, D] float32, normalised, and
    the logarithm (base 2) of its weight [T, H, S].
    """
    block, head, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    sequence, first_block = _sequence_of(block, starts_ptr, num_sequences, QUERIES, BLOCK_M)
    start = tl.load(starts_ptr + sequence)
    num_new = tl.load(starts_ptr + sequence + 1) - start
    past = tl.load(past_ptr + sequence)
    num_blocks = tl.cdiv(num_new * QUERIES, BLOCK_M)
    if block - first_block >= num_blocks:
        return
    # The last tokens see the most, so they go first.
    first_row = (num_blocks - 1 - (block - first_block)) * BLOCK_M
    rows = first_row + tl.arange(0, BLOCK_M)
    row_token = rows // QUERIES
    row_head = head * QUERIES + rows % QUERIES
    low_token = first_row // QUERIES
    end_token = tl.minimum((first_row + BLOCK_M - 1) // QUERIES + 1, num_new)
    in_row = rows < num_new * QUERIES
    q_at = q_ptr + (start + row_token).to(tl.int64) * q_token_stride + row_head * q_head_stride

    # What is seen: pages from the first row's window on, and new tokens up to the last row's.
    first_token = 0
    first_new = 0
    if WINDOW:
        first_token = tl.minimum(tl.maximum(past + low_token + 1 - window, 0), past)
        first_new = tl.maximum(low_token + 1 - window, 0) // BLOCK_N
    end_page = tl.where(first_token < past, tl.cdiv(past, PAGE), first_token // PAGE)
    begin, end, new_begin, new_end = _share(
        first_token // PAGE, end_page, first_new, tl.cdiv(end_token, BLOCK_N), split, num_splits, BLOCK_N // PAGE
    )

    state = (
        tl.zeros([BLOCK_M, P2], tl.float32), tl.zeros([BLOCK_M, P2], tl.float32), tl.zeros([BLOCK_M], tl.float32),
        tl.full([BLOCK_M], float("-inf"), tl.float32),
    )
    if begin < end:
        state = _over_history(
            state, begin, end, q_at, in_row, row_token, pages_ptr, table_ptr + sequence * table_stride, h_ptr, head,
            first_token, end_token, past, page_bytes, scale, softcap, window, rotate_scale, HEADS, PAGE, CODE_BYTES, GROUPS,
            D, D2, P2, KIND, BF16, HAS_ZERO, ROTATE_K, ROTATE_V, SOFTCAP, WINDOW, FAST, STAGES,
        )
    if new_begin < new_end:
        k_ptr += start.to(tl.int64) * k_token_stride + head * k_head_stride
        v_ptr += start.to(tl.int64) * v_token_stride + head * v_head_stride
        state = _over_new(
            state, new_begin, new_end, q_at, in_row, row_token, k_ptr, v_ptr, low_token, end_token, k_token_stride,
            v_token_stride, scale, softcap, window, D, D2, P2, SOFTCAP, WINDOW, BLOCK_N, FAST, STAGES,
        )

    at = (start + row_token).to(tl.int64) * (HEADS * QUERIES) + row_head
    _write(state, out_ptr, lse_ptr, at, in_row, split, num_splits, D, D2, P2, IS_SPLIT)
