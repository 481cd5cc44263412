"""Moves a model's weights to managed memory, each module's into ranges of their own, and back."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

import torch
from torch import nn

from ullage.errors import RuntimeMemoryError
from ullage.runtime.managed.cuda_calls import calls_for
from ullage.runtime.managed.memory import ManagedRange, range_bytes, range_of
from ullage.runtime.managed.roles import Role, role_named
from ullage.runtime.weights.arena import free_host_bytes
from ullage.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

    from ullage.runtime.managed.cuda_calls import Calls

_ALIGN = 512  # of a weight in its range: what the GPU's own allocations have
_HOST_SHARE = 0.9  # of what the host has free: all weights may be there at once


def manage(
    model: nn.Module,
    roles: Mapping[str, Role | str] | None = None,
    *,
    device: torch.device | str = "cuda",
) -> ManagedModel:
    """Move a model's parameters to managed memory: it may be larger than the GPU, and runs as it is.

    Weights are on the host until the GPU touches them or they are prefetched (`prefetching`). Buffers are moved to the GPU.

    Args:
        model: Any model; where it lies does not matter.
        roles: What parts of the model are for, by name: a module's, for all in it, or a parameter's; the longest name wins.
            What is not named is "moved", weights of `nn.Embedding` "lookup".
        device: The GPU that runs it.

    Returns:
        The model's memory: `unmanage` it to have the model as it was, or use it as a context.

    Raises:
        DeviceError: There is no GPU, it cannot use managed memory while the host does, or cuda-bindings is missing.
        RuntimeMemoryError: A name or role does not exist, weights share memory or have gaps, or the host has too little. The
            model is as it was.

    Cost: a copy of the weights, module by module; a weight's old memory is freed once it is copied.
    """
    calls = calls_for(device)
    groups = _groups(model, roles or {})
    total = sum(one.numel() * one.element_size() for group in groups.values() for one in group)
    free = free_host_bytes()
    if total > free * _HOST_SHARE:
        raise RuntimeMemoryError(
            f"{format_bytes(total)} of weights may all be on the host at once, and it has {format_bytes(free)} free; keep a "
            "part of the model out, or use smaller weights"
        )
    return ManagedModel(model, groups, calls)


class ManagedModel:
    """A model whose weights are in managed memory. `manage` makes it."""

    def __init__(self, model: nn.Module, groups: dict[tuple[int, Role], list[nn.Parameter]], calls: Calls) -> None:
        """Take over a model's weights.

        Args:
            model: The model.
            groups: Its parameters, by module and role.
            calls: The calls of its GPU.

        Raises:
            RuntimeMemoryError: The system does not give the memory; the model is as it was.
        """
        self._homes = {id(one): (one, one.device) for one in chain(model.parameters(), model.buffers())}
        self._calls, self._is_done = calls, False
        self.size_bytes = 0
        try:
            for (_, role), parameters in groups.items():
                self.size_bytes += _move(parameters, role, calls)
            for buffer in model.buffers():
                buffer.data = buffer.data.to(calls.device)
        except BaseException:
            self._restore()
            raise

    def __enter__(self) -> ManagedModel:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.unmanage()

    def unmanage(self) -> None:
        """Put all weights back to where they were, and free the managed memory. A second time does nothing.

        Raises:
            torch.cuda.OutOfMemoryError: They were on the GPU, and no longer fit. The model stays managed.

        Cost: waits for the GPU; a copy of the weights.
        """
        if not self._is_done:
            self._restore()
            self._is_done = True

    def _restore(self) -> None:
        moved: list[tuple[torch.Tensor, torch.Tensor]] = []
        try:
            for tensor, device in self._homes.values():
                if tensor.device == device and range_of(tensor) is None:
                    continue
                moved.append((tensor, tensor.data))
                tensor.data = tensor.data.to(device, copy=True)
        except BaseException:
            for tensor, data in moved:
                tensor.data = data
            raise
        self._homes = {}


def _move(parameters: list[nn.Parameter], role: Role, calls: Calls) -> int:
    """Move parameters to a range of their own; return its size. The host writes it, so that no GPU memory is needed."""
    offsets, end = list[int](), 0
    for one in parameters:
        offsets.append(end)
        end += -(-one.numel() * one.element_size() // _ALIGN) * _ALIGN
    if end == 0:
        return 0
    memory = ManagedRange(end, role, calls)
    here, there = calls.host_tensor(memory), range_bytes(memory)
    for one, offset in zip(parameters, offsets, strict=True):
        size = one.numel() * one.element_size()
        _typed(here[offset : offset + size], one).copy_(one.data)
    for one, offset in zip(parameters, offsets, strict=True):
        size = one.numel() * one.element_size()
        one.data = _typed(there[offset : offset + size], one)
    return memory.size_bytes


def _typed(data: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """Return bytes as a tensor of another's type, shape and strides."""
    typed = data.view(like.dtype)
    return typed.as_strided(like.shape, like.stride(), typed.storage_offset())


def _groups(model: nn.Module, roles: Mapping[str, Role | str]) -> dict[tuple[int, Role], list[nn.Parameter]]:
    """Return the parameters by module and role, each once.

    Raises:
        RuntimeMemoryError: A name or role does not exist, or a parameter cannot be moved.
    """
    named = {name: role_named(role) for name, role in roles.items()}
    known = {name for name, _ in chain(model.named_modules(), model.named_parameters(remove_duplicate=False))}
    unknown = sorted(set(named) - known)
    if unknown:
        raise RuntimeMemoryError(f"{type(model).__name__} has nothing called {', '.join(unknown)}")
    groups: dict[tuple[int, Role], list[nn.Parameter]] = {}
    seen: set[int] = set()
    storages: set[int] = set()
    for prefix, module in model.named_modules():
        for key, one in module.named_parameters(recurse=False):
            if id(one) in seen:
                continue
            name = f"{prefix}.{key}" if prefix else key
            _check(name, one, storages)
            seen.add(id(one))
            fallback = Role.LOOKUP if isinstance(module, nn.Embedding) else Role.MOVED
            groups.setdefault((id(module), _role_of(name, named, fallback)), []).append(one)
    return groups


def _role_of(name: str, named: Mapping[str, Role], fallback: Role) -> Role:
    fitting = [one for one in named if one == "" or name == one or name.startswith(f"{one}.")]
    return named[max(fitting, key=len)] if fitting else fallback


def _check(name: str, one: nn.Parameter, storages: set[int]) -> None:
    if one.device.type == "meta":
        raise RuntimeMemoryError(f"{name} has no memory yet (meta); load the weights before the model is managed")
    pointer = one.untyped_storage().data_ptr()
    if pointer in storages and one.numel():
        raise RuntimeMemoryError(f"{name} shares memory with another parameter; clone one of the two first")
    expected = 1
    for size, stride in sorted(zip(one.shape, one.stride(), strict=True), key=lambda pair: pair[1]):
        if size != 1 and stride != expected:
            raise RuntimeMemoryError(f"{name} has gaps in its memory; make it contiguous first")
        expected *= size
    storages.add(pointer)
