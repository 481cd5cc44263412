"""Weights that come from safetensors files straight to where they will lie: the model begins on the meta device.

Nothing holds them twice: files are mapped, and a tensor is read when its place is there.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from ullage.errors import RuntimeMemoryError, UllageError

if TYPE_CHECKING:
    from collections.abc import Iterator

_INDEX = "model.safetensors.index.json"
_NAMED = 5  # of what is missing, in a message


class Checkpoint:
    """Tensors in one or several safetensors files.

    Attributes:
        shapes: The shape of each tensor, by its name.
    """

    def __init__(self, path: str | Path) -> None:
        """Open files.

        Args:
            path: A file, or a directory with safetensors files and, where there are several, their index.

        Raises:
            RuntimeMemoryError: There are none, or one is not to be read.
        """
        self._files: dict[str, Any] = {}
        self.shapes: dict[str, tuple[int, ...]] = {}
        for file in _files_at(Path(path)):
            opened = _opened(file)
            for name in opened.keys():  # noqa: SIM118 (it is no dict)
                self._files[name] = opened
                self.shapes[name] = tuple(opened.get_slice(name).get_shape())

    def read(self, name: str, into: torch.Tensor) -> None:
        """Read a tensor.

        Args:
            name: Its name.
            into: Where to, of its shape; another type is converted to.
        """
        into.copy_(self._files[name].get_tensor(name))


class MetaWeights:
    """What of a model is on the meta device, and comes from a checkpoint; its buffers too, wherever they are.

    It is replaced by memory that nothing was written to, and that takes none until then.
    """

    def __init__(self, model: nn.Module, checkpoint: Checkpoint) -> None:
        """Find names and replace what is on the meta device.

        Args:
            model: The model.
            checkpoint: Where its weights are.

        Raises:
            RuntimeMemoryError: The checkpoint lacks a tensor or has another shape for it, or a buffer that no checkpoint holds
                is on the meta device. The model is as it was.
        """
        self._checkpoint = checkpoint
        self._names: dict[int, str] = {}
        self._replaced: list[tuple[dict[str, Any], str, torch.Tensor]] = []
        known = self._known(model)
        new: dict[int, torch.Tensor] = {}
        for owner, key, tensor in _tensors(model):
            if id(tensor) not in known:
                continue
            if id(tensor) not in new:
                new[id(tensor)] = _like(tensor)
                self._names[id(new[id(tensor)])] = known[id(tensor)]
            self._replaced.append((owner, key, tensor))
            owner[key] = new[id(tensor)]

    def has(self, tensor: torch.Tensor) -> bool:
        """Tell whether a tensor's values come from the checkpoint."""
        return id(tensor) in self._names

    def fill(self, tensor: torch.Tensor, into: torch.Tensor) -> None:
        """Write a tensor's values to where they will lie.

        Args:
            tensor: A parameter or buffer of the model.
            into: Where to.
        """
        name = self._names.get(id(tensor))
        if name is None:
            into.copy_(tensor.data)
        else:
            self._checkpoint.read(name, into)

    def undo(self) -> None:
        """Put back what was there."""
        for owner, key, tensor in self._replaced:
            owner[key] = tensor

    def _known(self, model: nn.Module) -> dict[int, str]:
        """Return a name in the checkpoint for each tensor on the meta device, by its id."""
        shapes = self._checkpoint.shapes
        names: dict[int, str] = {}
        wanted: dict[int, tuple[str, torch.Tensor]] = {}
        kept = set(model.state_dict(keep_vars=True))
        for name, tensor in _named(model):
            # Buffers are often made on a real device, also where the checkpoint has their values.
            is_read_anyway = not isinstance(tensor, nn.Parameter) and name in kept and name in shapes
            if tensor.device.type == "meta" or is_read_anyway:
                wanted.setdefault(id(tensor), (name, tensor))
                if name in shapes:
                    names[id(tensor)] = name
        missing = [name for key, (name, _) in wanted.items() if key not in names]
        if missing:
            raise RuntimeMemoryError(
                f"the checkpoint lacks {len(missing)} tensors of {type(model).__name__} that are on the meta device: "
                f"{', '.join(missing[:_NAMED])}; buffers that no checkpoint holds must be made on a real device"
            )
        for key, (name, tensor) in wanted.items():
            if shapes[names[key]] != tuple(tensor.shape):
                raise RuntimeMemoryError(f"{name} is {tuple(tensor.shape)}, and {shapes[names[key]]} in the checkpoint")
        return names


def _named(model: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    yield from model.named_parameters(remove_duplicate=False)
    yield from model.named_buffers(remove_duplicate=False)


def _tensors(model: nn.Module) -> Iterator[tuple[dict[str, Any], str, torch.Tensor]]:
    for module in model.modules():
        for owner in (module._parameters, module._buffers):
            for key, tensor in list(owner.items()):
                if tensor is not None:
                    yield owner, key, tensor


def _like(tensor: torch.Tensor) -> torch.Tensor:
    empty = torch.empty(tensor.shape, dtype=tensor.dtype)
    return nn.Parameter(empty, requires_grad=tensor.requires_grad) if isinstance(tensor, nn.Parameter) else empty


def _files_at(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    index = path / _INDEX
    if index.is_file():
        try:
            names = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
        except (ValueError, KeyError, AttributeError, TypeError):
            raise RuntimeMemoryError(f"{index} is no index of safetensors files") from None
        if not all(isinstance(name, str) and Path(name).name == name for name in names):
            raise RuntimeMemoryError(f"{index} names files outside of its directory")
        return [path / name for name in sorted(names)]
    files = sorted(path.glob("*.safetensors"))
    if not files:
        raise RuntimeMemoryError(f"{path} is no safetensors file, nor a directory with such files")
    return files


def _opened(file: Path) -> Any:
    try:
        from safetensors import SafetensorError, safe_open
    except ImportError:
        raise UllageError("reading a checkpoint needs safetensors: pip install 'ullage[weights]'") from None
    try:
        return safe_open(file, framework="pt", device="cpu")
    except (OSError, SafetensorError) as error:
        raise RuntimeMemoryError(f"{file} cannot be read: {error}") from None
