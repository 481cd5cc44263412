"""A model's trunk, the blocks that run one after another, and what of each can be streamed.

Streamed are parameters that take no gradient, that no other module shares, and whose memory is dense. All else stays on the
GPU.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

import torch
from torch import nn

from ullage.errors import RuntimeMemoryError

if TYPE_CHECKING:
    from collections.abc import Iterator

_ALIGN = 512  # of a weight in a block's bytes: what the GPU's own allocations have


@dataclass(frozen=True, eq=False)
class Weight:
    """A parameter of a block, and where it lies in the block's bytes."""

    name: str
    parameter: nn.Parameter
    offset: int
    owner: nn.Module

    @property
    def is_in_place(self) -> bool:
        """Whether its module still has it."""
        return self.owner._parameters.get(self.name.rpartition(".")[2]) is self.parameter

    @property
    def size_bytes(self) -> int:
        """Its bytes."""
        return int(self.parameter.numel() * self.parameter.element_size())


@dataclass(frozen=True, eq=False)
class Block:
    """A block of a trunk.

    Attributes:
        name: Its name in the model.
        module: The block.
        weights: What can be streamed.
        size_bytes: What that takes, with the gaps between.
    """

    name: str
    module: nn.Module
    weights: tuple[Weight, ...]
    size_bytes: int


def aligned(size_bytes: int) -> int:
    """Return where the next weight of a block begins.

    Example:
        >>> aligned(512), aligned(513)
        (512, 1024)
    """
    return -(-size_bytes // _ALIGN) * _ALIGN


def find_blocks(model: nn.Module, trunk: str | None = None) -> list[Block]:
    """Return the blocks of a model.

    Args:
        model: Any model that runs a list of blocks one after another.
        trunk: The name of that list in the model, such as "model.layers"; None: the list of modules with the most bytes.

    Raises:
        RuntimeMemoryError: There is no such list, or nothing in it can be streamed.
    """
    name, children = _trunk(model, trunk)
    shared = _shared(model)
    blocks = [
        _block(f"{name}.{key}".lstrip("."), module, shared)
        for key, module in children
        if any(True for _ in module.parameters())
    ]
    if not any(block.size_bytes for block in blocks):
        raise RuntimeMemoryError(
            f"nothing in {name} can be streamed: its weights take gradients, or other modules share them; "
            "freeze what is not trained with requires_grad_(False)"
        )
    return blocks


def _trunk(model: nn.Module, trunk: str | None) -> tuple[str, list[tuple[str, nn.Module]]]:
    lists = {
        name: module for name, module in model.named_modules() if isinstance(module, nn.ModuleList | nn.Sequential)
    }
    if trunk is None:
        if not lists:
            raise RuntimeMemoryError(f"{type(model).__name__} has no list of blocks; name one with trunk=")
        trunk = max(lists, key=lambda name: (_size(lists[name]) if len(lists[name]) > 1 else 0, -len(name)))
        trunk = _innermost(trunk, lists)
    found = dict(model.named_modules()).get(trunk)
    if found is None or not list(found.named_children()):
        known = ", ".join(sorted(lists)) or "none"
        raise RuntimeMemoryError(f"{type(model).__name__} has no blocks in {trunk!r}; its lists of modules: {known}")
    return trunk, list(_children(found))


def _innermost(name: str, lists: dict[str, nn.ModuleList | nn.Sequential]) -> str:
    """Return the list in a list that holds more than half of its bytes; the list itself where there is none."""
    for inner, module in lists.items():
        is_inside = inner != name and (not name or inner.startswith(f"{name}."))
        if is_inside and len(module) > 1 and 2 * _size(module) > _size(lists[name]):
            return _innermost(inner, lists)
    return name


def _children(module: nn.Module, prefix: str = "") -> Iterator[tuple[str, nn.Module]]:
    """Yield blocks; a list of modules in a list is no block, since it is never called."""
    for key, child in module.named_children():
        if isinstance(child, nn.ModuleList):
            yield from _children(child, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", child


def _size(module: nn.Module) -> int:
    return sum(one.numel() * one.element_size() for one in module.parameters())


def _shared(model: nn.Module) -> set[int]:
    """Return the ids of the parameters that several modules have, or that share memory with another tensor."""
    owners: Counter[int] = Counter()
    memory: Counter[int] = Counter()
    storage_of: dict[int, int] = {}
    for module in model.modules():
        for tensor in chain(module._parameters.values(), module._buffers.values()):
            if tensor is None:
                continue
            owners[id(tensor)] += 1
            if id(tensor) not in storage_of and tensor.device.type != "meta":
                storage_of[id(tensor)] = tensor.untyped_storage().data_ptr()
                memory[storage_of[id(tensor)]] += 1 if tensor.numel() else 0
    views = {key for key, pointer in storage_of.items() if memory[pointer] > 1}
    return {key for key, count in owners.items() if count > 1} | views


def _block(name: str, module: nn.Module, shared: set[int]) -> Block:
    weights, end = [], 0
    for key, parameter in module.named_parameters():
        if parameter.requires_grad or id(parameter) in shared or not _is_dense(parameter):
            continue
        weights.append(Weight(key, parameter, end, module.get_submodule(key.rpartition(".")[0])))
        end += aligned(parameter.numel() * parameter.element_size())
    return Block(name, module, tuple(weights), end)


def _is_dense(tensor: torch.Tensor) -> bool:
    """Tell whether a tensor's elements fill its memory without gaps or overlaps."""
    expected = 1
    for size, stride in sorted(zip(tensor.shape, tensor.stride(), strict=True), key=lambda pair: pair[1]):
        if size != 1 and stride != expected:
            return False
        expected *= size
    return tensor.layout == torch.strided and not tensor.is_quantized and type(tensor.data) is torch.Tensor
