"""Weights that cross the link in 8 bits, each row of a matrix with a scale of its own.

An int8 code c stands for c * scale, with scale = max |row| / 127; fp8 (e4m3) stores row / scale, with scale = max |row| / 448.
"""

from __future__ import annotations

from typing import Literal, get_args

import torch

Storage = Literal["int8", "fp8"]
STORAGES: tuple[str, ...] = get_args(Storage)
SCALE_BYTES = 4
_LARGEST = {"int8": 127.0, "fp8": 448.0}
_DTYPES = {"int8": torch.int8, "fp8": torch.float8_e4m3fn}


def is_coded(weight: torch.Tensor) -> bool:
    """Tell whether a weight is stored in 8 bits: matrices of 16 bits or more. Vectors are few, and norms do not bear it."""
    return bool(
        weight.dim() == 2 and weight.is_floating_point() and weight.element_size() > 1 and weight.is_contiguous()
    )


def encode(weight: torch.Tensor, codes: torch.Tensor, scales: torch.Tensor, storage: Storage) -> None:
    """Store a matrix in 8 bits.

    Args:
        weight: [rows, columns].
        codes: Where its codes go, uint8 [rows, columns].
        scales: Where its scales go, float32 [rows].
        storage: How.
    """
    values = weight.detach().to(codes.device, torch.float32)
    scale = values.abs().amax(1).clamp_min(torch.finfo(torch.float32).tiny) / _LARGEST[storage]
    scaled = values / scale[:, None]
    if storage == "int8":
        scaled = scaled.round()
    scales.copy_(scale)
    codes.view(_DTYPES[storage]).copy_(scaled)


def decode(codes: torch.Tensor, scales: torch.Tensor, out: torch.Tensor, storage: Storage) -> None:
    """Bring a matrix back, without memory of its own on a GPU.

    Args:
        codes: uint8 [rows, columns].
        scales: float32 [rows].
        out: Where it goes, [rows, columns].
        storage: How it was stored.
    """
    if storage == "int8":
        torch.mul(codes.view(torch.int8), scales[:, None], out=out)
    else:
        out.copy_(codes.view(torch.float8_e4m3fn))
        out.mul_(scales[:, None])
