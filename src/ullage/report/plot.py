"""The timeline as a figure for papers and slides, drawn with matplotlib."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ullage.errors import UllageError
from ullage.explain.live_series import live_extremes
from ullage.explain.named_spans import named_spans
from ullage.report.axis import byte_ticks, time_ticks
from ullage.report.output_file import replacing
from ullage.report.palette import LINE_COLOURS, OOM_COLOUR, colours_of
from ullage.report.printable import line_name, printable
from ullage.units import bytes_unit, format_bytes, format_duration, plural

if TYPE_CHECKING:
    from collections.abc import Callable

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from ullage.explain.live_series import LiveSeries, Mark
    from ullage.trace import DeviceTrace

_SLIDE = (10.0, 5.6)  # inches, 16:9 as slides are
_WIDE = 7.5  # inches; narrower ones are columns of a paper
_SAMPLES_PER_INCH = 150
_DPI = 160
_HEADROOM = 1.22  # over reserved, for the labels of marks
_MAX_STEPS_PER_INCH = 20
_INK = "#222222"
_TIP_DOWN = 7  # matplotlib.markers.CARETDOWN: a triangle whose lower tip is at the point
_MAX_NAMES = 4  # of annotations
_NARROW_LINES = 4  # what a narrow figure has room to name
_NAME_HEIGHT = 0.17  # inches that an annotation's row takes
_SAME = 0.001  # of reserved: closer than this in the mean over time, two lines are one


def figure(
    device: DeviceTrace,
    *,
    at: str | int | None = None,
    figsize: tuple[float, float] | None = None,
    num_lines: int | None = None,
) -> Figure:
    """Draw a device's timeline; `DeviceTrace.plot` says how.

    Raises:
        UllageError: matplotlib is missing, the device has no events, there is no such instant, or the size or the number
            of lines cannot be drawn.

    Cost: linear in the events, two passes.
    """
    figure_class = _figure_class()
    width, height = figsize or _SLIDE
    if not (1 <= width <= 100 and 1 <= height <= 100):
        raise UllageError(f"figsize {figsize} cannot be drawn: width and height are 1 to 100 inches")
    is_wide = width >= _WIDE
    num_lines = (len(LINE_COLOURS) if is_wide else _NARROW_LINES) if num_lines is None else num_lines
    if not 0 <= num_lines <= len(LINE_COLOURS):
        raise UllageError(f"num_lines {num_lines} cannot be drawn: there are 0 to {len(LINE_COLOURS)} colours")
    series = live_extremes(device, round(width * _SAMPLES_PER_INCH), num_lines=num_lines, at=at)
    spans = named_spans(device, max_names=_MAX_NAMES if is_wide else 0)
    drawing = _Drawing(series, figure_class(figsize=(width, height), layout="constrained"), len(spans))
    drawing.draw_areas()
    drawing.draw_sums()
    drawing.draw_axes()
    drawing.draw_steps()
    drawing.draw_marks()
    drawing.draw_annotations(spans)
    drawing.draw_legend()
    done: Figure = drawing.figure
    return done


def save_png(device: DeviceTrace, path: str, *, at: str | int | None = None, source: str) -> None:
    """Draw a device's timeline into a file, which appears whole or not at all.

    Args:
        device: The device.
        path: The file.
        at: The instant at which lines are compared; None: the peak.
        source: The file that the trace was read from, which is not written over.

    Raises:
        UllageError: As `figure`; or the file cannot be written, or is the source. What stood at the path stays.
    """
    drawn = figure(device, at=at)
    with replacing([path], source=source) as (part,):
        drawn.savefig(part, format="png", dpi=_DPI)


def _figure_class() -> Callable[..., Any]:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise UllageError("plots are drawn with matplotlib, which is missing: pip install 'ullage[plot]'") from None
    made: Callable[..., Any] = Figure  # not pyplot's: that one registers it, and wants a display
    return made


class _Drawing:
    """One figure in the making: the axes of the timeline, and below it, if there are annotations, a strip of them."""

    def __init__(self, series: LiveSeries, figure: Figure, num_spans: int) -> None:
        self.series = series
        self.figure = figure
        self._width = float(figure.get_figwidth())
        self._is_wide = self._width >= _WIDE
        self._size = 9 if self._is_wide else 7  # points
        self._areas: list[tuple[Any, str]] = []
        self._lines: list[tuple[Any, str]] = []
        top = max(int(series.reserved_bytes.max()), 1)
        self._unit, self._unit_name = bytes_unit(top)
        self._top = top
        self._times = np.append(series.time_us, max(series.span_us, 1))
        heights = [0.5 * float(figure.get_figheight()), *([_NAME_HEIGHT * num_spans] if num_spans else [])]
        grid = figure.add_gridspec(len(heights), 1, height_ratios=heights)
        self.axes: Axes = figure.add_subplot(grid[0])
        self._strip: Axes | None = figure.add_subplot(grid[1], sharex=self.axes) if num_spans else None

    def _scaled(self, size_bytes: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return sizes in the axis's unit; the last holds to the end of the recording."""
        return np.append(size_bytes, size_bytes[-1:]) / self._unit

    def draw_areas(self) -> None:
        """Stack the lines. Each area reaches down to zero under those below it, so that no seams show between them."""
        series = self.series
        edges = np.cumsum(series.line_bytes, axis=0)
        for index, colour in reversed(list(enumerate(colours_of(series.lines)))):
            area = self.axes.fill_between(
                self._times, self._scaled(edges[index]), step="post", color=colour, linewidth=0, zorder=2
            )
            then, most = series.at_bytes[index], series.line_peaks[index]
            size = format_bytes(then) + (f", at most {format_bytes(most)}" if 2 * then < most else "")
            name = printable(line_name(series.lines[index]), self._legend_room() - len(size) - 2)
            self._areas.append((area, f"{name}, {size}"))

    def _legend_room(self) -> int:
        """Return how many characters fit beside a sample of colour, at the font's mean width, in a column of the legend."""
        column_points = 72 * self._width / (2 if self._is_wide else 1)
        return max(int(column_points / (0.6 * self._size)) - 7, 20)

    def draw_sums(self) -> None:
        """Draw the lines of allocated, active and reserved.

        Every freed block is active for a moment longer than it is allocated. Where that is all, active has no line.
        """
        series = self.series
        waiting = float((series.active_bytes - series.allocated_bytes) @ np.diff(self._times))
        differs = waiting > _SAME * self._top * max(series.span_us, 1)
        sums = [
            ("allocated" if differs else "allocated and active", series.allocated_bytes, "-", 0.5),
            ("active", series.active_bytes, ":", 0.9),
            ("reserved", series.reserved_bytes, "-", 1.4),
        ]
        for name, values, style, width in sums:
            if name == "active" and not differs:
                continue
            (line,) = self.axes.step(
                self._times, self._scaled(values), where="post", color=_INK, linestyle=style, linewidth=width, zorder=3
            )
            self._lines.append((line, f"{name}, at most {format_bytes(int(values.max()))}"))

    def draw_axes(self) -> None:
        """Set limits, ticks and labels of both axes."""
        axes, span = self.axes, max(self.series.span_us, 1)
        axes.set_xlim(0, span)
        axes.set_ylim(0, _HEADROOM * self._top / self._unit)
        ticks = byte_ticks(self._top, max(int(self.figure.get_figheight() * 1.2), 3))
        axes.set_yticks([tick / self._unit for tick in ticks], [f"{tick / self._unit:g}" for tick in ticks])
        axes.set_ylabel(f"GPU {self.series.device} memory ({self._unit_name})", fontsize=self._size)
        times, labels = time_ticks(self.series.span_us, max(int(self._width * 1.2), 4))
        *_, unit = labels[-1].split()
        labels[-1] = labels[-1].removesuffix(f" {unit}")
        axes.set_xticks(times, labels)
        (self._strip or axes).set_xlabel(f"time since the first event ({unit})", fontsize=self._size)
        for one in filter(None, (axes, self._strip)):
            one.tick_params(labelsize=self._size, labelbottom=one is (self._strip or axes))
            one.spines[["top", "right"]].set_visible(False)

    def draw_steps(self) -> None:
        """Draw the steps as thin ticks along the top of the axes, if they are few enough to be told apart."""
        steps = self.series.step_us
        if not 0 < len(steps) <= _MAX_STEPS_PER_INCH * self._width:
            return
        transform = self.axes.get_xaxis_transform()
        lines = self.axes.vlines(steps, 0.985, 1.0, transform=transform, color=_INK, linewidth=0.6, zorder=4)
        self._lines.append((lines, plural(len(steps), "step")))

    def draw_marks(self) -> None:
        """Point at the peak, at the out-of-memory errors, and at the instant asked for: one row of the headroom each."""
        series = self.series
        ooms = [mark for mark in series.marks if mark.kind == "oom"]
        for mark in ooms:
            self.axes.axvline(mark.time_us, ymax=0.9, color=OOM_COLOUR, linewidth=1, linestyle="--", zorder=4)
        if ooms:
            several = f" (first of {series.num_ooms:,})" if series.num_ooms > 1 else ""
            self._label(ooms[0], 1.07, f"out of memory: {format_bytes(ooms[0].requested_bytes)} asked for{several}")
        for mark in series.marks:
            if mark.kind != "oom":
                y = mark.allocated_bytes / self._unit
                self.axes.plot(
                    [mark.time_us],
                    [y],
                    marker=_TIP_DOWN,
                    color=_INK,
                    markersize=self._size / 1.5,
                    zorder=5,
                    clip_on=False,
                )
                word = "peak " if mark.kind == "peak" else f"{format_duration(mark.time_us)}: "
                self._label(mark, 1.15 if mark.kind == "peak" else 1.01, word + format_bytes(mark.allocated_bytes))

    def _label(self, mark: Mark, height: float, words: str) -> None:
        is_left = mark.time_us <= self.series.span_us / 2
        y = height * self._top / self._unit
        if mark.kind != "oom":
            foot = mark.allocated_bytes / self._unit
            self.axes.plot([mark.time_us] * 2, [foot, y], color=_INK, linewidth=0.5, zorder=4)
        self.axes.annotate(
            words,
            (mark.time_us, y),
            xytext=(4 if is_left else -4, 0),
            textcoords="offset points",
            ha="left" if is_left else "right",
            va="center",
            fontsize=self._size,
            color=OOM_COLOUR if mark.kind == "oom" else _INK,
            zorder=6,
        )

    def draw_annotations(self, spans: dict[str, list[tuple[int, int]]]) -> None:
        """Draw the spans that the program named, one row for each name."""
        if self._strip is None:
            return
        least = self.series.span_us / (self._width * _SAMPLES_PER_INCH)
        for row, (_, times) in enumerate(spans.items()):
            bars = [(begin, max(end - begin, least)) for begin, end in times]
            self._strip.broken_barh(bars, (row - 0.35, 0.7), color=_INK, linewidth=0)
        self._strip.set_ylim(len(spans) - 0.4, -0.6)
        self._strip.set_yticks(range(len(spans)), [self._drawable(printable(name, 24)) for name in spans])
        self._strip.tick_params(axis="y", length=0, labelsize=self._size - 1)
        for label in self._strip.get_yticklabels():
            label.set_parse_math(False)

    def draw_legend(self) -> None:
        """Put the legend below the axes, where it covers nothing: the highest area first."""
        entries = self._areas + self._lines
        if self._is_wide:  # a column for each: the shorter one is filled up
            num_rows = max(len(self._areas), len(self._lines))
            blank = (self.axes.plot([], [], linestyle="none")[0], "")
            entries = [*self._areas, *[blank] * (num_rows - len(self._areas))]
            entries += [*self._lines, *[blank] * (num_rows - len(self._lines))]
        handles, labels = zip(*entries, strict=True)
        kind = next(mark.kind for mark in self.series.marks if mark.event == self.series.at.event)
        moment = {"peak": "the peak", "oom": "the out-of-memory error"}.get(
            kind, format_duration(self.series.at.time_us)
        )
        legend = self.figure.legend(
            handles,
            [self._drawable(label) for label in labels],
            loc="outside lower left",
            ncols=2 if self._is_wide else 1,
            fontsize=self._size,
            title=f"Live bytes by line, as stacked; sizes at {moment}",
            title_fontsize=self._size,
            alignment="left",
            frameon=False,
        )
        for text in legend.get_texts():
            text.set_parse_math(False)  # a $ in a name is a $

    def _drawable(self, text: str) -> str:
        """Replace what the font has no glyph for."""
        from matplotlib.font_manager import FontProperties, findfont, get_font

        font = get_font(findfont(FontProperties()))
        return "".join(char if font.get_char_index(ord(char)) else "?" for char in text)
