"""Keys and values to codes and back, in plain PyTorch: the reference that kernels are held against, and the path for CPUs.

Shapes: N vectors of D values; D2 = D / 2; G groups (1 or 2) with a scale and a zero each.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import torch

if TYPE_CHECKING:
    from ullage.runtime.kv.formats import KVFormat

FP8_MAX = 448.0  # the largest finite value of float8_e4m3fn
_LEVELS = {"int8": 255, "int4": 15}


class Codes(NamedTuple):
    """Vectors as they are stored.

    Attributes:
        codes: uint8 [N, code_bytes]; of 16-bit formats the values' own bytes.
        scales: float16 [N, G].
        zeros: float16 [N, G].
    """

    codes: torch.Tensor
    scales: torch.Tensor
    zeros: torch.Tensor


def hadamard_block(head_dim: int) -> int:
    """Return the largest power of two that divides head_dim: the block that is rotated as one.

    Example:
        >>> hadamard_block(128), hadamard_block(96), hadamard_block(80)
        (128, 32, 16)
    """
    return head_dim & -head_dim


@lru_cache(maxsize=32)
def hadamard(head_dim: int, device: str = "cpu") -> torch.Tensor:
    """Return the block-diagonal matrix of Hadamard blocks, orthogonal and symmetric.

    Args:
        head_dim: Its order D.
        device: Where it is to be.

    Returns:
        float32 [D, D].
    """
    block = torch.ones(1, 1)
    while block.shape[0] < hadamard_block(head_dim):
        block = torch.cat([torch.cat([block, block], 1), torch.cat([block, -block], 1)])
    return torch.block_diag(*[block / block.shape[0] ** 0.5] * (head_dim // block.shape[0])).to(device)


def rotated(x_ND: torch.Tensor) -> torch.Tensor:
    """Turn vectors by the block-Hadamard matrix; a second time turns them back."""
    turned: torch.Tensor = x_ND.float() @ hadamard(x_ND.shape[-1], str(x_ND.device))
    return turned


def encode(x_ND: torch.Tensor, form: KVFormat, *, rotate: bool = False) -> Codes:
    """Round vectors to a format.

    Args:
        x_ND: Vectors [N, D].
        form: The format.
        rotate: Whether to turn them first.

    Returns:
        The codes. An error of rounding is at most half a scale; that of the scale itself, which is float16, is in it, since
        codes are counted with the scale as it is stored.
    """
    x = rotated(x_ND) if rotate else x_ND.float()
    num_vectors, dim = x.shape
    groups = form.num_groups(dim)
    if form.is_plain:
        dtype = torch.bfloat16 if form.kind == "bf16" else torch.float16
        none = x.new_zeros((num_vectors, 0), dtype=torch.float16)
        return Codes(x.to(dtype).view(torch.uint8), none, none)
    x_NGd = x.view(num_vectors, groups, dim // groups)
    if form.kind == "fp8":
        scales = _storable(x_NGd.abs().amax(-1) / FP8_MAX)
        scaled = (x_NGd / scales.float().unsqueeze(-1)).clamp(-FP8_MAX, FP8_MAX)
        codes = scaled.to(torch.float8_e4m3fn).view(torch.uint8).view(num_vectors, dim)
        return Codes(codes, scales, torch.zeros_like(scales))
    low = x_NGd.amin(-1)
    scales = _storable((x_NGd.amax(-1) - low) / _LEVELS[form.kind])
    zeros = low.clamp(-65504, 65504).half()
    codes = torch.floor((x_NGd - zeros.float().unsqueeze(-1)) / scales.float().unsqueeze(-1) + 0.5)
    codes = codes.clamp(0, _LEVELS[form.kind]).to(torch.uint8).view(num_vectors, dim)
    if form.kind == "int4":
        codes = codes[:, : dim // 2] | codes[:, dim // 2 :] << 4
    return Codes(codes, scales, zeros)


def decode(stored: Codes, form: KVFormat, head_dim: int, *, rotate: bool = False) -> torch.Tensor:
    """Turn codes back into vectors.

    Args:
        stored: The codes.
        form: The format that they were written in.
        head_dim: D.
        rotate: Whether they were turned.

    Returns:
        float32 [N, D].
    """
    codes = stored.codes
    if form.is_plain:
        x = codes.view(torch.bfloat16 if form.kind == "bf16" else torch.float16).float()
    else:
        if form.kind == "int4":
            values = torch.cat([codes & 15, codes >> 4], -1).float()
        elif form.kind == "int8":
            values = codes.float()
        else:
            values = codes.view(torch.float8_e4m3fn).float()
        groups = form.num_groups(head_dim)
        x_NGd = values.view(-1, groups, head_dim // groups)
        x = (x_NGd * stored.scales.float().unsqueeze(-1) + stored.zeros.float().unsqueeze(-1)).view(-1, head_dim)
    return rotated(x) if rotate else x


def _storable(scales: torch.Tensor) -> torch.Tensor:
    """Return scales as float16 that are neither zero nor infinite, and not below what they were by more than a rounding."""
    return scales.clamp(6.2e-5, 65504).half()
