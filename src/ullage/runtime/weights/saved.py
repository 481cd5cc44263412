"""Lets a pass backwards find streamed weights again: what autograd saves of a weight is where it lay in its block."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, cast

import torch

from ullage.errors import RuntimeMemoryError

if TYPE_CHECKING:
    from collections.abc import Callable


class SavedWeight(NamedTuple):
    """A view of a streamed weight that a pass backwards will read.

    Attributes:
        block: The number of its streamed block.
        version: How often the block's weights had been changed in place.
        offset: Its first byte in the block.
        dtype: Its type.
        size: Its shape.
        stride: Its strides, in elements.
        is_conj: Whether it is to be conjugated, and
        is_neg: negated, when it is read: bits that torch keeps beside the memory.
    """

    block: int
    version: int
    offset: int
    dtype: torch.dtype
    size: torch.Size
    stride: tuple[int, ...]
    is_conj: bool
    is_neg: bool


class SavedTensor(NamedTuple):
    """Another tensor, with how often it had been changed in place; torch itself does not look where there are hooks."""

    tensor: torch.Tensor
    version: int


class SavedWeights:
    """Hooks for `torch.autograd.graph.saved_tensors_hooks` of one block.

    Tensors that are not of the block's buffer are saved as the hooks around these do it, such as those of checkpointing; where
    there are none, as they are.
    """

    def __init__(
        self, block: int, buffer: torch.Tensor, version: Callable[[int], int], read: Callable[[int], torch.Tensor]
    ) -> None:
        """Prepare for a block that is about to run.

        Args:
            block: Its number.
            buffer: The buffer that it lies in.
            version: Tells how often a block's weights were changed in place.
            read: Brings a block to a buffer for a pass backwards, and returns that.
        """
        self._block, self._begin, self._end = block, buffer.data_ptr(), buffer.data_ptr() + buffer.numel()
        self._version, self._read = version, read
        around = torch._C._autograd._top_saved_tensors_default_hooks(False)
        self._pack_other: Callable[[Any], Any]
        self._unpack_other: Callable[[Any], Any]
        self._pack_other, self._unpack_other = around or (_keep, _kept)

    def pack(self, tensor: torch.Tensor) -> Any:
        """Keep where a weight lay; or what the hooks around these keep."""
        if tensor.layout != torch.strided or not self._begin <= tensor.data_ptr() < self._end:
            return self._pack_other(tensor)
        offset = tensor.data_ptr() - self._begin
        version = self._version(self._block)
        bits = (tensor.is_conj(), tensor.is_neg())
        return SavedWeight(self._block, version, offset, tensor.dtype, tensor.size(), tensor.stride(), *bits)

    def unpack(self, saved: Any) -> torch.Tensor:
        """Return the weight where it lies now.

        Raises:
            RuntimeMemoryError: It was changed in place since the pass forwards.
        """
        if not isinstance(saved, SavedWeight):
            return cast("torch.Tensor", self._unpack_other(saved))
        if self._version(saved.block) != saved.version:
            raise RuntimeMemoryError(
                "a streamed weight that the pass backwards needs was changed in place after it was used"
            )
        data = self._read(saved.block)[saved.offset :]
        whole = len(data) // saved.dtype.itemsize * saved.dtype.itemsize
        weight = data[:whole].view(saved.dtype).as_strided(saved.size, saved.stride)
        weight = weight.conj() if saved.is_conj else weight
        return torch._neg_view(weight) if saved.is_neg else weight


def _keep(tensor: torch.Tensor) -> SavedTensor:
    return SavedTensor(tensor, tensor._version)


def _kept(saved: SavedTensor) -> torch.Tensor:
    if saved.tensor._version != saved.version:
        raise RuntimeError(
            f"a tensor {list(saved.tensor.shape)} that is needed for gradients was modified by an inplace operation: it is at "
            f"version {saved.tensor._version}, and was saved at version {saved.version}"
        )
    return saved.tensor
