"""What happens before and after a block runs: its weights are lent to it, and taken back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ullage.errors import RuntimeMemoryError
from ullage.runtime.weights.saved import SavedWeights

if TYPE_CHECKING:
    from torch import nn

    from ullage.runtime.weights.hosted import HostedBlock
    from ullage.runtime.weights.ring import Ring


class BlockRunner:
    """The hooks of one streamed block."""

    def __init__(self, number: int, hosted: list[HostedBlock], ring: Ring, slots: list[torch.Tensor]) -> None:
        """Prepare.

        Args:
            number: The block's number among the streamed ones.
            hosted: All of those.
            ring: Which of them lies where.
            slots: The buffers, uint8.
        """
        self._number, self._hosted, self._ring, self._slots = number, hosted, ring, slots
        self._slot: int | None = None
        self._version = 0
        self._saving: Any = None

    def before(self, module: nn.Module, args: Any) -> None:
        """Lend the weights.

        Raises:
            RuntimeMemoryError: A weight takes a gradient now; or see `HostedBlock.take_changes`.
        """
        one = self._hosted[self._number]
        keeps_graph = torch.is_grad_enabled()
        if keeps_graph and any(weight.parameter.requires_grad for weight in one.block.weights):
            raise RuntimeMemoryError(
                f"weights of {one.block.name} take gradients now, and streamed ones cannot: unstream() the model first"
            )
        one.take_changes()
        if one.copied_version != one.version():
            self._ring.forget(self._number)
        self._slot = self._ring.acquire(self._number)
        self._version = one.version()
        one.lend(self._slot, self._slots[self._slot])
        if keeps_graph:
            saved = SavedWeights(self._number, self._slots[self._slot], self._version_of, self._read)
            self._saving = torch.autograd.graph.saved_tensors_hooks(saved.pack, saved.unpack)
            self._saving.__enter__()

    def after(self, module: nn.Module, args: Any, output: Any) -> None:
        """Take the weights back; also when the block raised."""
        if self._slot is None:
            return
        if self._saving is not None:
            self._saving.__exit__(None, None, None)
            self._saving = None
        one = self._hosted[self._number]
        if one.version() != self._version:
            one.write_back(self._slot)
            self._ring.forget(self._number)
        one.send_home()
        self._slot = None
        self._ring.release(self._number)

    def _version_of(self, number: int) -> int:
        return self._hosted[number].version()

    def _read(self, number: int) -> torch.Tensor:
        return self._slots[self._ring.read(number)]
