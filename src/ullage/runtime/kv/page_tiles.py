"""Loads a page's codes and parameters as a kernel's tiles, in Triton.

Shapes: N tokens of a page; D values of a vector in two halves of D2, padded to P2.
"""

# A kernel has many arguments: several to a line.
# fmt: off

from __future__ import annotations

import triton
import triton.language as tl

# A small integer's bits, read as float16, are that integer times this: a subnormal, which tensor cores take as any other.
# So codes are not converted at all, and what they are multiplied by makes up for it.
CODE_UNIT = tl.constexpr(1.0 / 16777216.0)
UNITS = tl.constexpr(16777216.0)


@triton.jit
def nibbles(raw, FAST: tl.constexpr):
    """Spread the low and the high four bits of bytes to float16: codes in units of CODE_UNIT."""
    if FAST:
        low, high = tl.inline_asm_elementwise(
            asm="""
            {
            .reg .b32 t, u;
            and.b32 t, $4, 0x0f0f0f0f;
            shr.u32 u, $4, 4;
            and.b32 u, u, 0x0f0f0f0f;
            prmt.b32 $0, t, 0, 0x4140;
            prmt.b32 $1, t, 0, 0x4342;
            prmt.b32 $2, u, 0, 0x4140;
            prmt.b32 $3, u, 0, 0x4342;
            }
            """,
            constraints="=r,=r,=r,=r,r",
            args=[raw],
            dtype=(tl.float16, tl.float16),
            is_pure=True,
            pack=4,
        )
    else:
        low = ((raw & 15).to(tl.float32) * CODE_UNIT).to(tl.float16)
        high = ((raw >> 4).to(tl.float32) * CODE_UNIT).to(tl.float16)
    return low, high


@triton.jit
def bytes_as_codes(raw, FAST: tl.constexpr):
    """Spread bytes to float16: codes in units of CODE_UNIT."""
    if FAST:
        out = tl.inline_asm_elementwise(
            asm="""
            prmt.b32 $0, $2, 0, 0x4140;
            prmt.b32 $1, $2, 0, 0x4342;
            """,
            constraints="=r,=r,r",
            args=[raw],
            dtype=tl.float16,
            is_pure=True,
            pack=4,
        )
    else:
        out = (raw.to(tl.float32) * CODE_UNIT).to(tl.float16)
    return out


@triton.jit
def key_halves(
    codes_ptr, offs_n, offs_d, in_dim, is_there, CODE_BYTES: tl.constexpr, D2: tl.constexpr, KIND: tl.constexpr,
    MASKED: tl.constexpr, PADDED: tl.constexpr, FAST: tl.constexpr,
):
    """Load a page's codes of one head: both halves, [N, P2]; what is masked is 0."""
    if KIND == 3:
        at = codes_ptr + offs_n[:, None] * CODE_BYTES + offs_d[None, :]
        if MASKED or PADDED:
            raw = tl.load(at, mask=is_there[:, None] & in_dim[None, :], other=0)
        else:
            raw = tl.load(at)
        low, high = nibbles(raw, FAST)
    else:
        STRIDE: tl.constexpr = CODE_BYTES if KIND != 0 else CODE_BYTES // 2
        at = codes_ptr + offs_n[:, None] * STRIDE + offs_d[None, :]
        if MASKED or PADDED:
            mask = is_there[:, None] & in_dim[None, :]
            low = tl.load(at, mask=mask, other=0)
            high = tl.load(at + D2, mask=mask, other=0)
        else:
            low = tl.load(at)
            high = tl.load(at + D2)
        if KIND == 2:
            low = bytes_as_codes(low, FAST)
            high = bytes_as_codes(high, FAST)
        elif KIND == 0:
            if not FAST:  # Triton's interpreter cannot multiply matrices of bfloat16
                low = low.to(tl.float32)
                high = high.to(tl.float32)
        elif KIND == 1:
            low = low.to(tl.float8e4nv, bitcast=True).to(tl.float16)
            high = high.to(tl.float8e4nv, bitcast=True).to(tl.float16)
    return low, high


