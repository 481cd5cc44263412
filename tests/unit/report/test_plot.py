"""The figure: what is in it, that nothing overlaps, and that nothing is left behind."""

from __future__ import annotations

import builtins
import sys
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

import ullage
from tests.architecture.source_tree import run_python
from tests.recordings import EXPECTED, device_of, path_of, trace_of
from tests.unit.conftest import Load
from tests.unit.report.hostile_names import NAMES
from tests.unit.snapshot_builder import GIB, MIB, SimulatedOutOfMemoryError, SnapshotBuilder
from ullage.errors import UllageError


def areas(figure: Figure) -> list[Any]:
    """Return the stacked areas, the highest first, as they were drawn."""
    return [one for one in figure.axes[0].collections if type(one).__name__ == "FillBetweenPolyCollection"]


def legend_of(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.legends[0].get_texts() if text.get_text()]


def highest(figure: Figure, line_width: float) -> float:
    """Return the largest value of the line of steps that is drawn so thick: 0.5 is allocated, 1.4 is reserved."""
    lines = [one for one in figure.axes[0].get_lines() if one.get_drawstyle() == "steps-post"]
    (values,) = [np.asarray(one.get_ydata()) for one in lines if one.get_linewidth() == line_width]
    return float(values.max())


def words(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.axes[0].texts]


def test_the_highest_area_reaches_allocated_and_the_peak_is_in_it() -> None:
    device = device_of("kv_growth")
    figure = device.plot()
    top = max(float(path.vertices[:, 1].max()) for path in areas(figure)[0].get_paths())
    assert top * MIB == pytest.approx(device.peak.allocated_bytes)
    assert highest(figure, 0.5) * MIB == pytest.approx(device.peak.allocated_bytes)
    assert highest(figure, 1.4) * MIB == pytest.approx(device.peak.reserved_bytes)


def test_the_legend_names_each_line_with_its_bytes_in_the_order_of_the_areas(load: Load) -> None:
    one = SnapshotBuilder()
    one.alloc(32 * MIB, "train.py:1 load")
    one.free(one.alloc(64 * MIB, "train.py:2 forward"))
    one.wait(1_000_000)
    one.alloc(1 * MIB, "train.py:1 load")
    figure = load(one).plot()
    assert legend_of(figure)[:2] == ["train.py:2 forward, 64 MiB", "train.py:1 load, 32 MiB"]
    assert figure.legends[0].get_title().get_text() == "Live bytes by line, as stacked; sizes at the peak"
    assert len(areas(figure)) == 2
    assert "allocated and active, at most 96 MiB" in legend_of(figure)


def test_a_line_that_is_small_at_the_peak_tells_its_own_maximum(load: Load) -> None:
    one = SnapshotBuilder()
    one.free(one.alloc(32 * MIB, "train.py:1 load"))
    one.alloc(64 * MIB, "train.py:2 forward")
    assert "train.py:1 load, 0 B, at most 32 MiB" in legend_of(load(one).plot())


def test_active_has_a_line_where_blocks_wait_for_a_stream(load: Load) -> None:
    one = SnapshotBuilder()
    address = one.alloc(64 * MIB)
    one.request_free(address)
    one.wait(10_000)
    one.complete_free(address)
    assert "active, at most 64 MiB" in legend_of(load(one).plot())


def test_the_axes_count_in_units_that_fit(load: Load) -> None:
    one = SnapshotBuilder()
    one.alloc(3 * GIB)
    one.wait(5_000_000)
    one.alloc(1 * GIB)
    axes = load(one).plot().axes[0]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("time since the first event (s)", "GPU 0 memory (GiB)")
    assert [label.get_text() for label in axes.get_yticklabels()] == ["0", "1", "2", "3", "4"]


def test_the_peak_each_error_and_the_instant_asked_for_are_marked(load: Load) -> None:
    one = SnapshotBuilder(limit_bytes=64 * MIB)
    one.alloc(30 * MIB)
    for _ in range(2):
        with pytest.raises(SimulatedOutOfMemoryError):
            one.alloc(60 * MIB)
    one.alloc(2 * MIB)
    figure = load(one).plot(at=15)
    assert words(figure) == [
        "out of memory: 60 MiB asked for (first of 2)",
        "10 µs: 30 MiB",
        "peak 32 MiB",
    ]
    dashed = [line for line in figure.axes[0].get_lines() if line.get_linestyle() == "--"]
    assert [line.get_xdata()[0] for line in dashed] == [20, 30]


