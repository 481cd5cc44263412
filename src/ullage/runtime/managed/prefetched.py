"""Brings the managed weights of the modules that run next while the present ones compute."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from ullage.errors import RuntimeMemoryError
from ullage.runtime.managed.memory import ManagedRange, range_of
from ullage.runtime.managed.moves import CudaMoves
from ullage.runtime.managed.over_subscription import OverSubscription, over_subscribed
from ullage.runtime.managed.roles import RULES, Behind
from ullage.runtime.managed.schedule import Moves, Schedule

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from types import TracebackType


def prefetching(
    model: nn.Module,
    *,
    ahead: int = 2,
    gpu_bytes: int | None = None,
    modules: Iterable[nn.Module] | None = None,
) -> PrefetchedModel:
    """Prefetch a model's managed weights, in the order in which its modules run.

    The first pass shows the order; from the second on, weights are on their way before their module runs. A pass that goes
    another way is right too: what was not foreseen is brought when its module runs. Only passes forwards are followed: what a
    pass backwards reads and has left the GPU comes back by page faults.

    Args:
        model: A model with managed weights (`manage`), or with buffers and parameters that are managed tensors.
        ahead: For how many modules weights are brought before they run.
        gpu_bytes: What of its managed memory may be on the GPU at once; None: all of it, and the schedule sends nothing away.
        modules: Modules of the model whose weights move together, such as `model.layers`; None: each module that has weights
            of its own. Of a list or dict of modules, which itself never runs, each in it counts. Modules outside of these
            count one by one.

    Returns:
        The schedule: `stop` it, or use it as a context; `stats` has what it did.

    Raises:
        RuntimeMemoryError: The model has no managed weights or they are of several GPUs, or `gpu_bytes` does not hold the
            largest module beside what stays; or one of `modules` is not in the model, or never runs. No hook is left.

    Warns:
        UserWarning: What is to be on the GPU at once is more than it has free now. Managed memory that is there already is not
            counted as free.

    Stop it before the model is unmanaged: it holds the memory that it moves.

    Cost: one call of the driver for each range that moves, which may keep the host for as long as the move takes. Where the
    moves were batches, a pass of 16 layers, 1 GiB, half of it on the GPU, took 7.9 ms of the host (torch 2.11, driver
    580.159.04, one H200); with single calls it was not measured.
    """
    units, ranges = _units(model, _followed(model, modules))
    total, free = sum(one.size_bytes for one in ranges), ranges[0].calls.free_gpu_bytes()
    excess = over_subscribed(total if gpu_bytes is None else min(total, gpu_bytes), free)
    if excess is not None:
        warnings.warn(str(excess), stacklevel=2)
    return PrefetchedModel(model, units, ranges, CudaMoves(ranges), ahead=ahead, gpu_bytes=gpu_bytes, free_bytes=free)


class PrefetchedModel:
    """A model whose managed weights are prefetched. `prefetching` makes it.

    Attributes:
        stats: What was done so far.
    """

    def __init__(
        self,
        model: nn.Module,
        units: list[tuple[nn.Module, list[int]]],
        ranges: Sequence[ManagedRange],
        moves: Moves,
        *,
        ahead: int,
        gpu_bytes: int | None,
        free_bytes: int,
    ) -> None:
        """Hook a model's modules.

        Args:
            model: The model.
            units: The modules that are followed, each with the numbers of its ranges.
            ranges: The ranges.
            moves: What moves them.
            ahead: For how many modules weights are brought before they run.
            gpu_bytes: What may be on the GPU at once; None: all.
            free_bytes: What the GPU has free.

        Raises:
            RuntimeMemoryError: `gpu_bytes` is too little; no hook is left.
        """
        staying = [number for number, one in enumerate(ranges) if RULES[one.role].behind is Behind.STAY]
        self._total = sum(one.size_bytes for one in ranges)
        self._room = free_bytes if gpu_bytes is None else gpu_bytes
        sizes, needs = [one.size_bytes for one in ranges], [numbers for _, numbers in units]
        schedule = Schedule(sizes, needs, moves, ahead=ahead, gpu_bytes=gpu_bytes, staying=staying)
        self.stats, self._schedule = schedule.stats, schedule
        self._modules = [_ModuleHooks(number, schedule) for number in range(len(units))]
        self._hooks: list[Any] = []
        self._hook(model, [module for module, _ in units])

    def __enter__(self) -> PrefetchedModel:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def over_subscription(self) -> OverSubscription | None:
        """What passes would cost without a schedule; None where the weights fit.

        They are held against `gpu_bytes`, and where that is None, against what the GPU had free at the start.
        """
        return over_subscribed(self._total, self._room)

    def forget(self) -> None:
        """Take all weights for gone from the GPU, after the host has worked on them: the next pass brings them again."""
        self._schedule.forget()

    def stop(self) -> None:
        """Remove the hooks; weights stay where they are, and no memory is held. A second time does nothing."""
        for hook in self._hooks:
            hook.remove()
        self._hooks, self._modules, self._schedule = [], [], Schedule([], [], _NoMoves(), ahead=0)

    def _hook(self, model: nn.Module, modules: list[nn.Module]) -> None:
        unseen = torch._dynamo.disable  # a module may be compiled with its hooks, and these are not to be
        self._hooks.append(model.register_forward_pre_hook(unseen(self._begin)))
        for one, module in zip(self._modules, modules, strict=True):
            self._hooks.append(module.register_forward_pre_hook(unseen(one.before)))
            self._hooks.append(module.register_forward_hook(unseen(one.after), always_call=True))
        self._hooks.append(model.register_forward_hook(unseen(self._end)))

    def _begin(self, module: nn.Module, args: Any) -> None:
        if not _is_backwards():
            for one in self._modules:
                one.depth = 0
            self._schedule.begin()

    def _end(self, module: nn.Module, args: Any, output: Any) -> None:
        if not _is_backwards():
            self._schedule.end()


class _NoMoves:
    """What moves nothing."""

    def bring(self, ranges: Sequence[int]) -> None: ...
    def send_away(self, ranges: Sequence[int]) -> None: ...
    def wait_for(self, ranges: Sequence[int]) -> None: ...
    def done_with(self, ranges: Sequence[int]) -> None: ...


class _ModuleHooks:
    """What happens before and after one module runs."""

    def __init__(self, number: int, schedule: Schedule) -> None:
        self._number, self._schedule, self.depth = number, schedule, 0

    def before(self, module: nn.Module, args: Any) -> None:
        if not _is_backwards():
            self.depth += 1
            self._schedule.before(self._number)

    def after(self, module: nn.Module, args: Any, output: Any) -> None:
        if self.depth:  # else an earlier hook raised, and the module did not begin
            self.depth -= 1
            self._schedule.after(self._number)


def _is_backwards() -> bool:
    """Tell whether a pass backwards runs a module once more, as checkpointing does."""
    return bool(torch._C._current_graph_task_id() != -1)


def _followed(model: nn.Module, modules: Iterable[nn.Module] | None) -> list[nn.Module]:
    """Return the modules whose weights move together: for one that never runs, those in it.

    Raises:
        RuntimeMemoryError: One is not in the model, or never runs and has weights of its own.
    """
    inside = {id(one) for one in model.modules()}
    waiting = [modules] if isinstance(modules, nn.ModuleDict) else list(modules or ())  # as such it yields names
    followed = []
    while waiting:
        one = waiting.pop(0)
        if id(one) not in inside:
            name = type(one).__name__ if isinstance(one, nn.Module) else repr(one)
            raise RuntimeMemoryError(f"{name} of modules=[...] is no module of this {type(model).__name__}")
        if type(one).forward is not nn.Module.forward or "forward" in vars(one):
            followed.append(one)
        elif next(one.parameters(recurse=False), None) is not None:
            raise RuntimeMemoryError(
                f"{type(one).__name__} of modules=[...] never runs, so nothing tells when its weights are needed; name the "
                "module that uses it"
            )
        else:
            waiting = [*one.children(), *waiting]
    return followed


def _units(model: nn.Module, together: list[nn.Module]) -> tuple[list[tuple[nn.Module, list[int]]], list[ManagedRange]]:
    """Return the modules to follow with the numbers of their ranges, and the ranges.

    Raises:
        RuntimeMemoryError: There are none, or of several GPUs.
    """
    inside = {id(inner) for one in together for inner in one.modules()}
    numbers: dict[ManagedRange, int] = {}
    units = []
    for module in model.modules():
        is_unit = any(module is one for one in together)
        if not is_unit and id(module) in inside:
            continue
        tensors = [*module.parameters(recurse=is_unit), *module.buffers(recurse=is_unit)]
        found = dict.fromkeys(one for one in map(range_of, tensors) if one is not None)
        moved = [one for one in found if RULES[one.role].behind is not Behind.NEVER_MOVED]
        if moved:
            units.append((module, [numbers.setdefault(one, len(numbers)) for one in moved]))
    if not units:
        raise RuntimeMemoryError(f"{type(model).__name__} has no managed weights that move; manage() it first")
    if len({id(one.calls) for one in numbers}) > 1:
        raise RuntimeMemoryError("the model's managed weights are of several GPUs; prefetch each part by itself")
    return units, list(numbers)
