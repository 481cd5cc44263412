"""A probe's curves as a figure: copies, allocations, page reach and kinds of memory; drawn with matplotlib."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, Any

from ullage.errors import UllageError
from ullage.report.output_file import replacing
from ullage.report.palette import LINE_COLOURS
from ullage.report.probe_plot import copy_lines, reach_lines
from ullage.units import format_bytes, format_rate, format_step_ns, format_time_ns

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_SIZE = (10.0, 10.0)  # inches
_DPI = 160
_POINTS = 8


def save_png(report: dict[str, Any], path: str) -> None:
    """Draw a probe into a file, which appears whole or not at all.

    Args:
        report: What `ullage probe --json` prints.
        path: The file.

    Raises:
        UllageError: matplotlib is missing, no GPU was measured, or the file cannot be written.
    """
    if report["why_no_gpu"] is not None:
        raise UllageError(f"there is nothing to draw: {report['why_no_gpu']}")
    drawn = _figure(report)
    with replacing([path], source="") as (part,):
        drawn.savefig(part, format="png", dpi=_DPI)


def refuse_png(path: str) -> None:
    """Refuse what `save_png` could not do, before anything is measured for it.

    Raises:
        UllageError: matplotlib is missing, or the file cannot be written.
    """
    _figure_class()
    folder = os.path.dirname(os.path.realpath(path))
    if os.path.isdir(path):
        raise UllageError(f"{path}: is a folder; name a file")
    if not os.path.isdir(folder):
        raise UllageError(f"{path}: cannot be written: {os.strerror(errno.ENOENT)}")
    is_replaced = os.path.isfile(path) or not os.path.exists(path)  # a pipe is written to as it is
    if not os.access(folder if is_replaced else path, os.W_OK):
        raise UllageError(f"{path}: cannot be written: {os.strerror(errno.EACCES)}")


def _figure_class() -> Any:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise UllageError("plots are drawn with matplotlib, which is missing: pip install 'ullage[plot]'") from None
    return Figure


def _figure(report: dict[str, Any]) -> Any:
    figure = _figure_class()(figsize=_SIZE, layout="constrained")
    axes = figure.subplots(3, 2)
    _curves(axes[0][0], "Copies in a stream, by size", copy_lines(report), format_rate)
    _curves(axes[0][1], "An allocation, by size", _allocation_lines(report), format_time_ns)
    _curves(axes[1][0], "One access of a full GPU, by footprint", reach_lines(report, "gather"), format_step_ns)
    _curves(axes[1][1], "One access after the other, by footprint", reach_lines(report, "chain"), format_step_ns)
    _kinds(axes[2][0], report)
    axes[2][1].axis("off")
    machine = report["machine"]
    figure.suptitle(f"{machine['gpu']}, driver {machine['driver']}, {machine['date'][:10]}", fontsize=_POINTS + 2)
    return figure


def _curves(
    axes: Any, title: str, lines: Sequence[tuple[str, list[tuple[float, float]]]], write: Callable[[Any], str]
) -> None:
    for index, (name, points) in enumerate(lines):
        xs, ys = zip(*points, strict=True)
        colour = LINE_COLOURS[index % len(LINE_COLOURS)]
        style = "-" if index < len(LINE_COLOURS) else ":"
        axes.plot(xs, ys, label=name, color=colour, linestyle=style, marker="o", markersize=3, linewidth=1.2)
    axes.set_title(title, fontsize=_POINTS + 1, loc="left")
    if not lines:
        return
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.xaxis.set_major_formatter(lambda value, _: format_bytes(round(value)))
    axes.yaxis.set_major_formatter(lambda value, _: write(round(value) if write is format_rate else value))
    axes.yaxis.set_minor_formatter("")
    axes.tick_params(labelsize=_POINTS - 1)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(fontsize=_POINTS - 1, frameon=False)


def _allocation_lines(report: dict[str, Any]) -> list[tuple[str, list[tuple[float, float]]]]:
    return [
        (
            curve["way"] + (", warm" if curve["temperature"] == "warm" else ""),
            [(point["size_bytes"], point["allocate"]["time_ns"]) for point in curve["points"]],
        )
        for curve in report["allocations"]
        if curve["points"]
    ]


def _kinds(axes: Any, report: dict[str, Any]) -> None:
    """Draw the first read of each kind as a bar."""
    bars = [(one["kind"], one["first_read"]["bytes_per_s"]) for one in report["kinds"] if one["first_read"] is not None]
    axes.set_title("First read by the GPU after a host write", fontsize=_POINTS + 1, loc="left")
    if not bars:
        return
    names, speeds = zip(*reversed(bars), strict=True)
    drawn = axes.barh([name.replace("_", " ") for name in names], speeds, color=LINE_COLOURS[0], height=0.6)
    axes.bar_label(drawn, [format_rate(speed) for speed in speeds], fontsize=_POINTS - 1, padding=3)
    axes.set_xscale("log")
    axes.set_xlim(min(speeds) / 3, max(speeds) * 8)
    axes.xaxis.set_major_formatter(lambda value, _: format_rate(round(value)))
    axes.tick_params(labelsize=_POINTS - 1)
    axes.spines[["top", "right"]].set_visible(False)
