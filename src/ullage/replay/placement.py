"""Placement: an offset for every block of a recording in one arena, as low as its lifetimes allow."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ullage import _core
from ullage.errors import ReplayError
from ullage.replay.minimalloc import Buffers
from ullage.replay.outcome import Outcome
from ullage.replay.simulate import Simulation
from ullage.replay.step_placement import Window, step_buffers

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ullage.trace import Trace

FORMAT = "ullage-placement"
VERSION = 1

_RECORDED_ALIGNMENT = 512
_STEPS_A_SECOND = 400_000_000  # measured on one core of a server; only a guide, as plans must not depend on a clock


@dataclass(frozen=True, kw_only=True, eq=False)
class Placement:
    """A plan: where each buffer lies in one arena, and from when to when.

    Attributes:
        height_bytes: The arena's size.
        largest_live_bytes: The most that is live at once; no plan is lower.
        alignment_bytes: What every offset is a multiple of; sizes count rounded up to it.
        sizes: Bytes of each request, in the order of the recording.
        offsets: Where each lies, in bytes.
        begins: When each begins, counted in the recording's operations; of one step, in its events.
        ends: When each has ended; exclusive.
        window: The step that the plan is for; None: it is for the whole recording.
    """

    height_bytes: int
    largest_live_bytes: int
    alignment_bytes: int
    sizes: NDArray[np.int64]
    offsets: NDArray[np.int64]
    begins: NDArray[np.int64]
    ends: NDArray[np.int64]
    window: Window | None = None

    def problem(self) -> str:
        """Say what is wrong with the plan, "" if nothing is; checked apart from how plans are made."""
        return _core.placement_problem(
            self.sizes,
            self.begins,
            self.ends,
            self.offsets,
            self.alignment_bytes,
            self.height_bytes,
            self.largest_live_bytes,
        )

    def to_json(self) -> dict[str, Any]:
        """Return the plan's figures as plain data with stable keys; the offsets are in the file that `save` writes."""
        plain: dict[str, Any] = {
            "height_bytes": self.height_bytes,
            "largest_live_bytes": self.largest_live_bytes,
            "alignment_bytes": self.alignment_bytes,
            "num_requests": len(self.offsets),
        }
        return plain if self.window is None else plain | {"window": self.window.to_json()}

    def save(self, path: str | Path) -> None:
        """Write the plan as JSON; its form is in docs/placement.md.

        Args:
            path: The file; one that is there is replaced.
        """
        columns = {"size": self.sizes, "offset": self.offsets, "begin": self.begins, "end": self.ends}
        plain = {"format": FORMAT, "version": VERSION, **self.to_json()}
        plain["requests"] = {name: column.tolist() for name, column in columns.items()}
        Path(path).write_text(json.dumps(plain) + "\n", encoding="utf-8")


def place(trace: Trace, *, device: int | None = None, seconds: float = 5.0) -> Placement:
    """Find offsets for every request of a recording in one arena.

    Args:
        trace: The recording.
        device: The device's number; None: the one with the most events.
        seconds: About how long to search on where the first plans are above the largest live sum. It stands for a number
            of steps, so that the same recording has the same plan every time.

    Raises:
        UllageError: There is no such device, or it has no requests.

    Cost: a few seconds for 100,000 requests, at most `seconds` more; linear memory.
    """
    sizes, begins, ends = _core.recorded_buffers(Simulation.of(trace, device).stream)
    buffers = Buffers(sizes=sizes, begins=begins, ends=ends)
    return place_buffers(buffers, alignment_bytes=_RECORDED_ALIGNMENT, seconds=seconds)


def place_step(trace: Trace, *, step: int | None = None, device: int | None = None, seconds: float = 5.0) -> Placement:
    """Find offsets for the buffers of one step, which serve every step like it.

    Args:
        trace: The recording.
        step: The step's number, as `DeviceTrace.steps` counts; None: the last one that the next repeats exactly, else the
            last that has a next.
        device: The device's number; None: the one with the most events.
        seconds: As in `place`.

    Raises:
        ReplayError: There are no steps to be seen in the recording, or none of that number.
        UllageError: There is no such device, or it has no requests.
    """
    buffers, window = step_buffers(Simulation.of(trace, device).device, step)
    return replace(place_buffers(buffers, alignment_bytes=_RECORDED_ALIGNMENT, seconds=seconds), window=window)


