"""Moves blocks from host memory to buffers: on a GPU by streams of its own, ordered by events alone; elsewhere at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch

from ullage.runtime.weights.staging import no_wait

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class Arrival(NamedTuple):
    """What becomes of bytes that were copied.

    Attributes:
        landings: Where they are copied to in turn, uint8: while a block is made of one, the next one's bytes arrive.
        land: Makes a block of them in a buffer, from the landing, the block's number and the buffer's.
    """

    landings: tuple[torch.Tensor, ...]
    land: Callable[[torch.Tensor, int, int], None]


def _copy(source: torch.Tensor, target: torch.Tensor) -> None:
    target[: len(source)].copy_(source, non_blocking=True)


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
            if self._arrival is None:
                _copy(source, self._slots[slot])
                return
            landing = self._arrival.landings[0]
            _copy(source, landing)
            self._arrival.land(landing, block, slot)

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

    Whatever stream computes, it is ordered by events: a copy after the last use of its buffer, a use after the last copy. Where
    something becomes of the bytes, that has a stream too, so that the link does not wait for it.
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
        self._sources, self._slots, self._device = sources, slots, device
        self.stream = torch.cuda.Stream(device)
        self._copied = [torch.cuda.Event() for _ in slots]
        self._used = [torch.cuda.Event() for _ in slots]
        for slot in range(len(slots)):
            self.done_with(slot)  # a buffer's memory may have had another user on this stream
        self._landing = None if arrival is None else _Landing(arrival, device)

    def copy_in(self, block: int, slot: int) -> None:
        """Issue a copy of a block to a buffer, after what `done_with` last marked for it."""
        self.copy_from(self._sources[block], block, slot)

    def copy_from(self, source: torch.Tensor, block: int, slot: int) -> None:
        """Issue a copy of a block's bytes, wherever they are in pinned memory; on any thread, one at a time."""
        if self._landing is not None:
            self._landing.copy(source, self.stream, block, slot, self._used[slot], self._copied[slot])
            return
        self.stream.wait_event(self._used[slot])
        with torch.no_grad(), torch.cuda.stream(self.stream):
            _copy(source, self._slots[slot])
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
        """Wait until all copies that were issued are done, and what becomes of them."""
        self.stream.synchronize()
        if self._landing is not None:
            self._landing.stream.synchronize()

    def foresee(self, blocks: Sequence[int]) -> None:
        """Do nothing: blocks are there."""

    def begin(self) -> None:
        """Do nothing: all copies are issued."""


class _Landing:
    """Bytes that land on one stream, and blocks that are made of them on another."""

    def __init__(self, arrival: Arrival, device: torch.device) -> None:
        self.stream = torch.cuda.Stream(device)
        self._arrival, self._next = arrival, 0
        self._landed = [torch.cuda.Event() for _ in arrival.landings]
        self._free = [torch.cuda.Event() for _ in arrival.landings]
        for event in self._free:
            event.record(torch.cuda.current_stream(device))  # its memory may have had another user on this stream

    def copy(
        self,
        source: torch.Tensor,
        copies: torch.cuda.Stream,
        block: int,
        slot: int,
        used: torch.cuda.Event,
        is_there: torch.cuda.Event,
    ) -> None:
        """Issue a copy on the stream of copies, and what becomes of it on the own one.

        Args:
            source: The block's bytes in pinned memory, uint8.
            copies: The stream.
            block: The block's number.
            slot: The buffer's.
            used: Marks the last use of the buffer.
            is_there: Recorded once the block is.
        """
        turn = self._next
        self._next = (turn + 1) % len(self._free)
        landing = self._arrival.landings[turn]
        copies.wait_event(self._free[turn])
        with torch.no_grad(), torch.cuda.stream(copies):
            _copy(source, landing)
        self._landed[turn].record(copies)
        self.stream.wait_event(self._landed[turn])
        self.stream.wait_event(used)
        with torch.no_grad(), torch.cuda.stream(self.stream):
            self._arrival.land(landing, block, slot)
        self._free[turn].record(self.stream)
        is_there.record(self.stream)
