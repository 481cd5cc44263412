"""What a probe asks of a GPU. `CudaGpu` does it; tests put a made-up one in its place, whose clock they own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    from ullage.runtime.probe.result import Machine, Pattern, Temperature, Way

MemoryKind = Literal["pageable", "pinned", "mapped", "managed", "stream_ordered", "device", "torch"]

Run = Callable[[], Any]
"""Starts prepared work, and does not wait for it."""

_LONGEST_REASON = 100  # characters: errors of CUDA go on for paragraphs
NO_BINDINGS = "needs cuda-bindings"
NO_TRITON = "needs triton"


def reason_of(error: Exception) -> str:
    r"""Return the first line of an error, clipped.

    Example:
        >>> reason_of(RuntimeError("CUDA error: out of memory\nCompile with ..."))
        'CUDA error: out of memory'
    """
    first = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return first if len(first) <= _LONGEST_REASON else first[: _LONGEST_REASON - 1] + "…"


@dataclass(frozen=True, kw_only=True)
class Block:
    """Memory to measure.

    Attributes:
        kind: Where it lies and how it was allocated.
        address: Its first byte.
        size_bytes: Its size.
        host: It as a host tensor, uint8; None where the host cannot reach it.
        gpu: It as a tensor of the GPU, uint8; None where that cannot.
    """

    kind: MemoryKind
    address: int
    size_bytes: int
    host: Any = None
    gpu: Any = None

    def part(self, begin: int, size_bytes: int) -> Block:
        """Return a part of it, which is not freed on its own.

        Args:
            begin: Where the part begins, in bytes.
            size_bytes: Its size.
        """
        end = begin + size_bytes
        return Block(
            kind=self.kind,
            address=self.address + begin,
            size_bytes=size_bytes,
            host=None if self.host is None else self.host[begin:end],
            gpu=None if self.gpu is None else self.gpu[begin:end],
        )


class Gpu(Protocol):
    """A GPU. What cannot be done raises `RuntimeError` with the reason, and leaves the rest usable."""

    machine: Machine

    def free_bytes(self) -> int:
        """Return how much of its memory is free."""

    def allocate(self, kind: MemoryKind, size_bytes: int) -> Block:
        """Allocate a block; nothing in it is touched."""

    def free(self, block: Block) -> None:
        """Free a block, once nothing uses it."""

    def copying(self, target: Block, source: Block, size_bytes: int) -> Run:
        """Prepare a copy."""

    def reading(self, block: Block, size_bytes: int, *, num_rounds: int = 1) -> Run:
        """Prepare a kernel that reads the bytes, several times over in the same launch."""

    def writing(self, block: Block, size_bytes: int) -> Run:
        """Prepare a kernel that writes the bytes."""

    def reading_strided(self, block: Block, size_bytes: int, stride_bytes: int) -> Run:
        """Prepare a kernel that reads one word of four bytes in each stride."""

    def prefetching(self, block: Block) -> Run:
        """Prepare moving managed memory to the GPU."""

    def touching(self, block: Block) -> Run:
        """Prepare writing the block by the host; it is done when the call returns."""

    def accessing(
        self, pattern: Pattern, block: Block, footprint_bytes: int, stride_bytes: int, num_accesses: int
    ) -> Run:
        """Prepare accesses at one place in each stride, in random order; for a chain this lays it."""

    def device_ns(
        self, run: Run, num_timed: int, *, num_runs: int = 1, before: Run | None = None, is_queued: bool = True
    ) -> list[float]:
        """Measure by events how long a run takes on the GPU.

        Args:
            run: The run.
            num_timed: The number of measurements.
            num_runs: The runs of each; the mean of them is one time.
            before: Done before each measurement, and waited for.
            is_queued: Whether the GPU is kept busy until all runs are queued, so that no launch is timed.
        """

    def host_ns(self, run: Run, num_timed: int) -> list[float]:
        """Measure by the host's clock how long a run takes from its call until the GPU is done."""

    def loop_ns(self) -> float:
        """Time by the host's clock a short loop, always the same, that stays within the host's core."""

    def allocation_ns(self, way: Way, temperature: Temperature, size_bytes: int) -> tuple[float, float]:
        """Measure by the host's clock one allocation, and its free."""

    def warm_up(self) -> None:
        """Keep the GPU busy until its clocks are up."""

    def close(self) -> None:
        """Give all memory back."""
