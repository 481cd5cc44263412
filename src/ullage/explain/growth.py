"""Growth: lines of the loop whose live bytes rise step after step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ullage.explain.attribution import SiteShare, describe, share_by_site
from ullage.explain.finding import Finding, Severity
from ullage.explain.loop_lines import loop_lines
from ullage.explain.workspaces import find_workspaces
from ullage.trace import BEFORE_ID, NONE
from ullage.units import format_bytes, format_share

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ullage.trace import DeviceTrace

_MIN_BYTES = 1 << 20
_MIN_SHARE = 0.005  # of the peak of allocated
_LARGE_SHARE = 0.1
_KEPT = 0.7  # of what rose must not have fallen again
_DEEPEST = 0.5  # of the rise: a deeper fall within it is a cache that empties
_MIN_STEPS = 4
_MAX_CELLS = 50_000_000


@dataclass(frozen=True, kw_only=True)
class _Rise:
    """One line's live bytes at the start of each step, and the part of it that rises."""

    line: int
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
    def changes(self) -> NDArray[np.int64]:
        return np.diff(self.series[self.first : self.last + 1])

    @property
    def is_regular(self) -> bool:
        """Whether nearly every step adds the same."""
        usual = float(np.median(self.changes))
        return self.num_steps >= 8 and usual > 0 and bool((np.abs(self.changes - usual) <= 0.1 * usual).mean() >= 0.9)


def find_growth(device: DeviceTrace) -> list[Finding]:
    """Report lines of the loop whose live bytes keep rising from step to step.

    Silent for a warm-up that settles, for a cache that fills and stops, for bytes that go up and down, for cuBLAS
    workspaces, and for the private pools of graphs, which have a finding of their own.
    """
    if len(device.steps) < _MIN_STEPS + 1:
        return []
    floor = max(_MIN_BYTES, int(_MIN_SHARE * device.peak.allocated_bytes))
    lines = loop_lines(device)
    rises = [
        rise for line, series in _live_by_line(device, lines) if (rise := _rise_of(line, series, floor)) is not None
    ]
    rises.sort(key=lambda rise: -rise.bytes)
    return [_finding(device, rise, lines) for rise in rises]


def _line_of(device: DeviceTrace, lines: NDArray[np.int32], rows: NDArray[np.int64]) -> NDArray[np.int32]:
    blocks = device.blocks
    sites = blocks.site[rows]
    old = (sites == NONE) & (blocks.birth[rows] == NONE)
    known = lines[np.maximum(sites, 0)] if len(lines) else np.full(len(rows), NONE)
    return np.where(old, BEFORE_ID, np.where(sites == NONE, NONE, known)).astype(np.int32)


def _candidates(device: DeviceTrace, event: int) -> NDArray[np.int64]:
    rows = device.live_after(event)
    rows = rows[device.segments.pool[device.blocks.segment[rows]] == NONE]
    return np.setdiff1d(rows, find_workspaces(device))


def _live_by_line(device: DeviceTrace, lines: NDArray[np.int32]) -> list[tuple[int, NDArray[np.int64]]]:
    """Return, for each line of the loop, the bytes that are live at the start of each step."""
    blocks, starts = device.blocks, device.steps.starts
    freed = np.where(blocks.free_requested == NONE, device.num_events, blocks.free_requested)
    begin = np.searchsorted(starts, blocks.birth, side="right")
    end = np.searchsorted(starts, freed, side="right")
    crosses = (end > begin) & (device.segments.pool[blocks.segment] == NONE)
    crosses[find_workspaces(device)] = False
    rows = np.flatnonzero(crosses)
    names, group = np.unique(_line_of(device, lines, rows), return_inverse=True)
    if not len(rows) or len(names) * (len(starts) + 1) > _MAX_CELLS:
        return []
    table = np.zeros((len(names), len(starts) + 1), dtype=np.int64)
    np.add.at(table, (group, begin[rows]), blocks.size_bytes[rows])
    np.subtract.at(table, (group, end[rows]), blocks.size_bytes[rows])
    return list(zip(names.tolist(), np.cumsum(table, axis=1)[:, :-1], strict=True))