def test_steps_are_ticks_and_annotations_a_strip() -> None:
    figure = trace_of("metadata").plot()
    assert "6 steps" in legend_of(figure)
    strip = figure.axes[1]
    assert {"forward", "backward", "epoch"} <= {label.get_text() for label in strip.get_yticklabels()}
    assert strip.get_xlim() == figure.axes[0].get_xlim()
    assert len(trace_of("metadata").plot(figsize=(3.4, 3.0)).axes) == 1


@pytest.mark.parametrize("figsize", [(10.0, 5.6), (3.4, 3.0), (6.0, 4.0)])
@pytest.mark.parametrize("name", ["metadata", "survivors", "late_start", "kv_growth", "two_threads"])
def test_labels_and_legend_overlap_nothing(name: str, figsize: tuple[float, float]) -> None:
    figure = device_of(name).plot(figsize=figsize)
    FigureCanvasAgg(figure).draw()
    axes, legend = figure.axes[0], figure.legends[0]
    box = legend.get_window_extent()
    assert not any(box.overlaps(one.get_tightbbox()) for one in figure.axes)
    marks = [text.get_window_extent() for text in axes.texts]
    assert not any(one.overlaps(other) for one, other in combinations(marks, 2))
    whole = figure.bbox
    assert all(whole.x0 <= one.x0 and one.x1 <= whole.x1 for one in [*marks, box])


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_every_recording_can_be_drawn(name: str) -> None:
    FigureCanvasAgg(device_of(name).plot(figsize=(6, 3))).draw()


@pytest.mark.parametrize("name", NAMES)
def test_hostile_names_are_drawn_as_text(name: str, load: Load) -> None:
    one = SnapshotBuilder()
    one.alloc(32 * MIB)
    one.annotate("$\\frac$" + name[:50])
    one.alloc(32 * MIB)
    for event in one.events:
        event["frames"] = [{"filename": f"{name}.py", "line": 3, "name": name}]
    figure = load(one).plot()
    FigureCanvasAgg(figure).draw()
    assert len(legend_of(figure)[0]) < 200


def test_a_device_can_be_chosen_and_a_missing_one_is_named() -> None:
    trace = trace_of("survivors")
    assert trace.plot(device=0).axes[0].get_ylabel().startswith("GPU 0")
    with pytest.raises(UllageError, match="has no device 5"):
        trace.plot(device=5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"figsize": (0.0, 3.0)}, "width and height are 1 to 100 inches"),
        ({"num_lines": 7}, "0 to 6 colours"),
        ({"at": "noon"}, "no instant is called 'noon'"),
    ],
)
def test_what_cannot_be_drawn_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UllageError, match=message):
        trace_of("survivors").plot(**options)


def test_without_matplotlib_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def missing(name: str, *rest: Any, **more: Any) -> Any:
        if name.startswith("matplotlib"):
            raise ModuleNotFoundError(name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(UllageError, match=r"pip install 'ullage\[plot\]'") as caught:
        device_of("survivors").plot()
    assert "\n" not in str(caught.value)


def test_plotting_uses_no_pyplot_and_no_display(tmp_path: Any) -> None:
    code = f"import sys, ullage; ullage.load({str(path_of('survivors'))!r}).plot(); print('matplotlib.pyplot' in sys.modules)"
    assert run_python(code, tmp_path).strip() == "False"
    assert "ullage" in sys.modules


def test_time_and_bytes_are_the_traces_own(load: Load) -> None:
    one = SnapshotBuilder()
    one.alloc(32 * MIB)
    one.wait(90)
    one.alloc(32 * MIB)
    trace: ullage.Trace = load(one)
    figure = trace.plot()
    (line,) = [one for one in figure.axes[0].get_lines() if one.get_linewidth() == 1.4]
    assert np.asarray(line.get_xdata()).tolist() == [0, 0, 10, 110, 120, 120]
    assert np.asarray(line.get_ydata()).tolist() == [0, 32, 32, 64, 64, 64]
