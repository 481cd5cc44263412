"""Growth: lines whose live bytes rise step after step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ullage.explain.attribution import describe, share_by_site
from ullage.explain.finding import Finding
from ullage.trace import NO_STACK, NONE
from ullage.units import format_bytes, format_share

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ullage.trace import DeviceTrace

_MIN_BYTES = 1 << 20
_MIN_SHARE = 0.005  # of the peak of allocated
_MIN_STEPS = 4  # after the warm-up
_MAX_CELLS = 50_000_000


@dataclass(frozen=True, kw_only=True)
class _Rise:
    """One line's live bytes at the start of each step, and the part of it that rises."""

    lead: int
    series: NDArray[np.int64]
    first: int
    last: int

    @property
    def bytes(self) -> int:
        return int(self.series[self.last] - self.series[self.first])

    @property
    def num_steps(self) -> int:
        return self.last - self.first

    @property
    def rising_steps(self) -> int:
        return int((np.diff(self.series[self.first : self.last + 1]) > 0).sum())


def find_growth(device: DeviceTrace) -> list[Finding]:
    """Report lines whose live bytes keep rising from step to step.

    Silent for a warm-up that settles, for a cache that fills and stops, and for bytes that go up and down.
    """
    steps = device.steps
    if len(steps) < _MIN_STEPS + 1:
        return []
    floor = max(_MIN_BYTES, int(_MIN_SHARE * device.peak.allocated_bytes))
    rises = []
    leads, table = _live_by_line(device)
    for lead, series in zip(leads.tolist(), table, strict=True):
        rise = _rise_of(lead, series, floor)
        if rise is not None:
            rises.append(rise)
    rises.sort(key=lambda rise: -rise.bytes)
    return [_finding(device, rise) for rise in rises]


def _live_by_line(device: DeviceTrace) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Return, for each leading frame, the bytes that are live at the start of each step."""
    blocks, starts = device.blocks, device.steps.starts
    freed = np.where(blocks.free_requested == NONE, device.num_events, blocks.free_requested)
    begin = np.searchsorted(starts, blocks.birth, side="right")
    end = np.searchsorted(starts, freed, side="right")
    rows = np.flatnonzero(end > begin)
    leads, group = np.unique(device.trace.sites.lead_of(blocks.site[rows]), return_inverse=True)
    if not len(rows) or len(leads) * (len(starts) + 1) > _MAX_CELLS:
        return leads[:0], np.empty((0, len(starts)), np.int64)
    table = np.zeros((len(leads), len(starts) + 1), dtype=np.int64)
    np.add.at(table, (group, begin[rows]), blocks.size_bytes[rows])
    np.subtract.at(table, (group, end[rows]), blocks.size_bytes[rows])
    return leads, np.cumsum(table, axis=1)[:, :-1]


def _rise_of(lead: int, series: NDArray[np.int64], floor: int) -> _Rise | None:
    """Decide whether a line keeps growing: up to the end, evenly, and with little ever given back."""
    count = len(series)
    warm_up = max(1, count // 10)
    last = int(np.argmax(series))
    if last < 0.75 * (count - 1) or last - warm_up < _MIN_STEPS - 1:
        return None
    part = series[warm_up : last + 1]
    change = np.diff(part)
    rise = int(part[-1] - part[0])
    risen = int(change[change > 0].sum())
    if rise < floor or rise < 0.7 * risen:
        return None
    num_rising = int((change > 0).sum())
    if num_rising < max(3, 0.2 * len(change)):
        return None
    # A cache that fills rises early and then stops; a leak rises as much in the second half as in the first.
    half = len(part) // 2
    later = int(part[-1] - part[half])
    latest = int(part[-1] - part[-1 - max(len(part) // 4, 1)])
    if later < 0.3 * rise or latest < 0.08 * rise:
        return None
    largest = int(np.max(change))
    if largest > 0.6 * rise:
        return None
    first = warm_up + int(np.argmax(change > 0))
    while first > 0 and series[first - 1] < series[first]:
        first -= 1
    return _Rise(lead=lead, series=series, first=first, last=last)


def _finding(device: DeviceTrace, rise: _Rise) -> Finding:
    steps = device.steps
    per_step = rise.bytes // max(rise.num_steps, 1)
    event = int(steps.starts[rise.last]) - 1
    rows = device.live_after(event)
    rows = rows[device.trace.sites.lead_of(device.blocks.site[rows]) == rise.lead]
    share = share_by_site(device, rows, event)[0]
    born_in = np.unique(steps.step_of(device.blocks.birth[rows]))
    is_one_object = len(born_in) <= 2 and len(rows) <= 4
    ooms = device.ooms()
    live_then = int(device.counters.allocated_bytes[event])
    stopped = bool(len(ooms)) and rise.bytes >= 0.1 * live_then
    lead = device.trace.sites.frame(rise.lead)
    first_us = int(device.events.time_us[int(steps.starts[rise.first])]) - device.span_us[0]
    caller = f", called from {share.stack[1]}" if len(share.stack) > 1 and lead != NO_STACK else ""
    if is_one_object:
        what = "an object that is made anew and larger each time (concatenation): while the new copy is made, both live"
        next_step = (
            "Allocate it once at its final size and write into it, or move each part to the CPU or reduce it before "
            "keeping it."
        )
    else:
        what = f"blocks from {len(born_in)} different steps were live at once, so something keeps each step's tensors"
        next_step = (
            f"See what still refers, after the step, to tensors made {caller.lstrip(', ') or 'there'}: a list, a sum of "
            "losses, a cached output, or a view (which keeps all of its base). Keep .item(), .detach().clone() or a CPU "
            "copy; in evaluation, run under torch.no_grad()."
        )
    return Finding(
        kind="growth",
        severity="error" if stopped else "warning",
        device=device.number,
        bytes=rise.bytes,
        title=f"{format_bytes(per_step)} more every step, {format_bytes(rise.bytes)} in {rise.num_steps} steps: "
        f"{describe(lead)}",
        why=f"It rose in {rise.rising_steps} of {rise.num_steps} steps{caller}, to "
        f"{format_share(int(rise.series[rise.last]), live_then)} of what was allocated: {what}.",
        next_step=next_step,
        site=share.stack,
        evidence={
            "bytes_per_step": per_step,
            "rising_steps": rise.rising_steps,
            "num_steps": rise.num_steps,
            "first_step": rise.first + 1,
            "last_step": rise.last + 1,
            "since_us": first_us,
            "live_bytes_at_step_start": rise.series.tolist()[:1000],
            "steps_from": steps.source,
            "num_blocks": len(rows),
            "by_site": [share.to_json()],
        },
    )
