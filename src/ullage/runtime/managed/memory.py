"""Managed memory: one address for the host and the GPU, with pages that move. It is freed with the last tensor over it."""

from __future__ import annotations

import math
import mmap
import sys
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

import torch

from ullage.errors import RuntimeMemoryError
from ullage.runtime.managed.cuda_calls import Calls, Span, calls_for
from ullage.runtime.managed.roles import HOST, RULES, Place, Role, role_named

if TYPE_CHECKING:
    from collections.abc import Sequence

_LIVE: WeakValueDictionary[int, ManagedRange] = WeakValueDictionary()  # by address


class ManagedRange:
    """A stretch of managed memory with one role.

    It ends on the end of a page, since advice is rounded to pages: no two ranges share one.

    Attributes:
        address: Its first byte, on the host and on every GPU.
        size_bytes: Its length, whole pages.
        role: What it is for.
        calls: The calls of the GPU that it was made for.
        is_lost: Whether what it held was discarded, and nothing was written since.
        is_of_model: Whether `manage` made it.
    """

    address = 0

    def __init__(self, size_bytes: int, role: Role, calls: Calls, readers: Sequence[int] = ()) -> None:
        """Take memory, and say what it is for.

        Args:
            size_bytes: How much; rounded up to pages.
            role: What for.
            calls: The calls of its GPU.
            readers: The numbers of the GPUs that read it; none: its own.

        Raises:
            RuntimeMemoryError: The system does not give it; nothing is held.
        """
        self.size_bytes = -(-size_bytes // mmap.PAGESIZE) * mmap.PAGESIZE
        self.role, self.calls, self.is_lost, self.is_of_model = role, calls, False, False
        self.address = calls.allocate(self.size_bytes)
        self._readers = tuple(readers) or (calls.device.index or 0,)
        self._others: list[Calls] = []
        _LIVE[self.address] = self
        self._advise()

    def __del__(self) -> None:
        if self.address and not sys.is_finalizing():
            for other in self._others:
                other.wait()
            self.calls.free(self.address)

    @property
    def span(self) -> Span:
        """All of it."""
        return Span(self.address, self.size_bytes)

    @property
    def gpu(self) -> int:
        """The number of its GPU."""
        return self.calls.device.index or 0

    def seen_by(self, calls: Calls) -> None:
        """Take note that another GPU uses it, which is waited for before it is freed."""
        if calls is not self.calls and calls not in self._others:
            self._others.append(calls)

    def calls_of(self, device: torch.device) -> Calls:
        """Return the calls of a GPU that uses it; those of its own where that is no such GPU."""
        return next((one for one in self._others if one.device == device), self.calls)

    def _advise(self) -> None:
        places = {Place.HOST: (HOST,), Place.GPU: (self.gpu,), Place.READERS: self._readers}
        for advice, place in RULES[self.role].advice:
            for location in places[place]:
                self.calls.advise(self.span, advice, location)


def managed_tensor(
    shape: Sequence[int],
    dtype: torch.dtype,
    *,
    role: Role | str = Role.MOVED,
    device: torch.device | str = "cuda",
    readers: Sequence[int] = (),
) -> torch.Tensor:
    """Return an uninitialised tensor over managed memory.

    To torch it is a tensor of the GPU; `host_view` gives the same bytes to the host. No page is populated before it is touched
    or prefetched. Views share its memory, which is freed with the last of them.

    Args:
        shape: Its shape.
        dtype: Its type.
        role: What it is for, which decides what the driver is told; see `ullage.runtime.managed.roles`.
        device: Its GPU.
        readers: The numbers of the GPUs that read it, for the roles "shared" and "seldom"; none: its own.

    Raises:
        DeviceError: There is no GPU, or no such reader, one cannot use managed memory while the host does, or cuda-bindings is
            missing.
        RuntimeMemoryError: The system does not give the memory, or there is no such role. Nothing is held.

    Cost: its memory takes whole pages. Freeing it waits for the GPU.
    """
    calls, kind = calls_for(device), role_named(role)
    check_readers(readers)
    size = math.prod(shape) * dtype.itemsize
    if size == 0:
        return torch.empty(tuple(shape), dtype=dtype, device=calls.device)
    return range_bytes(ManagedRange(size, kind, calls, readers))[:size].view(dtype).view(tuple(shape))


def check_readers(readers: Sequence[int]) -> None:
    """Check that GPUs that are to read memory are there, and can.

    Args:
        readers: Their numbers.

    Raises:
        DeviceError: One is not, or cannot.
    """
    for reader in readers:
        calls_for(f"cuda:{reader}")


def range_bytes(one: ManagedRange) -> torch.Tensor:
    """Return a new range's bytes as the GPU's tensor, uint8; from now on the range lives as long as tensors over it."""
    return one.calls.device_tensor(one)


def range_of(tensor: torch.Tensor) -> ManagedRange | None:
    """Return the range that a tensor lies in; None for one that is not over managed memory.

    Args:
        tensor: Any tensor.
    """
    if tensor.layout != torch.strided or tensor.device.type == "meta" or not _LIVE:
        return None
    return _LIVE.get(tensor.untyped_storage().data_ptr())


def host_view(tensor: torch.Tensor) -> torch.Tensor:
    """Return a managed tensor's memory as a tensor of the host; what one writes, the other reads.

    Nothing waits: synchronise the GPU before the host reads what it wrote or writes what it reads. Pages that the host touches
    move to it, or are copied where the role is "lookup".

    Args:
        tensor: A managed tensor, or a view of one.

    Raises:
        RuntimeMemoryError: It is not over managed memory.
    """
    one = _needed_range(tensor, "the host too")
    return _same_view(one.calls.host_tensor(one), tensor)


def gpu_view(tensor: torch.Tensor, device: torch.device | str) -> torch.Tensor:
    """Return a managed tensor's memory as a tensor of another GPU; what one writes, the other reads.

    Nothing waits for the other GPU: synchronise, or wait for an event, before one reads what the other writes. With the role
    "shared" and both GPUs in `readers`, each reads the memory where it lies; "lookup" gives each a copy while nobody writes;
    else pages move to whoever touches them.

    Args:
        tensor: A managed tensor, or a view of one.
        device: The other GPU.

    Raises:
        RuntimeMemoryError: It is not over managed memory.
        DeviceError: There is no such GPU, or it cannot use managed memory while the host does.
    """
    one = _needed_range(tensor, "another GPU")
    calls = calls_for(device)
    one.seen_by(calls)
    return _same_view(calls.device_tensor(one), tensor)


def _needed_range(tensor: torch.Tensor, who: str) -> ManagedRange:
    one = range_of(tensor)
    if one is None:
        raise RuntimeMemoryError(f"only a managed tensor can be seen by {who}; make it with managed_tensor()")
    return one


def _same_view(data: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """Return a range's bytes as a tensor of the same type and place as one over it."""
    return data.view(like.dtype).as_strided(like.shape, like.stride(), like.storage_offset())


def span_of(tensor: torch.Tensor) -> tuple[ManagedRange, Span]:
    """Return a managed tensor's range, and the bytes from its first element to its last.

    Raises:
        RuntimeMemoryError: It is not over managed memory.
    """
    one = range_of(tensor)
    if one is None:
        raise RuntimeMemoryError(
            f"a tensor of {tuple(tensor.shape)} on {tensor.device} is not over managed memory, and cannot be moved; make it "
            "with managed_tensor(), or move a model with manage()"
        )
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    size = (last + 1) * tensor.element_size() if tensor.numel() else 0
    return one, Span(tensor.data_ptr(), size)


def managed_bytes() -> int:
    """Return the managed memory that this process holds through tensors of this room."""
    return sum(one.size_bytes for one in list(_LIVE.values()))