def place_buffers(buffers: Buffers, *, alignment_bytes: int = 1, seconds: float = 5.0) -> Placement:
    """Find offsets for buffers in one arena.

    Args:
        buffers: Their sizes and lifetimes; a capacity, where there is one, is low enough.
        alignment_bytes: What every offset has to be a multiple of.
        seconds: As in `place`.

    Raises:
        ReplayError: A size is negative, or the sizes add up to 1 EiB or more.
    """
    columns = (buffers.sizes, buffers.begins, buffers.ends)
    max_steps = round(seconds * _STEPS_A_SECOND)
    try:
        plan = _core.place(*columns, alignment_bytes, buffers.capacity_bytes or 0, max_steps)
    except ValueError as error:
        raise ReplayError(f"cannot place these buffers: {error}") from None
    return Placement(
        height_bytes=plan.height,
        largest_live_bytes=plan.largest_live,
        alignment_bytes=alignment_bytes,
        sizes=buffers.sizes,
        offsets=plan.offset,
        begins=buffers.begins,
        ends=buffers.ends,
    )


def placement_outcome(simulation: Simulation, placement: Placement, cap_bytes: int | None = None) -> Outcome:
    """Return a plan in the form of every other policy's outcome: one driver allocation, and no retries.

    Args:
        simulation: The recording that was placed.
        placement: Its plan.
        cap_bytes: The limit that it was asked about; None: none.
    """
    height, live = placement.height_bytes, placement.largest_live_bytes
    is_complete = simulation.device.completeness.kind == "complete"
    return Outcome(
        device=simulation.device.number,
        policy="placement",
        cap_bytes=cap_bytes,
        peak_reserved_bytes=height,
        peak_allocated_bytes=live,
        num_device_alloc=1,
        num_device_free=0,
        num_retries=0,
        waste={"requested": live, "placement": height - live},
        first_oom=None,
        certainty="exact" if is_complete else "window",
        range_bytes=None if is_complete else (height, height),
    )


def load_plan(path: str | Path) -> Placement:
    """Read a plan that `Placement.save` wrote, and check it.

    Args:
        path: The file.

    Raises:
        ReplayError: It cannot be read, is no plan of this version, or is not valid.
    """
    try:
        plain = json.loads(Path(path).read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ReplayError(f"{path}: cannot be read as a placement: {error}") from None
    if not isinstance(plain, dict) or plain.get("format") != FORMAT:
        raise ReplayError(f'{path}: is no placement: "format" has to be {FORMAT!r}')
    if plain.get("version") != VERSION:
        raise ReplayError(f"{path}: is of version {plain.get('version')!r}, and this ullage reads {VERSION}")
    try:
        sizes, offsets, begins, ends = (_column(plain["requests"][name]) for name in ("size", "offset", "begin", "end"))
        figures = {name: _integer(plain[name]) for name in ("height_bytes", "largest_live_bytes", "alignment_bytes")}
        window = _window(plain["window"]) if "window" in plain else None
        plan = Placement(**figures, sizes=sizes, offsets=offsets, begins=begins, ends=ends, window=window)
        problem = plan.problem()
    except KeyError as error:
        raise ReplayError(f"{path}: has no {error}") from None
    except (TypeError, ValueError, OverflowError) as error:
        raise ReplayError(f"{path}: {error}") from None
    if problem:
        raise ReplayError(f"{path}: the plan is not valid: {problem}")
    return plan


def _integer(value: Any) -> int:
    if not isinstance(value, int) or not 0 <= value < 1 << 60:
        raise ValueError(f"expected a whole number from 0 to below 2^60, found {str(value)[:40]!r}")
    return value


def _window(plain: Any) -> Window:
    if not isinstance(plain, dict) or not isinstance(plain.get("repeats"), bool):
        raise TypeError("expected a step's figures for window")
    names = ("step", "num_steps", "begin_event", "end_event", "num_before")
    return Window(**{name: _integer(plain[name]) for name in names}, repeats=plain["repeats"])


def _column(values: Any) -> NDArray[np.int64]:
    if not isinstance(values, list):
        raise TypeError("expected a list of whole numbers for each column of requests")
    return np.array([_integer(value) for value in values], dtype=np.int64)
