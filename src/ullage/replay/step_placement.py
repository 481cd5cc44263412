"""Placement of one step: the buffers of a step that repeats, so that the same plan serves each."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from ullage.errors import ReplayError
from ullage.replay.minimalloc import Buffers

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ullage.trace import DeviceTrace


@dataclass(frozen=True, kw_only=True)
class Window:
    """The step that a plan is made for.

    Attributes:
        step: Its number, as `DeviceTrace.steps` counts.
        num_steps: How many steps the recording has.
        begin_event: The step's first event: the request before which the least is live.
        end_event: The event behind its last.
        num_before: The plan's first buffers are so many that were there when the step began; the step's own requests
            follow in their order.
        repeats: Whether the next step asks for the same sizes in the same order.
    """

    step: int
    num_steps: int
    begin_event: int
    end_event: int
    num_before: int
    repeats: bool

    def to_json(self) -> dict[str, Any]:
        """Return the window as plain data with stable keys."""
        return asdict(self)


def step_buffers(device: DeviceTrace, step: int | None) -> tuple[Buffers, Window]:
    """Return the buffers of one step, and which it is.

    A step is taken from where the least is live in it to the same place in the next one: what crosses over there keeps its
    place throughout, which costs the less the less there is. A request that outlives the step takes the place of one that
    the step before left, where that has the same size and site and is gone by then, as a tensor that each step makes
    anew.

    Args:
        device: The recorded device.
        step: The step's number, as `DeviceTrace.steps` counts; None: the last one that the next repeats exactly, else the
            last that has a next.

    Raises:
        ReplayError: There are no steps to be seen in the recording, or none of that number that has a next.
    """
    windows = list(pairwise(device.steps.starts.tolist()))
    if len(windows) < 2:
        raise ReplayError(
            "no steps to be seen in this recording: annotate them, as torch.profiler does, or record more"
        )
    num_steps = len(windows) - 1  # the last one has no next
    first = int(device.steps.step_of(np.array(windows[0][:1]))[0])
    if step is not None and not first <= step < first + num_steps:
        raise ReplayError(
            f"there is no step {step} that can be placed: those from {first} to {first + num_steps - 1} can"
        )
    asked = [_sizes_of(device, begin, end) for begin, end in windows]
    repeating = [k for k in range(num_steps) if np.array_equal(asked[k], asked[k + 1])]
    chosen = step - first if step is not None else repeating[-1] if repeating else num_steps - 1
    begin, end = _from_least_to_least(device, windows[chosen], windows[chosen + 1])
    buffers, num_before = _buffers_between(device, begin, end)
    window = Window(
        step=first + chosen,
        num_steps=len(device.steps),
        begin_event=begin,
        end_event=end,
        num_before=num_before,
        repeats=chosen in repeating,
    )
    return buffers, window


def _from_least_to_least(device: DeviceTrace, step: tuple[int, int], following: tuple[int, int]) -> tuple[int, int]:
    """Return the request before which the least is live in a step, and the same one of the next step."""
    births = device.blocks.birth
    births = births[births >= 0]
    own, later = (births[(births >= begin) & (births < end)] for begin, end in (step, following))
    if not len(own):
        return step
    live = np.where(own > 0, device.counters.active_bytes[own - 1], device.history.before[2])
    nth = int(np.argmin(live))
    return int(own[nth]), int(later[nth]) if nth < len(later) else following[1]


def _sizes_of(device: DeviceTrace, begin: int, end: int) -> NDArray[np.int64]:
    blocks = device.blocks
    return blocks.requested_bytes[(blocks.birth >= begin) & (blocks.birth < end)]


def _buffers_between(device: DeviceTrace, begin: int, end: int) -> tuple[Buffers, int]:
    b = device.blocks
    lives_on = (b.death < 0) | (b.death >= end)
    before = np.flatnonzero((b.birth < begin) & (lives_on | (b.death >= begin)))
    own = np.flatnonzero((b.birth >= begin) & (b.birth < end))
    # Who gives its place up in the step, by what it is: the latest to go last.
    leaving: dict[tuple[int, int], list[int]] = {}
    for row in sorted(before[~lives_on[before]].tolist(), key=lambda row: -int(b.death[row])):
        leaving.setdefault((int(b.requested_bytes[row]), int(b.site[row])), []).append(row)
    replaced = set()
    for row in own[lives_on[own]].tolist():
        waiting = leaving.get((int(b.requested_bytes[row]), int(b.site[row])), [])
        if waiting and b.death[waiting[-1]] <= b.birth[row]:
            replaced.add(waiting.pop())
    kept = np.array([row for row in before.tolist() if row not in replaced], dtype=np.int64)
    rows = np.concatenate([kept, own])
    stays = np.concatenate([np.ones(len(kept), bool), lives_on[own]])
    buffers = Buffers(
        sizes=b.requested_bytes[rows].astype(np.int64),
        begins=np.where(stays, 0, b.birth[rows] - begin).astype(np.int64),
        ends=np.where(stays, end - begin, b.death[rows] - begin).astype(np.int64),
    )
    return buffers, len(kept)
