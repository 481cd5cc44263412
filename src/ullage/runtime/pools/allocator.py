"""What prewarming asks of PyTorch's allocator, in one place: tests put a fake here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import torch

from ullage.errors import RuntimeMemoryError
from ullage.runtime.managed.gpus import gpu_named

if TYPE_CHECKING:
    from collections.abc import Sequence

NATIVE = "native"
ASYNC = "cudaMallocAsync"
SMALL_REQUEST_BYTES = 1 << 20
"""The largest request that the small pool serves. Source: `kSmallSize`, c10/cuda/CUDACachingAllocator.h, torch 2.13."""
SMALL_SEGMENT_BYTES = 2 << 20
"""What the small pool asks of the driver at a time. Source: `kSmallBuffer`, there."""

_NO_LIMIT = 1 << 62  # what PyTorch writes where there is none is far above


class Segment(NamedTuple):
    """Memory that the allocator holds from the driver.

    Attributes:
        address: Its first byte.
        size_bytes: Its length; an expandable one grows.
        stream: The handle of its stream; 0 is the default one.
        is_small: Whether it serves requests of at most 1 MiB.
    """

    address: int
    size_bytes: int
    stream: int
    is_small: bool


class AllocatorState(NamedTuple):
    """How much the allocator holds.

    Attributes:
        reserved_bytes: From the driver.
        allocated_bytes: Of that, in tensors.
        num_device_allocs: How often it has asked the driver so far; 0 where the driver's own pool serves all.
    """

    reserved_bytes: int
    allocated_bytes: int
    num_device_allocs: int


class Allocator(Protocol):
    """The allocator of one GPU."""

    device: torch.device
    backend: str

    @property
    def is_expandable(self) -> bool:
        """Whether segments grow."""

    @property
    def most_split_bytes(self) -> int | None:
        """The largest block that is split; None: any."""

    def state(self) -> AllocatorState:
        """Return how much it holds."""

    def free_gpu_bytes(self) -> int:
        """Return what the driver has free."""

    def take(self, size_bytes: int, stream: Any) -> object:
        """Return something that holds so much memory of a stream while it lives.

        Raises:
            torch.OutOfMemoryError: There is not so much.
        """

    def handle(self, stream: Any) -> int:
        """Return a stream's handle, as segments have it; None: the current one's."""

    def give_back(self) -> None:
        """Give what is cached and in no tensor back to the driver."""

    def segments(self) -> Sequence[Segment]:
        """Return what it holds outside of private pools; nothing where it does not say."""

    def wait(self) -> None:
        """Wait for the GPU."""


class TorchAllocator:
    """PyTorch's allocator, whichever this process has.

    Attributes:
        device: The GPU.
        backend: "native" or "cudaMallocAsync".
    """

    def __init__(self, device: torch.device | str = "cuda") -> None:
        """Prepare.

        Args:
            device: The GPU; without a number, the current one.

        Raises:
            DeviceError: There is no such GPU.
            RuntimeMemoryError: The process has an allocator of its own.
        """
        self.device = gpu_named(device, "pools are a GPU's", "nothing has to be warmed")
        self.backend = torch.cuda.get_allocator_backend()
        if self.backend not in (NATIVE, ASYNC):
            raise RuntimeMemoryError(
                f"this process allocates by {self.backend!r}, which PyTorch does not keep pools for; "
                "fill that allocator's pool by its own means"
            )
        torch.cuda.init()

    @property
    def is_expandable(self) -> bool:
        """Whether segments grow. Cost: a snapshot of all that the allocator holds."""
        if self.backend != NATIVE:
            return False
        return bool(torch.cuda.memory._snapshot(self.device)["allocator_settings"].get("expandable_segments", False))

    @property
    def most_split_bytes(self) -> int | None:
        """The largest block that is split; None: any."""
        size = int(torch.cuda.memory_stats(self.device).get("max_split_size", -1))
        return size if 0 < size < _NO_LIMIT else None

    def state(self) -> AllocatorState:
        """Return how much it holds."""
        stats = torch.cuda.memory_stats(self.device)
        return AllocatorState(
            stats.get("reserved_bytes.all.current", 0),
            stats.get("allocated_bytes.all.current", 0),
            stats.get("num_device_alloc", 0),
        )

    def free_gpu_bytes(self) -> int:
        """Return what the driver has free."""
        return int(torch.cuda.mem_get_info(self.device)[0])

    def take(self, size_bytes: int, stream: Any) -> object:
        """Return a tensor of so many bytes that belongs to a stream; None: the current one.

        Raises:
            torch.OutOfMemoryError: There is not so much.
        """
        with torch.cuda.device(self.device), torch.cuda.stream(stream):
            return torch.empty(size_bytes, dtype=torch.uint8, device=self.device)

    def handle(self, stream: Any) -> int:
        """Return a stream's handle, as segments have it; None: the current one's."""
        return int((torch.cuda.current_stream(self.device) if stream is None else stream).cuda_stream)

    def give_back(self) -> None:
        """Give what is cached and in no tensor back to the driver."""
        torch.cuda.synchronize(self.device)
        torch.cuda.empty_cache()

    def segments(self) -> Sequence[Segment]:
        """Return what it holds outside of private pools; nothing where the driver's own pool serves all."""
        if self.backend != NATIVE:
            return []
        return [
            Segment(one["address"], one["total_size"], one["stream"], one["segment_type"] == "small")
            for one in torch.cuda.memory_snapshot()
            if one["device"] == self.device.index and tuple(one.get("segment_pool_id", (0, 0))) == (0, 0)
        ]

    def wait(self) -> None:
        """Wait for the GPU."""
        torch.cuda.synchronize(self.device)


def allocator_of(device: torch.device | str) -> Allocator:
    """Return the allocator of a GPU.

    Raises:
        DeviceError: There is no such GPU.
        RuntimeMemoryError: The process has an allocator of its own.
    """
    return TorchAllocator(device)
