"""What happens before and after a block runs: its weights are lent to it, and taken back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

from ullage.errors import RuntimeMemoryError
from ullage.runtime.weights.saved import SavedWeights

if TYPE_CHECKING:
    from torch import nn

    from ullage.runtime.weights.hosted import HostedBlock
    from ullage.runtime.weights.passes import Passes
    from ullage.runtime.weights.ring import Ring


class BlockRunner:
    """The hooks of one streamed block."""

    def __init__(
        self, number: int, hosted: list[HostedBlock], ring: Ring, slots: list[torch.Tensor], passes: Passes
    ) -> None:
        """Prepare.

        Args:
            number: The block's number among the streamed ones.
            hosted: All of those.
            ring: Which of them lies where.
            slots: The buffers, uint8.
            passes: What knows when a pass begins.
        """
        self._number, self._hosted, self._ring, self._slots = number, hosted, ring, slots
        self._passes = passes
        self._slot: int | None = None
        self._version = 0
        self._saving: Any = None
        self._saved: SavedWeights | None = None

    def before(self, module: nn.Module, args: Any) -> None:
        """Lend the weights.

        Raises:
            RuntimeMemoryError: A weight takes a gradient now, the module is a copy, another thread runs the model, or a
                graph is captured; or see `HostedBlock.take_changes`.
        """
        one = self._hosted[self._number]
        if module is not one.block.module:
            raise RuntimeMemoryError(
                f"this is a copy of {one.block.name}, which is streamed: unstream() before you copy"
            )
        keeps_graph = torch.is_grad_enabled()
        if keeps_graph and any(weight.parameter.requires_grad for weight in one.block.weights):
            raise RuntimeMemoryError(
                f"weights of {one.block.name} take gradients now, and streamed ones cannot: unstream() the model first"
            )
        self._passes.check_may_run()
        if self._passes.running is not None:
            self._passes.running.recover()
        with torch.inference_mode(False), torch.no_grad():
            one.take_changes()
            if one.copied_version != one.version():
                self._ring.forget(self._number)
            self._slot = self._ring.acquire(self._number)
            self._passes.running = self
            self._version = one.version()
            one.lend(self._slot, self._slots[self._slot])
        if keeps_graph:
            saved = SavedWeights(self._number, self._slots[self._slot], self._version_of, self._read)
            saving = torch.autograd.graph.saved_tensors_hooks(saved.pack, saved.unpack)
            saving.__enter__()
            self._saving, self._saved = saving, saved

    def after(self, module: nn.Module, args: Any, output: Any) -> Any:
        """Take the weights back; also when the block raised.

        Returns:
            The output, where it shared memory with the weights: a copy of that; else None.
        """
        if self._slot is None:
            return None
        if self._saving is not None:
            self._saving.__exit__(None, None, None)
        own = self._without_views(output)
        self._take_back()
        return own

    def recover(self) -> None:
        """Take the weights back from a block that was broken off, as by Ctrl-C: torch calls no hook then."""
        if self._saving is not None and self._saved is not None:
            top = torch._C._autograd._top_saved_tensors_default_hooks(False)
            if top is not None and top[0] == self._saved.pack:
                self._saving.__exit__(None, None, None)
        self._take_back()

    def _take_back(self) -> None:
        self._saving = self._saved = None
        slot, self._slot = self._slot, None
        self._passes.running = None
        if slot is None:
            return
        one = self._hosted[self._number]
        with torch.inference_mode(False), torch.no_grad():
            if one.version() != self._version:
                one.write_back(slot)
                self._ring.forget_running(self._number)
            one.send_home()
            self._ring.release(self._number)

    def _without_views(self, output: Any) -> Any:
        """Return a block's output with copies of what lies in the buffer; None where nothing does."""
        if self._slot is None:
            return None
        buffer = self._slots[self._slot]
        begin, end = buffer.data_ptr(), buffer.data_ptr() + buffer.numel()
        leaves, shape = tree_flatten(output)
        is_view = [isinstance(leaf, torch.Tensor) and _lies_in(leaf, begin, end) for leaf in leaves]
        if not any(is_view):
            return None
        return tree_unflatten(
            [leaf.clone() if view else leaf for leaf, view in zip(leaves, is_view, strict=True)], shape
        )

    def _version_of(self, number: int) -> int:
        return self._hosted[number].version()

    def _read(self, number: int) -> torch.Tensor:
        self._passes.check_not_captured()
        return self._slots[self._ring.read(number)]


def _lies_in(tensor: torch.Tensor, begin: int, end: int) -> bool:
    return bool(tensor.layout == torch.strided and tensor.numel() > 0 and begin <= tensor.data_ptr() < end)
