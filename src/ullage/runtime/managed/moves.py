"""Moves ranges of managed memory by two streams of their own, one in each direction, ordered by events alone.

The link carries both directions at once. What is brought waits for what was sent away before it, so that the driver finds the
room that the schedule has made; what is sent away waits for the computation that used it.

Each range is a call of its own. The driver may keep the host for as long as a move takes, and so from issuing what is to run
meanwhile; it did so of a batch of many ranges, and far less of calls for each. Measured on torch 2.11, driver 580.159.04, one
H200, to the GPU: 1 GiB in 16 ranges, 22.9 ms of the host in a move of 23.3 ms by a batch, 1.5 ms of 25.8 ms by calls; one range
of 256 MiB, 4.0 ms of 5.6 ms by either. To the host, only batches were measured (85 ms of 85 ms).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from ullage.runtime.managed.roles import HOST, RULES, Behind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ullage.runtime.managed.memory import ManagedRange


class CudaMoves:
    """Moves on a GPU, one call for each range; the driver may keep the host for as long as the move takes."""

    def __init__(self, ranges: Sequence[ManagedRange]) -> None:
        """Prepare.

        Args:
            ranges: What is moved; all of one GPU.
        """
        self._ranges, self._calls = ranges, ranges[0].calls
        self._device, self._gpu = self._calls.device, ranges[0].gpu
        self._in, self._out = torch.cuda.Stream(self._device), torch.cuda.Stream(self._device)
        self._brought: dict[int, torch.cuda.Event] = {}
        self._used: dict[int, torch.cuda.Event] = {}
        # By this schedule, and not brought since; others may hold something, whatever was discarded.
        self._discarded: set[int] = set()
        begun = torch.cuda.Event()
        begun.record(torch.cuda.current_stream(self._device))
        self._in.wait_event(begun)
        self._out.wait_event(begun)

    def bring(self, ranges: Sequence[int]) -> None:
        """Issue moves to the GPU, after what was sent away so far; what holds nothing is not copied.

        Raises:
            RuntimeMemoryError: The driver refuses; some may be on their way, and all may be brought again.
        """
        lost = [one for one in ranges if one in self._discarded]
        kept = [one for one in ranges if one not in self._discarded]
        if kept:
            self._calls.prefetch_each([self._ranges[one].span for one in kept], self._gpu, self._in.cuda_stream)
        if lost:
            self._calls.discard_and_prefetch([self._ranges[one].span for one in lost], self._gpu, self._in.cuda_stream)
            self._discarded.difference_update(lost)
        there = torch.cuda.Event()
        there.record(self._in)
        self._brought.update(dict.fromkeys(ranges, there))

    def send_away(self, ranges: Sequence[int]) -> None:
        """Issue moves to the host, after the last use; scratch is discarded instead.

        Raises:
            RuntimeMemoryError: The driver refuses; some may be on their way, and all may be sent again.
        """
        for event in {id(event): event for one in ranges for event in self._events_of(one)}.values():
            self._out.wait_event(event)
        lost = [one for one in ranges if RULES[self._ranges[one].role].behind is Behind.DISCARD]
        kept = [one for one in ranges if RULES[self._ranges[one].role].behind is not Behind.DISCARD]
        if kept:
            self._calls.prefetch_each([self._ranges[one].span for one in kept], HOST, self._out.cuda_stream)
        if lost:
            self._calls.discard([self._ranges[one].span for one in lost], self._out.cuda_stream)
            self._discarded.update(lost)
            for one in lost:
                self._ranges[one].is_lost = True
        gone = torch.cuda.Event()
        gone.record(self._out)
        self._in.wait_event(gone)

    def wait_for(self, ranges: Sequence[int]) -> None:
        """Let the current stream wait until ranges were brought."""
        current = torch.cuda.current_stream(self._device)
        for event in {id(self._brought[one]): self._brought[one] for one in ranges}.values():
            current.wait_event(event)

    def done_with(self, ranges: Sequence[int]) -> None:
        """Mark that what was issued on the current stream may have used ranges."""
        used = torch.cuda.Event()
        used.record(torch.cuda.current_stream(self._device))
        self._used.update(dict.fromkeys(ranges, used))

    def _events_of(self, one: int) -> list[torch.cuda.Event]:
        return [events[one] for events in (self._used, self._brought) if one in events]
