"""Host memory that the GPU can copy from at the link's speed: page-locked, and of the size that was asked for.

PyTorch's own pinned memory is handed out in powers of two, so that 1.2 GiB take 2 GiB (torch 2.13, CachingHostAllocator). An
arena is mapped and registered as it is; only its last 4 KiB page may be filled in part.
"""

from __future__ import annotations

import mmap
import sys
from typing import Any

import torch

from ullage.errors import RuntimeMemoryError
from ullage.runtime.host_memory import free_host_bytes
from ullage.units import format_bytes

_LOCKABLE_SHARE = 0.9  # of what the host says is free: the rest is for the program itself


class _Mapping(mmap.mmap):
    """An anonymous mapping that is unlocked before it goes. It goes with the last tensor over it."""

    locked_at = 0

    def __del__(self) -> None:
        if self.locked_at and not sys.is_finalizing():
            torch.cuda.cudart().cudaHostUnregister(self.locked_at)


class PinnedArena:
    """A stretch of host memory, page-locked while it lives where there is a GPU.

    Attributes:
        data: Its bytes, uint8 [size_bytes], on the host.
        size_bytes: What was asked for.
    """

    def __init__(self, size_bytes: int, *, is_pinned: bool) -> None:
        """Take memory.

        Args:
            size_bytes: How much.
            is_pinned: Whether to lock it; not where there is no GPU.

        Raises:
            RuntimeMemoryError: The system does not give or lock it; nothing is held.
        """
        self.size_bytes = size_bytes
        try:
            mapping = _Mapping(-1, max(size_bytes, 1), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        except OSError as error:
            raise RuntimeMemoryError(f"the host does not give {format_bytes(size_bytes)}: {error}") from None
        self.data = torch.frombuffer(mapping, dtype=torch.uint8)[:size_bytes]
        if is_pinned and size_bytes:
            mapping.madvise(mmap.MADV_HUGEPAGE)
            _lock(mapping, self.data.data_ptr(), size_bytes)


def _lock(mapping: _Mapping, pointer: int, size_bytes: int) -> None:
    status = int(torch.cuda.cudart().cudaHostRegister(pointer, size_bytes, 0))
    if status != 0:
        raise RuntimeMemoryError(
            f"{format_bytes(size_bytes)} of host memory cannot be page-locked (CUDA error {status}); "
            "see `ulimit -l` and the container's memory limit, or keep more blocks on the GPU"
        )
    mapping.locked_at = pointer


def check_host_memory(wanted_bytes: int, allowed_bytes: int | None = None) -> None:
    """Raise where arenas would take more than the host has free.

    Args:
        wanted_bytes: What arenas will take.
        allowed_bytes: What they may take; None: nine tenths of what the host says is free, the container's limit counted.

    Raises:
        RuntimeMemoryError: It is too much; nothing was taken.
    """
    most = lockable_bytes(allowed_bytes)
    if wanted_bytes > most:
        raise RuntimeMemoryError(
            f"{format_bytes(wanted_bytes)} of pinned host memory are needed, {format_bytes(most)} may be taken "
            f"({format_bytes(free_host_bytes())} are free); keep more blocks on the GPU, say how much may be taken by "
            "host_bytes=, or let some blocks lie in a file by disk="
        )


def lockable_bytes(allowed_bytes: int | None = None) -> int:
    """Return what arenas may take.

    Args:
        allowed_bytes: What somebody said; None: nine tenths of what the host says is free.
    """
    return int(free_host_bytes() * _LOCKABLE_SHARE) if allowed_bytes is None else allowed_bytes


def typed_view(data: torch.Tensor, offset: int, like: Any) -> torch.Tensor:
    """Return bytes as a tensor of another's type, shape and strides.

    Args:
        data: uint8, one-dimensional.
        offset: Where the tensor begins, a multiple of its element's size.
        like: A dense tensor, on any device.
    """
    size = like.numel() * like.element_size()
    return data[offset : offset + size].view(like.dtype).as_strided(like.shape, like.stride())
