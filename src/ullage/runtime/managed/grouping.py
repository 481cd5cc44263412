"""Decides which of a model's parameters lie together in managed memory: those of one module and one role."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING

from torch import nn

from ullage.errors import RuntimeMemoryError
from ullage.runtime.managed.memory import range_of
from ullage.runtime.managed.roles import Role, role_named

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(kw_only=True)
class _Found:
    """A parameter where it was found first, and all its names: tied weights have several."""

    parameter: nn.Parameter
    module: nn.Module
    names: list[str] = field(default_factory=list)
    is_table: bool = False


def grouped(model: nn.Module, roles: Mapping[str, Role | str]) -> dict[tuple[int, Role], list[nn.Parameter]]:
    """Return the parameters to move by module and role, each once; those that are managed tensors already are left out.

    Args:
        model: Any model.
        roles: As `manage` takes them.

    Raises:
        RuntimeMemoryError: A name or role does not exist, a name's role reaches no weight, a parameter cannot be moved, or
            `manage` has moved it already.
    """
    named = {name: role_named(role) for name, role in roles.items()}
    _check_names(model, named)
    groups: dict[tuple[int, Role], list[nn.Parameter]] = {}
    storages: set[int] = set()
    idle = set(named)
    for one in _found_in(model):
        memory = range_of(one.parameter)
        if memory is not None and memory.is_of_model:
            raise RuntimeMemoryError(
                f"{type(model).__name__} is managed already ({one.names[0]}); unmanage() it before it is managed anew"
            )
        if memory is not None:
            continue
        _check(one.names[0], one.parameter, storages)
        name = _longest_name(one.names, named)
        role = named[name] if name is not None else Role.LOOKUP if one.is_table else Role.MOVED
        idle.discard(name or "")
        groups.setdefault((id(one.module), role), []).append(one.parameter)
    if idle:
        raise RuntimeMemoryError(
            f"the role given to {', '.join(map(repr, sorted(idle)))} reaches no weight of {type(model).__name__}: there is "
            "none that is not managed yet, or longer names say otherwise of all; leave it out"
        )
    return groups


def _found_in(model: nn.Module) -> list[_Found]:
    found: dict[int, _Found] = {}
    for prefix, module in model.named_modules(remove_duplicate=False):
        for key, parameter in module.named_parameters(recurse=False, remove_duplicate=False):
            one = found.setdefault(id(parameter), _Found(parameter=parameter, module=module))
            one.names.append(f"{prefix}.{key}" if prefix else key)
            one.is_table |= isinstance(module, nn.Embedding)
    return list(found.values())


def _check_names(model: nn.Module, named: Mapping[str, Role]) -> None:
    everything = chain(model.named_modules(remove_duplicate=False), model.named_parameters(remove_duplicate=False))
    unknown = sorted(set(named) - {name for name, _ in everything})
    if unknown:
        raise RuntimeMemoryError(f"{type(model).__name__} has nothing called {', '.join(unknown)}")


def _longest_name(names: list[str], named: Mapping[str, Role]) -> str | None:
    """Return the longest of what was named that a parameter is, or lies in, under any of its names; None: none."""
    fitting = [one for one in named if any(one == "" or name == one or name.startswith(f"{one}.") for name in names)]
    return max(fitting, key=len, default=None)


def _check(name: str, one: nn.Parameter, storages: set[int]) -> None:
    if one.device.type == "meta":
        raise RuntimeMemoryError(f"{name} has no memory yet (meta); load the weights before the model is managed")
    if not one.numel():
        return
    pointer = one.untyped_storage().data_ptr()
    if pointer in storages:
        raise RuntimeMemoryError(f"{name} shares memory with another parameter; clone one of the two first")
    expected = 1
    for size, stride in sorted(zip(one.shape, one.stride(), strict=True), key=lambda pair: pair[1]):
        if size != 1 and stride != expected:
            raise RuntimeMemoryError(f"{name} has gaps in its memory; make it contiguous first")
        expected *= size
    storages.add(pointer)
