"""A GPU that is a fake: managed memory is memory of the host, and what is asked of CUDA is written down."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from ullage.errors import RuntimeMemoryError
from ullage.runtime.managed.cuda_calls import Span
from ullage.runtime.managed.memory import ManagedRange
from ullage.runtime.managed.roles import Advice

STREAM = 7


class FakeCalls:
    """Stands in for the calls of a GPU.

    Attributes:
        log: What was asked, in order.
        held: The memory that is not freed, by address.
        most_bytes: What it gives in all.
    """

    device = torch.device("cpu")

    def __init__(self, most_bytes: int = 1 << 30) -> None:
        self.log: list[Any] = []
        self.held: dict[int, mmap.mmap] = {}
        self.sizes: dict[int, int] = {}
        self.most_bytes = most_bytes

    def allocate(self, size_bytes: int) -> int:
        if sum(self.sizes.values()) + size_bytes > self.most_bytes:
            raise RuntimeMemoryError("the fake is full")
        memory = mmap.mmap(-1, size_bytes)
        address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        self.held[address], self.sizes[address] = memory, size_bytes
        return address

    def wait(self) -> None:
        self.log.append("waited")

    def free(self, address: int) -> None:
        del self.sizes[address]
        del self.held[address]

    def device_tensor(self, owner: ManagedRange) -> torch.Tensor:
        return self.host_tensor(owner)

    def host_tensor(self, owner: ManagedRange) -> torch.Tensor:
        data: Any = (ctypes.c_ubyte * owner.size_bytes).from_address(owner.address)
        data.owner = owner
        return torch.frombuffer(data, dtype=torch.uint8)

    def advise(self, span: Span, advice: Advice, location: int) -> None:
        self.log.append(("advise", advice, location))

    @contextmanager
    def stream(self) -> Iterator[int]:
        self.log.append("ordered")
        yield STREAM

    def prefetch(self, spans: Sequence[Span], location: int, stream: int) -> None:
        self.log.append(("prefetch", [span.size_bytes for span in spans], location, stream))

    def prefetch_each(self, spans: Sequence[Span], location: int, stream: int) -> None:
        self.log += [("prefetch one", span.size_bytes, location, stream) for span in spans]

    def discard(self, spans: Sequence[Span], stream: int) -> None:
        self.log.append(("discard", [span.size_bytes for span in spans], stream))

    def discard_and_prefetch(self, spans: Sequence[Span], location: int, stream: int) -> None:
        self.log.append(("discard and prefetch", [span.size_bytes for span in spans], location, stream))

    def free_gpu_bytes(self) -> int:
        return self.most_bytes


class FakeMoves:
    """Stands in for the streams that move ranges; what is computed must find what it needs, and never too much is there.

    Attributes:
        log: What was asked, in order: ("bring", [0, 1]), ("send", [2]).
        there: The ranges that are on the GPU.
        refuses: Whether every move is refused.
    """

    def __init__(self, sizes: Sequence[int], most_bytes: int | None = None) -> None:
        self.log: list[tuple[str, list[int]]] = []
        self.there: set[int] = set()
        self.waited: set[int] = set()
        self.sizes, self.most_bytes = sizes, most_bytes
        self.peak = 0
        self.refuses = False

    def bring(self, ranges: Sequence[int]) -> None:
        assert ranges, "an empty batch"
        assert not self.there & set(ranges), "a range is brought that is there"
        self._refuse()
        self.there |= set(ranges)
        self.peak = max(self.peak, sum(self.sizes[one] for one in self.there))
        assert self.most_bytes is None or self.peak <= self.most_bytes, "more is there than may be"
        self.log.append(("bring", list(ranges)))

    def send_away(self, ranges: Sequence[int]) -> None:
        assert ranges, "an empty batch"
        assert set(ranges) <= self.there, "a range is sent away that is not there"
        self._refuse()
        self.there -= set(ranges)
        self.waited -= set(ranges)
        self.log.append(("send", list(ranges)))

    def wait_for(self, ranges: Sequence[int]) -> None:
        assert set(ranges) <= self.there
        self.waited |= set(ranges)

    def done_with(self, ranges: Sequence[int]) -> None:
        pass

    def _refuse(self) -> None:
        if self.refuses:
            raise RuntimeMemoryError("the fake refuses")
