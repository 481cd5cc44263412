"""What managed memory asks of CUDA and torch, in one place: tests put a fake here."""

from __future__ import annotations

import ctypes
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import torch

from ullage.errors import DeviceError
from ullage.runtime.managed.bindings import NotOfferedError, checked, cuda_runtime
from ullage.runtime.managed.dlpack import bytes_over
from ullage.runtime.managed.gpus import gpu_named
from ullage.runtime.managed.roles import HOST, Advice
from ullage.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ullage.runtime.managed.memory import ManagedRange

_DEFAULT_STREAMS = (0, 1)  # the legacy stream's two handles, which batches refuse


class Span(NamedTuple):
    """A stretch of managed memory."""

    address: int
    size_bytes: int


class Calls(Protocol):
    """The calls of one GPU. A location is a GPU's number, or `HOST`."""

    device: torch.device

    def allocate(self, size_bytes: int) -> int:
        """Take managed memory; nothing is populated yet."""

    def wait(self) -> None:
        """Wait until all that was issued to the GPU has run."""

    def free(self, address: int) -> None:
        """Give it back, when all that may use it has run."""

    def device_tensor(self, owner: ManagedRange) -> torch.Tensor:
        """Return a range's bytes as the GPU's uint8 tensor, which keeps the range alive."""

    def host_tensor(self, owner: ManagedRange) -> torch.Tensor:
        """Return a range's bytes as a uint8 tensor of the host, which keeps the range alive."""

    def advise(self, span: Span, advice: Advice, location: int) -> None:
        """Tell the driver how a span is used."""

    def stream(self) -> Any:
        """Return a context that gives a stream's handle: work issued there is ordered as on the current stream."""

    def prefetch(self, spans: Sequence[Span], location: int, stream: int) -> None:
        """Move spans, in one call where the driver has it, which may keep the host for as long as the move takes."""

    def prefetch_each(self, spans: Sequence[Span], location: int, stream: int) -> None:
        """Move spans, one call for each, which keep the host less where there are few and large ones."""

    def discard(self, spans: Sequence[Span], stream: int) -> None:
        """Say that what spans hold is lost; nothing where the driver has no such call."""

    def discard_and_prefetch(self, spans: Sequence[Span], location: int, stream: int) -> None:
        """Move spans without what they hold; with it where the driver has no such call."""

    def free_gpu_bytes(self) -> int:
        """Return what the GPU has free."""


