"""Moves blocks from host memory to buffers: on a GPU by a stream of its own, ordered by events alone; elsewhere at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch

from ullage.runtime.weights.staging import no_wait

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class Arrival(NamedTuple):
    """What becomes of bytes that were copied.

    Attributes:
        landing: Where they are copied to, uint8. One does: the next copy comes after what is made of them.
        land: Makes a block in a buffer of them, from the block's number and the buffer's.
    """

    landing: torch.Tensor
    land: Callable[[int, int], None]


def _copy(source: torch.Tensor, buffer: torch.Tensor, block: int, slot: int, arrival: Arrival | None) -> None:
    if arrival is None:
        buffer[: len(source)].copy_(source, non_blocking=True)
        return
    arrival.landing[: len(source)].copy_(source, non_blocking=True)
    arrival.land(block, slot)


class HostCopies:
    """Copies where there is no GPU: each is done when it is issued."""

    def __init__(
        self, sources: Sequence[torch.Tensor], slots: Sequence[torch.Tensor], arrival: Arrival | None = None
    ) -> None:
        """Prepare.

        Args:
            sources: The bytes of each streamed block, uint8 on the host.
            slots: The buffers, uint8.
            arrival: What becomes of bytes that were copied; None: they are copied to the buffer, and stay as they are.
        """
        self._sources, self._slots, self._arrival = sources, slots, arrival

    def copy_in(self, block: int, slot: int) -> None:
        """Copy a block to a buffer."""
        self.copy_from(self._sources[block], block, slot)

    def copy_from(self, source: torch.Tensor, block: int, slot: int) -> None:
        """Copy a block's bytes, wherever they are on the host, to a buffer."""
        with torch.no_grad():
            _copy(source, self._slots[slot], block, slot, self._arrival)

    def mark(self) -> Callable[[], None]:
        """Return what waits for the copies up to now: nothing has to."""
        return no_wait

    def wait_for(self, slot: int) -> None:
        """Do nothing: the copy is there."""

    def done_with(self, slot: int) -> None:
        """Do nothing: what was computed is done."""

    def settle(self) -> None:
        """Do nothing: all copies are done."""

    def foresee(self, blocks: Sequence[int]) -> None:
        """Do nothing: blocks are there."""

    def begin(self) -> None:
        """Do nothing: all copies are done."""


class CudaCopies:
    """Copies on a stream of their own. The host never waits.

    Whatever stream computes, it is ordered by events: a copy after the last use of its buffer, a use after the last copy.
    """

    def __init__(
        self,
        sources: Sequence[torch.Tensor],
        slots: Sequence[torch.Tensor],
        device: torch.device,
        arrival: Arrival | None = None,
    ) -> None:
        """Prepare.

        Args:
            sources: The bytes of each streamed block, uint8 in pinned host memory.
            slots: The buffers, uint8 on the GPU.
            device: The GPU.
            arrival: What becomes of bytes that were copied; None: they are copied to the buffer, and stay as they are.
        """
        self._sources, self._slots, self._device, self._arrival = sources, slots, device, arrival
        self.stream = torch.cuda.Stream(device)
        self._copied = [torch.cuda.Event() for _ in slots]
        self._used = [torch.cuda.Event() for _ in slots]
        for slot in range(len(slots)):
            self.done_with(slot)  # a buffer's memory may have had another user on this stream

    def copy_in(self, block: int, slot: int) -> None:
        """Issue a copy of a block to a buffer, after what `done_with` last marked for it."""
        self.copy_from(self._sources[block], block, slot)

    def copy_from(self, source: torch.Tensor, block: int, slot: int) -> None:
        """Issue a copy of a block's bytes, wherever they are in pinned memory; on any thread, one at a time."""
        self.stream.wait_event(self._used[slot])
        with torch.no_grad(), torch.cuda.stream(self.stream):
            _copy(source, self._slots[slot], block, slot, self._arrival)
        self._copied[slot].record(self.stream)

    def mark(self) -> Callable[[], None]:
        """Return what lets the host wait, on any thread, for the copies that were issued up to now."""
        event = torch.cuda.Event(blocking=True)  # a thread that spins would take a core from those that read
        event.record(self.stream)
        wait: Callable[[], None] = event.synchronize
        return wait

    def wait_for(self, slot: int) -> None:
        """Let the current stream wait for the last copy to a buffer."""
        torch.cuda.current_stream(self._device).wait_event(self._copied[slot])

    def done_with(self, slot: int) -> None:
        """Mark that what was issued on the current stream may have read a buffer."""
        self._used[slot].record(torch.cuda.current_stream(self._device))

    def settle(self) -> None:
        """Wait until all copies that were issued have read the host."""
        self.stream.synchronize()

    def foresee(self, blocks: Sequence[int]) -> None:
        """Do nothing: blocks are there."""

    def begin(self) -> None:
        """Do nothing: all copies are issued."""