def _rise_of(line: int, series: NDArray[np.int64], floor: int) -> _Rise | None:
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
    if rise < floor or rise < _KEPT * risen:
        return None
    if int((np.maximum.accumulate(part) - part).max()) > _DEEPEST * rise:
        return None
    if int((change > 0).sum()) < max(3, 0.2 * len(change)) or int(change.max()) > 0.6 * rise:
        return None
    # A cache that fills rises early and then stops; a leak rises as much in the second half as in the first.
    later = int(part[-1] - part[len(part) // 2])
    latest = int(part[-1] - part[-1 - max(len(part) // 4, 1)])
    if later < 0.3 * rise or latest < 0.08 * rise:
        return None
    first = warm_up + int(np.argmax(change > 0))
    while first > 0 and series[first - 1] < series[first]:
        first -= 1
    return _Rise(line=line, series=series, first=first, last=last)


def _finding(device: DeviceTrace, rise: _Rise, lines: NDArray[np.int32]) -> Finding:
    steps = device.steps
    event = int(steps.starts[rise.last]) - 1
    rows = _candidates(device, event)
    rows = rows[_line_of(device, lines, rows) == rise.line]
    shares = share_by_site(device, rows, event)
    born_in = np.unique(steps.step_of(device.blocks.birth[rows]))
    allocated = device.allocated_after(event)
    per_step = rise.bytes // max(rise.num_steps, 1)
    rising = int((rise.changes > 0).sum())
    steadily = rising >= 0.9 * rise.num_steps
    who = _who(device, rise.line, shares)
    grown_object = len(born_in) <= 2 and len(rows) <= 4
    return Finding(
        kind="growth",
        severity=_severity(device, rise),
        device=device.number,
        bytes=rise.bytes,
        title=f"{format_bytes(per_step)} more {'every step' if steadily else 'a step on average'}, "
        f"{format_bytes(rise.bytes)} in {rise.num_steps} steps: {who}",
        why=f"It rose in {rising} of {rise.num_steps} steps, to {format_share(int(rise.series[rise.last]), allocated)} of "
        "what was allocated: "
        + (
            "one object, made anew and larger each time (a concatenation; while it is made, old and new both live)."
            if grown_object
            else f"blocks from {len(born_in)} different steps were live at once."
        ),
        next_step=_next_step(grown_object, steps.source),
        site=shares[0].stack,
        evidence={
            "bytes_per_step": per_step,
            "rising_steps": rising,
            "num_steps": rise.num_steps,
            "first_step": rise.first + 1,
            "last_step": rise.last + 1,
            "since_us": int(device.events.time_us[int(steps.starts[rise.first])]) - device.span_us[0],
            "live_bytes_at_step_start": rise.series.tolist()[:1000],
            "steps_from": steps.source,
            "num_blocks": len(rows),
            "by_site": [share.to_json() for share in shares],
        },
    )


def _severity(device: DeviceTrace, rise: _Rise) -> Severity:
    if len(device.ooms()) and rise.bytes >= _LARGE_SHARE * device.peak.reserved_bytes:
        return "error"
    return "warning" if rise.is_regular or rise.bytes >= _LARGE_SHARE * device.peak.allocated_bytes else "info"


def _who(device: DeviceTrace, line: int, shares: list[SiteShare]) -> str:
    """Name the line: the innermost of the user's if most of it was asked for there, and the loop's own statement."""
    statement = device.trace.sites.frame(line)
    top = shares[0]
    if statement not in top.stack[1:]:
        return describe(top.lead)
    if top.bytes >= 0.6 * sum(share.bytes for share in shares):
        return f"{describe(top.lead)}, called from {statement}"
    return f"{len(shares)} lines called from {statement}"


def _next_step(grown_object: bool, steps_from: str) -> str:
    if grown_object:
        return (
            "Allocate it once at its final size and write into it; or reduce each part, or move it to the CPU, before "
            "keeping it."
        )
    advice = (
        "Something keeps what each step makes there: a list, a sum of losses, a cache, or a view (which keeps its whole "
        "base). Keep .item(), .detach().clone() or a CPU copy; evaluate under torch.no_grad()."
    )
    if steps_from.startswith("annotation"):
        return advice
    return advice + " If the loop only builds what stays, such as loading weights, all is well."
