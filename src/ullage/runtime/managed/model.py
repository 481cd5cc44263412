"""Moves a model's weights to managed memory, each module's into ranges of their own, and back."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

import torch

from ullage.errors import RuntimeMemoryError
from ullage.runtime.host_memory import free_host_bytes
from ullage.runtime.managed.cuda_calls import calls_for
from ullage.runtime.managed.grouping import grouped
from ullage.runtime.managed.memory import ManagedRange, check_readers, range_bytes, range_of
from ullage.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from types import TracebackType

    from torch import nn

    from ullage.runtime.managed.cuda_calls import Calls
    from ullage.runtime.managed.roles import Role

_ALIGN = 512  # of a weight in its range: what the GPU's own allocations have
_HOST_SHARE = 0.9  # of what the host has free


def manage(
    model: nn.Module,
    roles: Mapping[str, Role | str] | None = None,
    *,
    device: torch.device | str = "cuda",
    readers: Sequence[int] = (),
) -> ManagedModel:
    """Move a model's parameters to managed memory: it may be larger than the GPU, and runs as it is.

    Weights are on the host until the GPU touches them or they are prefetched (`prefetching`). Buffers are moved to the GPU, and
    gradients with their weights. Tensors that are managed already are left as they are.

    Args:
        model: Any model; where it lies does not matter.
        roles: What parts of the model are for, by name: a module's, for all in it, or a parameter's; the longest name wins.
            Any of a tied weight's names will do. What is not named is "moved", weights of `nn.Embedding` "lookup".
        device: The GPU that runs it.
        readers: The numbers of the GPUs that read weights of the roles "shared" and "seldom", by `gpu_view`; none: its own.

    Returns:
        The model's memory: `unmanage` it to have the model as it was, or use it as a context.

    Raises:
        DeviceError: There is no such GPU, it cannot use managed memory while the host does, or cuda-bindings is missing.
        RuntimeMemoryError: A name or role does not exist, or reaches no weight; the model is managed already, weights share
            memory or have gaps, or the host has too little. The model is as it was.

    Cost: a copy of the weights, module by module; a module's old memory is freed once it is copied, so that weights of the host
    take no more than the largest module besides.
    """
    calls = calls_for(device)
    check_readers(readers)
    groups = grouped(model, roles or {})
    more, free = _more_host_bytes(groups.values()), free_host_bytes()
    if more > free * _HOST_SHARE:
        raise RuntimeMemoryError(
            f"the weights may take {format_bytes(more)} more of the host, and it has {format_bytes(free)} free; keep a part of "
            "the model out, or use smaller weights"
        )
    return ManagedModel(model, groups, calls, readers)


class ManagedModel:
    """A model whose weights are in managed memory. `manage` makes it."""

    def __init__(
        self,
        model: nn.Module,
        groups: dict[tuple[int, Role], list[nn.Parameter]],
        calls: Calls,
        readers: Sequence[int] = (),
    ) -> None:
        """Take over a model's weights.

        Args:
            model: The model.
            groups: Its parameters, by module and role.
            calls: The calls of its GPU.
            readers: The numbers of the GPUs that read what is shared; none: its own.

        Raises:
            RuntimeMemoryError: The system does not give the memory; the model is as it was.
        """
        tensors = [one for one in chain(model.parameters(), model.buffers()) if range_of(one) is None]
        self._homes = {id(one): (one, one.device) for one in tensors}
        self._calls, self._is_done = calls, False
        self.size_bytes = 0
        try:
            for (_, role), parameters in groups.items():
                self.size_bytes += _move(parameters, role, calls, readers)
            for tensor in tensors:
                if range_of(tensor) is None:  # a buffer, or a weight of no elements
                    tensor.data = tensor.data.to(calls.device)
                grad_follows(tensor)
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
            torch.cuda.OutOfMemoryError: They were on the GPU, and no longer fit. All stay managed.
            RuntimeError: The host has no room for the next one. What came back before it stays; call again for the rest.

        Cost: waits for the GPU; a copy of the weights. Those of the host come back one by one, and each module's managed memory
        is freed with its last.
        """
        if not self._is_done:
            self._restore()
            self._is_done = True

    def _restore(self) -> None:
        """Put back to the GPU all or nothing, then to the host one after another."""
        moved: list[tuple[torch.Tensor, torch.Tensor]] = []
        of_gpu = {key: home for key, home in self._homes.items() if home[1].type != "cpu"}
        try:
            for tensor, device in of_gpu.values():
                moved.append((tensor, tensor.data))
                _put_back(tensor, device)
        except BaseException:
            for tensor, data in moved:
                tensor.data = data
                grad_follows(tensor)
            raise
        moved.clear()
        self._homes = {key: home for key, home in self._homes.items() if key not in of_gpu}
        for key, (tensor, device) in list(self._homes.items()):
            _put_back(tensor, device)
            del self._homes[key]


def grad_follows(tensor: torch.Tensor) -> None:
    """Move a weight's gradient to where the weight is now; nothing where it has none, or is there.

    Args:
        tensor: A parameter or buffer.
    """
    grad = tensor.grad if tensor.is_leaf else None
    if grad is not None and grad.device != tensor.device:
        grad.data = grad.data.to(tensor.device)


def _put_back(tensor: torch.Tensor, device: torch.device) -> None:
    if tensor.device != device or range_of(tensor) is not None:
        tensor.data = tensor.data.to(device, copy=True)
    grad_follows(tensor)


def _more_host_bytes(groups: Iterable[Sequence[nn.Parameter]]) -> int:
    """Return what managing takes of the host beyond what is there: weights of a GPU, and two copies of one group at a time."""
    coming, most = 0, 0
    for group in groups:
        sizes = [(one.numel() * one.element_size(), one.device.type == "cpu") for one in group]
        coming += sum(size for size, is_of_host in sizes if not is_of_host)
        most = max(most, sum(size for size, is_of_host in sizes if is_of_host))
    return coming + most


def _move(parameters: list[nn.Parameter], role: Role, calls: Calls, readers: Sequence[int]) -> int:
    """Move parameters to a range of their own; return its size. The host writes it, so that no GPU memory is needed."""
    offsets, end = list[int](), 0
    for one in parameters:
        offsets.append(end)
        end += -(-one.numel() * one.element_size() // _ALIGN) * _ALIGN
    if end == 0:
        return 0
    memory = ManagedRange(end, role, calls, readers)
    memory.is_of_model = True
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
