"""How a weight lies on the host: as it is, or in 8 bits; and what its parameter is while it is there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import torch

from ullage.runtime.weights.arena import typed_view
from ullage.runtime.weights.blocks import aligned
from ullage.runtime.weights.coding import SCALE_BYTES, Storage, decode, encode, is_coded

if TYPE_CHECKING:
    from ullage.runtime.weights.blocks import Block


class Home(Protocol):
    """A weight's place in a block's bytes on the host."""

    resting: torch.Tensor
    """What the parameter is while it is not in use; its memory tells whether somebody gave it another."""

    def store(self, values: torch.Tensor) -> None:
        """Write values home. From a GPU, it waits."""

    def land(self, landing: torch.Tensor, out: torch.Tensor) -> None:
        """Make the weight of the block's bytes, copied to `landing`."""

    def value(self) -> torch.Tensor:
        """Return the weight, on the host."""


class PlainHome:
    """A weight as it is: the parameter is that memory."""

    def __init__(self, data: torch.Tensor, offset: int, like: torch.Tensor) -> None:
        self.resting = typed_view(data, offset, like)
        self._offset = offset

    def store(self, values: torch.Tensor) -> None:
        """Write values home."""
        self.resting.copy_(values)

    def land(self, landing: torch.Tensor, out: torch.Tensor) -> None:
        """Copy the weight."""
        out.copy_(typed_view(landing, self._offset, out))

    def value(self) -> torch.Tensor:
        """Return the weight itself."""
        return self.resting


class CodedHome:
    """A matrix in 8 bits. The parameter is a tensor of zeros that share one place, so that writing to it is an error."""

    def __init__(self, data: torch.Tensor, offset: int, like: torch.Tensor, storage: Storage) -> None:
        self.resting = torch.zeros(1, dtype=like.dtype).as_strided(like.shape, (0, 0))
        self._offset, self._shape, self._storage = offset, like.shape, storage
        self._codes, self._scales = self._parts(data)

    def store(self, values: torch.Tensor) -> None:
        """Write values home, rounded."""
        encode(values, self._codes, self._scales, self._storage)

    def land(self, landing: torch.Tensor, out: torch.Tensor) -> None:
        """Decode the weight."""
        decode(*self._parts(landing), out, self._storage)

    def value(self) -> torch.Tensor:
        """Return the weight, as rounding left it."""
        out = torch.empty(self._shape, dtype=self.resting.dtype)
        decode(self._codes, self._scales, out, self._storage)
        return out

    def _parts(self, data: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return codes [rows, columns] and scales [rows] in a block's bytes."""
        rows, columns = self._shape
        codes = data[self._offset : self._offset + rows * columns].view(rows, columns)
        begin = self._offset + aligned(rows * columns)
        return codes, data[begin : begin + SCALE_BYTES * rows].view(torch.float32)


def stored_offsets(block: Block, storage: Storage | None) -> tuple[list[int], int]:
    """Return where each of a block's weights begins on the host, and the bytes of all.

    Args:
        block: The block.
        storage: How matrices are stored; None: as they are.
    """
    if storage is None:
        return [weight.offset for weight in block.weights], block.size_bytes
    offsets, end = [], 0
    for weight in block.weights:
        offsets.append(end)
        one = weight.parameter
        size = aligned(one.numel()) + SCALE_BYTES * one.shape[0] if is_coded(one) else weight.size_bytes
        end += aligned(size)
    return offsets, end


def home_of(data: torch.Tensor, offset: int, like: torch.Tensor, storage: Storage | None) -> Home:
    """Return a weight's home.

    Args:
        data: The block's bytes on the host, uint8.
        offset: Where the weight begins.
        like: The parameter.
        storage: How matrices are stored; None: as they are.
    """
    return (
        PlainHome(data, offset, like)
        if storage is None or not is_coded(like)
        else CodedHome(data, offset, like, storage)
    )
