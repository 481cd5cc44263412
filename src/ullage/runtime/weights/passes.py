"""Where a pass through a streamed model begins and ends, and whose thread it is.

A pass begins where the model is called, or, where a part of it is called instead, at its first block.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import torch

from ullage.errors import RuntimeMemoryError
from ullage.runtime.weights.graphs import check_not_capturing

if TYPE_CHECKING:
    from ullage.runtime.weights.hosted import HostedBlock
    from ullage.runtime.weights.prediction import StepClock
    from ullage.runtime.weights.ring import Ring
    from ullage.runtime.weights.runner import BlockRunner


def is_backward() -> bool:
    """Tell whether a pass backwards is running on this thread; it may run blocks once more."""
    return bool(torch._C._current_graph_task_id() != -1)


class Passes:
    """The passes of one streamed model.

    Attributes:
        running: The block that runs; None between blocks. One that is there when another begins was broken off.
    """

    def __init__(self, hosted: list[HostedBlock], ring: Ring, clock: StepClock, device: torch.device) -> None:
        """Prepare.

        Args:
            hosted: The streamed blocks.
            ring: Which of them lies where.
            clock: What times passes.
            device: Where they run.
        """
        self.running: BlockRunner | None = None
        self._hosted, self._ring, self._clock, self._device = hosted, ring, clock, device
        self._lock = threading.Lock()
        self._owner: int | None = None
        self._is_call = False
        self._is_fresh = False  # whether the pass began, and its first block did not run yet

    def begin_call(self, *_: Any) -> None:
        """Begin a pass where the model is called."""
        if not is_backward():
            self._begin()
            self._is_call = True

    def begin_blocks(self, *_: Any) -> None:
        """Begin one at the first block, where the model's call did not."""
        if is_backward():
            return
        if not self._is_fresh:
            self._begin()
        self._is_fresh = False
        self._clock.start()

    def end_blocks(self, *_: Any) -> None:
        """Note that the last block has run."""
        if is_backward():
            return
        self._clock.stop()
        if not self._is_call:
            self._owner = None

    def end_call(self, *_: Any) -> None:
        """Note that the model's call has ended; also where it raised."""
        if not is_backward() and self._owner == threading.get_ident():
            self._owner, self._is_call, self._is_fresh = None, False, False

    def check_may_run(self) -> None:
        """Check that no graph is being captured, and that no other thread is in a pass.

        Raises:
            RuntimeMemoryError: One is; the capture, or that pass, goes on.
        """
        self.check_not_captured()
        if is_backward():
            return
        with self._lock:
            mine = threading.get_ident()
            if self._owner not in (None, mine) and self._owner in {one.ident for one in threading.enumerate()}:
                raise RuntimeMemoryError("another thread is running the streamed model: one pass at a time")
            self._owner = mine

    def check_not_captured(self) -> None:
        """Check that no graph is being captured.

        Raises:
            RuntimeMemoryError: One is; the capture goes on.
        """
        check_not_capturing(self._device)

    def _begin(self) -> None:
        self.check_may_run()
        if self.running is not None:
            self.running.recover()
        for one in self._hosted:
            one.take_changes()
        self._ring.begin()
        self._is_fresh = True
