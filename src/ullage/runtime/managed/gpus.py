"""Finds the GPU that a user named, or says in one error why there is none."""

from __future__ import annotations

import torch

from ullage.errors import DeviceError


def gpu_named(device: torch.device | str, purpose: str, otherwise: str) -> torch.device:
    """Return a GPU with its number.

    Args:
        device: The GPU; without a number, the current one.
        purpose: What it is wanted for, as a message begins.
        otherwise: What to do without one, as a message ends.

    Raises:
        DeviceError: It is no device's name, no GPU, or one that this process does not see.
    """
    try:
        where = torch.device(device)
    except (RuntimeError, TypeError):
        raise DeviceError(f"{device!r} names no device: 'cuda', or 'cuda:0' with a GPU's number") from None
    if where.type != "cuda":
        raise DeviceError(f"{purpose}, and {where} is none; without one, {otherwise}")
    if not torch.cuda.is_available():
        raise DeviceError(f"{purpose}, and there is no GPU; without one, {otherwise}")
    count = torch.cuda.device_count()
    if where.index is not None and where.index >= count:
        seen = "cuda:0 alone" if count == 1 else f"cuda:0 to cuda:{count - 1}"
        raise DeviceError(f"{purpose}, and there is no {where}: this process sees {seen}")
    return torch.device("cuda", torch.cuda.current_device() if where.index is None else where.index)