class CudaCalls:
    """The calls, by cuda-bindings.

    Attributes:
        device: The GPU.
        has_batches: Whether the driver has the calls of CUDA 13 for many ranges; found out by the first of them.
    """

    def __init__(self, device: torch.device) -> None:
        """Prepare.

        Args:
            device: The GPU, with its number.

        Raises:
            DeviceError: cuda-bindings is missing, or the GPU cannot use memory while the host does.
        """
        self._cuda = cuda_runtime()
        self.device, self._index = device, device.index
        self.has_batches = all(
            hasattr(self._cuda, f"cudaMem{name}BatchAsync") for name in ("Prefetch", "Discard", "DiscardAndPrefetch")
        )
        self._side: Any = None
        attribute = self._cuda.cudaDeviceAttr.cudaDevAttrConcurrentManagedAccess
        torch.cuda.synchronize(device)  # its context is there from now on
        if not checked(self._cuda.cudaDeviceGetAttribute(attribute, self._index), "asking for managed memory"):
            raise DeviceError(
                f"{torch.cuda.get_device_name(device)} cannot use managed memory while the host does (Windows, WSL, and "
                "GPUs older than Pascal cannot), so nothing can be moved ahead; stream weights with "
                "ullage.runtime.weights.stream, or keep to the GPU's own memory"
            )

    def allocate(self, size_bytes: int) -> int:
        """Take managed memory; nothing is populated yet.

        Raises:
            RuntimeMemoryError: The system does not give it.
        """
        before = torch.cuda.current_device()
        checked(self._cuda.cudaSetDevice(self._index), "making a GPU the current one")
        try:
            what = f"{format_bytes(size_bytes)} of managed memory"
            return int(checked(self._cuda.cudaMallocManaged(size_bytes, self._cuda.cudaMemAttachGlobal), what))
        finally:
            checked(self._cuda.cudaSetDevice(before), "making a GPU the current one")

    def wait(self) -> None:
        """Wait until all that was issued to the GPU has run."""
        torch.cuda.synchronize(self.device)

    def free(self, address: int) -> None:
        """Give it back, when all that may use it has run. Cost: waits for the GPU."""
        self.wait()
        checked(self._cuda.cudaFree(address), "freeing managed memory")

    def device_tensor(self, owner: ManagedRange) -> torch.Tensor:
        """Return a range's bytes as the GPU's uint8 tensor, which keeps the range alive."""
        return bytes_over(owner.address, owner.size_bytes, self.device, owner)

    def host_tensor(self, owner: ManagedRange) -> torch.Tensor:
        """Return a range's bytes as a uint8 tensor of the host, which keeps the range alive."""
        data: Any = (ctypes.c_ubyte * owner.size_bytes).from_address(owner.address)
        data.owner = owner
        return torch.frombuffer(data, dtype=torch.uint8)

    def advise(self, span: Span, advice: Advice, location: int) -> None:
        """Tell the driver how a span is used."""
        said = self._cuda.cudaMemoryAdvise(advice.value)
        checked(self._cuda.cudaMemAdvise(*span, said, self._location(location)), f"advising {advice.name}")

    @contextmanager
    def stream(self) -> Iterator[int]:
        """Give a stream's handle: the current one's, or where that is the default stream, one beside it in its order."""
        current = torch.cuda.current_stream(self.device)
        if current.cuda_stream not in _DEFAULT_STREAMS:
            yield current.cuda_stream
            return
        if self._side is None:
            self._side = torch.cuda.Stream(self.device)
        self._side.wait_stream(current)
        try:
            yield self._side.cuda_stream
        finally:
            current.wait_stream(self._side)

    def prefetch(self, spans: Sequence[Span], location: int, stream: int) -> None:
        """Move spans, in one call where the driver has it."""
        if not self._batch("Prefetch", spans, stream, location):
            self.prefetch_each(spans, location, stream)

    def prefetch_each(self, spans: Sequence[Span], location: int, stream: int) -> None:
        """Move spans, one call for each."""
        where = self._location(location)
        for span in spans:
            checked(self._cuda.cudaMemPrefetchAsync(*span, where, 0, stream), f"moving {format_bytes(span.size_bytes)}")

    def discard(self, spans: Sequence[Span], stream: int) -> None:
        """Say that what spans hold is lost; nothing where the driver has no such call: to keep it is allowed."""
        self._batch("Discard", spans, stream)

    def discard_and_prefetch(self, spans: Sequence[Span], location: int, stream: int) -> None:
        """Move spans without what they hold; with it where the driver has no such call."""
        if not self._batch("DiscardAndPrefetch", spans, stream, location):
            self.prefetch_each(spans, location, stream)

    def free_gpu_bytes(self) -> int:
        """Return what the GPU has free."""
        return int(torch.cuda.mem_get_info(self.device)[0])

    def _batch(self, name: str, spans: Sequence[Span], stream: int, location: int | None = None) -> bool:
        """Try one call for all spans; return whether the driver has it."""
        if not self.has_batches:
            return False
        if not spans:
            return True
        call = getattr(self._cuda, f"cudaMem{name}BatchAsync")
        addresses, sizes = [one.address for one in spans], [one.size_bytes for one in spans]
        where = () if location is None else ([self._location(location)], [0], 1)
        try:
            checked(call(addresses, sizes, len(spans), *where, 0, stream), f"{name} of {len(spans)} ranges")
        except NotOfferedError:
            self.has_batches = False
        return self.has_batches

    def _location(self, location: int) -> Any:
        where, kinds = self._cuda.cudaMemLocation(), self._cuda.cudaMemLocationType
        where.type = kinds.cudaMemLocationTypeHost if location == HOST else kinds.cudaMemLocationTypeDevice
        where.id = 0 if location == HOST else location
        return where


def calls_for(device: torch.device | str) -> Calls:
    """Return the calls of a GPU.

    Args:
        device: The GPU; without a number, the current one.

    Raises:
        DeviceError: There is no such GPU, it cannot use managed memory while the host does, or cuda-bindings is missing.
    """
    purpose = "managed memory is shared by the host and a GPU"
    return _calls_of(gpu_named(device, purpose, "use plain tensors").index)


@cache
def _calls_of(index: int) -> Calls:
    return CudaCalls(torch.device("cuda", index))
