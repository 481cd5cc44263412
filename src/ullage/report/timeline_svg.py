"""A device's timeline as a small SVG: allocated as an area, reserved as a line, the peak and out-of-memory errors marked.

It stands in a page that it knows nothing of, light or dark: lines and words take the colour of the text around them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ullage.explain.live_series import live_extremes
from ullage.report.axis import byte_ticks, time_ticks
from ullage.report.palette import AREA_COLOUR, OOM_COLOUR
from ullage.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ullage.explain.live_series import LiveSeries, Mark
    from ullage.trace import DeviceTrace

_WIDTH, _HEIGHT = 720, 190
_LEFT, _RIGHT, _TOP, _BOTTOM = 62, 712, 34, 168  # of the axes
_COLUMNS = 325  # two pixels each


def timeline_svg(device: DeviceTrace) -> str:
    """Draw the timeline of a device that has events.

    Raises:
        UllageError: It has none.

    Cost: linear in the events, two passes.
    """
    series = live_extremes(device, _COLUMNS, num_lines=0)
    return _Drawing(series).svg()


class _Drawing:
    def __init__(self, series: LiveSeries) -> None:
        self._series = series
        self._span = max(series.span_us, 1)
        self._top = max(int(series.reserved_bytes.max()), int(series.allocated_bytes.max()), 1)

    def svg(self) -> str:
        words = f"GPU {self._series.device}: allocated (area) and reserved (line) over time"
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{words}" '
            f'style="display:block;width:100%;max-width:{_WIDTH}px;font:11px sans-serif" fill="currentColor">',
            *self._axes(),
            *self._areas(),
            *self._marks(),
            "</svg>",
        ]
        return "".join(parts)

    def _x(self, time_us: int) -> str:
        return f"{_LEFT + (_RIGHT - _LEFT) * time_us / self._span:.1f}"

    def _y(self, size_bytes: int) -> str:
        return f"{_BOTTOM - (_BOTTOM - _TOP) * size_bytes / self._top:.1f}"

    def _steps(self, values: Sequence[int]) -> str:
        """Return the path through states that each hold until the next; what does not move it is left out."""
        points = [f"M{self._x(0)} {self._y(values[0])}"]
        last_x, last_y = self._x(0), self._y(values[0])
        for time_us, value in zip(self._series.time_us.tolist(), values, strict=True):
            x, y = self._x(time_us), self._y(value)
            if y == last_y:
                continue
            points.append(f"V{y}" if x == last_x else f"H{x}V{y}")
            last_x, last_y = x, y
        return "".join([*points, f"H{_RIGHT}"])

    def _areas(self) -> list[str]:
        allocated = self._steps(self._series.allocated_bytes.tolist())
        reserved = self._steps(self._series.reserved_bytes.tolist())
        return [
            f'<path d="{allocated}V{_BOTTOM}H{_LEFT}Z" fill="{AREA_COLOUR}" fill-opacity=".75"/>',
            f'<path d="{reserved}" fill="none" stroke="currentColor" stroke-width="1.4"/>',
        ]

    def _axes(self) -> list[str]:
        parts = []
        for tick in byte_ticks(self._top, 4):
            y = self._y(tick)
            parts.append(f'<path d="M{_LEFT} {y}H{_RIGHT}" stroke="currentColor" stroke-opacity=".18"/>')
            parts.append(f'<text x="{_LEFT - 6}" y="{y}" dy=".35em" text-anchor="end">{format_bytes(tick)}</text>')
        for tick, label in zip(*time_ticks(self._series.span_us, 8), strict=True):
            parts.append(f'<text x="{self._x(tick)}" y="{_BOTTOM + 15}" text-anchor="middle">{label}</text>')
        return parts

    def _marks(self) -> list[str]:
        marks = self._series.marks
        ooms = [mark for mark in marks if mark.kind == "oom"]
        parts = [
            f'<path d="M{self._x(mark.time_us)} {_TOP - 8}V{_BOTTOM}" stroke="{OOM_COLOUR}" stroke-dasharray="4 3"/>'
            for mark in ooms
        ]
        if ooms:
            several = f" (first of {self._series.num_ooms:,})" if self._series.num_ooms > 1 else ""
            words = f"out of memory: {format_bytes(ooms[0].requested_bytes)} asked for{several}"
            parts.append(self._label(ooms[0], 26, words, OOM_COLOUR))
        peak = next(mark for mark in marks if mark.kind == "peak")
        x, y = self._x(peak.time_us), self._y(peak.allocated_bytes)
        parts.append(f'<path d="M{x} 8V{y}" stroke="currentColor" stroke-width=".7"/>')
        parts.append(f'<path d="M{x} {y}l-4 -7h8z"/>')
        parts.append(self._label(peak, 12, f"peak {format_bytes(peak.allocated_bytes)}", "currentColor"))
        return parts

    def _label(self, mark: Mark, y: int, words: str, colour: str) -> str:
        is_left = 2 * mark.time_us <= self._span
        anchor, shift = ("start", 5) if is_left else ("end", -5)
        x = self._x(mark.time_us)
        return f'<text x="{x}" dx="{shift}" y="{y}" text-anchor="{anchor}" fill="{colour}">{words}</text>'
