"""An allocator that is a fake: it keeps PyTorch's rules for segments, and hands out no memory."""

from __future__ import annotations

import itertools
from typing import Any

import torch

from ullage.runtime.pools.allocator import (
    NATIVE,
    SMALL_REQUEST_BYTES,
    SMALL_SEGMENT_BYTES,
    AllocatorState,
    Segment,
)

MIB = 1 << 20


class FakeSegment:
    """A segment, and the pieces that it is cut into: [begin, end, is_used]."""

    def __init__(self, address: int, size: int, stream: int, is_small: bool) -> None:
        self.address, self.size, self.stream, self.is_small = address, size, stream, is_small
        self.pieces: list[list[Any]] = [[0, size, False]]

    def take(self, size: int) -> list[Any] | None:
        for index, piece in enumerate(self.pieces):
            if not piece[2] and piece[1] - piece[0] >= size:
                rest = [piece[0] + size, piece[1], False]
                piece[1], piece[2] = piece[0] + size, True
                if rest[0] < rest[1]:
                    self.pieces.insert(index + 1, rest)
                return piece
        return None

    def free(self, piece: list[Any]) -> None:
        piece[2] = False
        merged: list[list[Any]] = []
        for one in self.pieces:
            if merged and not merged[-1][2] and not one[2]:
                merged[-1][1] = one[1]
            else:
                merged.append(one)
        self.pieces = merged

    @property
    def is_free(self) -> bool:
        return not any(piece[2] for piece in self.pieces)


class FakeTensor:
    """Holds memory while it lives."""

    def __init__(self, segment: FakeSegment, piece: list[Any]) -> None:
        self._segment, self._piece = segment, piece

    def __del__(self) -> None:
        self._segment.free(self._piece)


class FakeAllocator:
    """Stands in for PyTorch's allocator.

    Attributes:
        most_bytes: What the GPU has.
        held: The segments.
        num_given_back: How often its cache was given back.
    """

    device = torch.device("cpu")

    def __init__(self, most_bytes: int = 1 << 40, backend: str = NATIVE, is_expandable: bool = False) -> None:
        self.most_bytes, self.backend, self.is_expandable = most_bytes, backend, is_expandable
        self.most_split_bytes: int | None = None
        self.says_free: int | None = None
        self.held: list[FakeSegment] = []
        self.num_device_allocs = self.num_given_back = 0
        self._addresses = itertools.count(1 << 40, 1 << 36)

    def state(self) -> AllocatorState:
        used = sum(piece[1] - piece[0] for one in self.held for piece in one.pieces if piece[2])
        return AllocatorState(sum(one.size for one in self.held), used, self.num_device_allocs)

    def free_gpu_bytes(self) -> int:
        return self.most_bytes - self.state().reserved_bytes if self.says_free is None else self.says_free

    def take(self, size_bytes: int, stream: Any) -> object:
        is_small, number = size_bytes <= SMALL_REQUEST_BYTES, stream or 0
        size = -(-size_bytes // 512) * 512
        for one in self.held:
            if one.is_small == is_small and one.stream == number and (piece := one.take(size)):
                return FakeTensor(one, piece)
        wanted = SMALL_SEGMENT_BYTES if is_small else 20 * MIB if size < 10 * MIB else -(-size // (2 * MIB)) * 2 * MIB
        if self.state().reserved_bytes + wanted > self.most_bytes:
            raise torch.OutOfMemoryError("CUDA out of memory. The fake has no more.\nMore lines.")
        made = FakeSegment(next(self._addresses), wanted, number, is_small)
        self.held.append(made)
        self.num_device_allocs += 1
        taken = made.take(size)
        assert taken is not None
        return FakeTensor(made, taken)

    def handle(self, stream: Any) -> int:
        return stream or 0

    def give_back(self) -> None:
        self.num_given_back += 1
        self.held = [one for one in self.held if not one.is_free]

    def segments(self) -> list[Segment]:
        if self.backend != NATIVE:
            return []
        return [Segment(one.address, one.size, one.stream, one.is_small) for one in self.held]

    def wait(self) -> None:
        pass
