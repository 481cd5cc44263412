"""Finds reads of what was discarded, while debugging: such a read returns an indeterminate value and no error."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from ullage.errors import RuntimeMemoryError
from ullage.runtime.managed.memory import range_of

if TYPE_CHECKING:
    from collections.abc import Iterator

_OVERWRITE = {
    *("fill_", "zero_", "copy_", "_foreach_zero_", "_foreach_copy_"),
    *("normal_", "uniform_", "random_", "exponential_", "bernoulli_", "cauchy_", "geometric_", "log_normal_"),
}
_MAKE_NEW = {  # by the shape, type and device of a tensor alone
    *("empty_like", "zeros_like", "ones_like", "full_like", "rand_like", "randn_like", "randint_like"),
    *("new_empty", "new_empty_strided", "new_zeros", "new_ones", "new_full"),
}


class ReadGuard(TorchDispatchMode):  # type: ignore[misc]  # torch is not followed
    """A context in which an operation of torch that reads a discarded managed tensor raises.

    An operation that overwrites makes the tensor readable again, also where it overwrites a part. Kernels that torch does not
    dispatch, such as Triton's, are not seen: after one that writes, call `written`.

    Cost: some microseconds for each operation.
    """

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Check what an operation reads, and run it."""
        kwargs = kwargs or {}
        written = list(_overwritten(func, args, kwargs))
        if not func.is_view and func.overloadpacket.__name__ not in _MAKE_NEW:
            for one in tree_leaves((args, kwargs)):
                if isinstance(one, torch.Tensor) and not any(one is other for other in written):
                    _check(one, func)
        out = func(*args, **kwargs)
        for one in written:
            found = range_of(one)
            if found is not None:
                found.is_lost = False
        return out


def _overwritten(func: Any, args: Any, kwargs: Any) -> Iterator[torch.Tensor]:
    """Yield the tensors that an operation fills without reading them."""
    if func.overloadpacket.__name__ in _OVERWRITE:
        yield from _tensors_in(args[0])
    for argument in func._schema.arguments:
        if argument.is_out:
            yield from _tensors_in(kwargs.get(argument.name))


def _tensors_in(argument: Any) -> Iterator[torch.Tensor]:
    """Yield a tensor, or those of a list."""
    for one in argument if isinstance(argument, list | tuple) else [argument]:
        if isinstance(one, torch.Tensor):
            yield one


def _check(tensor: torch.Tensor, func: Any) -> None:
    found = range_of(tensor)
    if found is not None and found.is_lost:
        raise RuntimeMemoryError(
            f"{func} reads a managed tensor of {tuple(tensor.shape)} that was discarded: what it holds is indeterminate; write "
            "it first, or do not discard it"
        )