@triton.jit
def value_halves(
    codes_ptr, offs_n, offs_d, in_dim, is_there, PAGE: tl.constexpr, CODE_BYTES: tl.constexpr, D2: tl.constexpr,
    KIND: tl.constexpr, MASKED: tl.constexpr, PADDED: tl.constexpr, FAST: tl.constexpr,
):
    """Load a page's value codes of one head: both halves, [P2, N].

    They lie a value's tokens beside each other: tensor cores want what is summed over, here tokens, in one register.
    """
    if KIND == 0:
        low_nd, high_nd = key_halves(
            codes_ptr, offs_n, offs_d, in_dim, is_there, CODE_BYTES, D2, KIND, MASKED, PADDED, FAST
        )
        low = tl.trans(low_nd)
        high = tl.trans(high_nd)
    else:
        at = codes_ptr + offs_d[:, None] * PAGE + offs_n[None, :]
        if MASKED or PADDED:
            raw = tl.load(at, mask=in_dim[:, None] & is_there[None, :], other=0)
        else:
            raw = tl.load(at)
        if KIND == 3:
            low, high = nibbles(raw, FAST)
        else:
            if MASKED or PADDED:
                more = tl.load(at + D2 * PAGE, mask=in_dim[:, None] & is_there[None, :], other=0)
            else:
                more = tl.load(at + D2 * PAGE)
            if KIND == 2:
                low = bytes_as_codes(raw, FAST)
                high = bytes_as_codes(more, FAST)
            else:
                low = raw.to(tl.float8e4nv, bitcast=True).to(tl.float16)
                high = more.to(tl.float8e4nv, bitcast=True).to(tl.float16)
    return low, high


@triton.jit
def scale_and_zero(ptr, offs_n, is_there, MASKED: tl.constexpr):
    """Load the scale and the zero of a group of each token, float32 [N]; they lie beside each other."""
    at = ptr.to(tl.pointer_type(tl.int32)) + offs_n
    if MASKED:
        both = tl.load(at, mask=is_there, other=0)
    else:
        both = tl.load(at)
    scale = (both & 0xFFFF).to(tl.int16).to(tl.float16, bitcast=True).to(tl.float32)
    zero = ((both >> 16) & 0xFFFF).to(tl.int16).to(tl.float16, bitcast=True).to(tl.float32)
    return scale, zero


@triton.jit
def decoded(codes, scale, zero, KIND: tl.constexpr, HAS_ZERO: tl.constexpr):
    """Turn codes, as the halves above have them, into the values that they stand for, float16."""
    if KIND >= 2:
        codes = (codes * 4096.0) * 4096.0  # both exact, where UNITS itself is beyond float16
    values = codes * scale.to(tl.float16)
    if HAS_ZERO:
        values += zero.to(tl.float16)
    return values


@triton.jit
def decoded_tiles(
    k_ptr, v_ptr, params, offs_n, is_there, PARAMS: tl.constexpr, PAGE: tl.constexpr, CODE_BYTES: tl.constexpr,
    GROUPS: tl.constexpr, D2: tl.constexpr, P2: tl.constexpr, KIND: tl.constexpr, HAS_ZERO: tl.constexpr,
    MASKED: tl.constexpr, FAST: tl.constexpr,
):
    """Load a page's codes of one head as the values that they stand for: keys and values as halves [N, P2]."""
    offs_d = tl.arange(0, P2)
    in_dim = offs_d < D2
    PADDED: tl.constexpr = P2 != D2
    k0, k1 = key_halves(k_ptr, offs_n, offs_d, in_dim, is_there, CODE_BYTES, D2, KIND, MASKED, PADDED, FAST)
    v0, v1 = value_halves(v_ptr, offs_n, offs_d, in_dim, is_there, PAGE, CODE_BYTES, D2, KIND, MASKED, PADDED, FAST)
    ks0, kz0 = scale_and_zero(params, offs_n, is_there, MASKED)
    vs0, vz0 = scale_and_zero(params + PARAMS, offs_n, is_there, MASKED)
    ks1, kz1, vs1, vz1 = ks0, kz0, vs0, vz0
    if GROUPS == 2:
        ks1, kz1 = scale_and_zero(params + 2 * PAGE, offs_n, is_there, MASKED)
        vs1, vz1 = scale_and_zero(params + PARAMS + 2 * PAGE, offs_n, is_there, MASKED)
    k0 = decoded(k0, ks0[:, None], kz0[:, None], KIND, HAS_ZERO)
    k1 = decoded(k1, ks1[:, None], kz1[:, None], KIND, HAS_ZERO)
    v0 = tl.trans(decoded(v0, vs0[None, :], vz0[None, :], KIND, HAS_ZERO))
    v1 = tl.trans(decoded(v1, vs1[None, :], vz1[None, :], KIND, HAS_ZERO))
    return k0, k1, v0, v1


@triton.jit
def rotation_signs(h_ptr, offs_d, in_dim, D: tl.constexpr, D2: tl.constexpr):
    """Load the block-Hadamard matrix's signs, as the four blocks that take halves of vectors to halves, [P2, P2] each."""
    square = in_dim[:, None] & in_dim[None, :]
    at = h_ptr + offs_d[:, None] * D + offs_d[None, :]
    h00 = tl.load(at, mask=square, other=0)
    h01 = tl.load(at + D2, mask=square, other=0)
    h10 = tl.load(at + D2 * D, mask=square, other=0)
    h11 = tl.load(at + D2 * D + D2, mask=square, other=0)
    return h00, h01, h10, h11
