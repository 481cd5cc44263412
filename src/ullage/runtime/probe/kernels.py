"""Kernels that read and write by raw addresses, in Triton, so that they take any memory that the GPU can reach.

What a kernel reads, it sums, and stores only where the sum is one that does not occur: loads stay, and nothing is written.
"""

from __future__ import annotations

import triton
import triton.language as tl

READ_WORDS = 4096
READ_UNROLL = 4
READ_BYTES = 4 * READ_WORDS * READ_UNROLL  # of a program
NUM_WARPS = 8
GATHER_LANES = 1024
GATHER_ROUNDS = 8
STRIDED_LANES = 1024
_NEVER = tl.constexpr(-559038737)
_MIX = tl.constexpr(-1640531535)  # 2^32 / golden ratio, odd: neighbours land far apart


@triton.jit
def read_kernel(address, sink, num_parts, WORDS: tl.constexpr, UNROLL: tl.constexpr):
    """Read one part of WORDS * UNROLL words; more programs than parts read them again. Loads pass the first cache by."""
    words = tl.multiple_of(address.to(tl.pointer_type(tl.int32)), 16)
    part = (tl.program_id(0) % num_parts).to(tl.int64)
    offs = tl.arange(0, WORDS)
    total = tl.zeros([WORDS], tl.int32)
    for step in tl.static_range(UNROLL):
        total += tl.load(words + (part * UNROLL + step) * WORDS + offs, cache_modifier=".cg")
    found = tl.sum(total)
    if found == _NEVER:
        tl.store(sink, found)


@triton.jit
def write_kernel(address, value, WORDS: tl.constexpr, UNROLL: tl.constexpr):
    """Write one part of WORDS * UNROLL words."""
    words = tl.multiple_of(address.to(tl.pointer_type(tl.int32)), 16)
    part = tl.program_id(0).to(tl.int64)
    offs = tl.arange(0, WORDS)
    for step in tl.static_range(UNROLL):
        tl.store(words + (part * UNROLL + step) * WORDS + offs, tl.full([WORDS], 0, tl.int32) + value)


@triton.jit
def strided_kernel(address, sink, STRIDE_WORDS: tl.constexpr, LANES: tl.constexpr):
    """Read one word in each stride."""
    words = address.to(tl.pointer_type(tl.int32))
    lanes = tl.program_id(0).to(tl.int64) * LANES + tl.arange(0, LANES)
    found = tl.sum(tl.load(words + lanes * STRIDE_WORDS))
    if found == _NEVER:
        tl.store(sink, found)


@triton.jit
def chain_kernel(address, place_ptr, num_steps):
    """Follow a chain: each word of eight bytes holds the index of the next; where it ends, the next launch goes on."""
    words = address.to(tl.pointer_type(tl.int64))
    place = tl.load(place_ptr)
    for _ in range(num_steps):
        place = tl.load(words + place, cache_modifier=".cg")
    tl.store(place_ptr, place)


@triton.jit
def gather_kernel(address, sink, num_places, stride_bytes, seed, LANES: tl.constexpr, ROUNDS: tl.constexpr):
    """Read a word at one random place after the other, ROUNDS for each lane; strides are powers of two.

    A place lies as many cache lines into its stride as its number says, so that places share the cache's sets evenly.
    """
    start = address.to(tl.pointer_type(tl.int8))
    lanes = tl.program_id(0) * LANES + tl.arange(0, LANES)
    total = tl.zeros([LANES], tl.int32)
    for step in tl.static_range(ROUNDS):
        mixed = (lanes * ROUNDS + step + seed) * _MIX
        mixed = (mixed ^ (mixed >> 15)) * _MIX
        bits = mixed.to(tl.uint32, bitcast=True)
        place = ((bits ^ (bits >> 13)).to(tl.int64) * num_places) >> 32
        at = place * stride_bytes + ((place * 128) & (stride_bytes - 1))
        total += tl.load((start + at).to(tl.pointer_type(tl.int32)), cache_modifier=".cg")
    found = tl.sum(total)
    if found == _NEVER:
        tl.store(sink, found)
