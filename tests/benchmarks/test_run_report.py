"""What the benchmark of the page says of its measurements follows from them."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from benchmarks.peer_page import D3_URL, d3_modules
from benchmarks.process_timing import Case, Timing
from benchmarks.run_report import PEER, REPORT, Opened, differences, quantiles, summary, table, unopened

from benchmarks import page_timing


def timing(name: str, seconds: list[float]) -> Timing:
    return Timing(case=Case(name=name, recording="1 M", command=[name]), seconds=seconds, peak_rss_bytes=[1])


def turn(frames_ms: dict[str, list[float]], first_picture_ms: int) -> dict[str, Any]:
    return unopened("drawn", "") | {"frames_ms": frames_ms, "first_picture_ms": first_picture_ms, "messages": []}


def test_quantiles_of_ten_are_those_of_the_sorted_values() -> None:
    found = quantiles([10.0, 1.0, 9.0, 2.0, 8.0, 3.0, 7.0, 4.0, 6.0, 5.0])

    assert found == {"median": 5.5, "p90": 9.0, "min": 1.0, "max": 10.0}


def test_nothing_has_no_quantiles() -> None:
    assert quantiles([]) is None


def test_what_is_beyond_reading_is_taken_turn_by_turn() -> None:
    found = differences(timing(REPORT, [2.0, 5.0]), timing("ullage info", [0.5, 3.0]))

    assert found == [1.5, 2.0]


def test_turns_of_different_counts_are_no_turns_together() -> None:
    with pytest.raises(ValueError, match="shorter"):
        differences(timing(REPORT, [2.0, 5.0]), timing("ullage info", [0.5]))


def test_a_page_is_summed_up_over_stretches_and_turns(tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    file.write_bytes(b"12345")
    turns = [turn({"zoom": [10.0], "pan": [20.0, 30.0]}, 700), turn({"zoom": [40.0]}, 900)]

    found = summary(Opened(name=REPORT, recording="1 M", file=file, turns=turns))

    assert found["html_bytes"] == 5
    assert found["first_picture_ms"] == {"median": 800, "p90": 700, "min": 700, "max": 900}
    assert (found["num_frames"], found["frame_ms"]["median"], found["frame_ms"]["max"]) == (4, 25.0, 40.0)
    assert found["frame_ms_medians_of_turns"] == [20.0, 40.0]
    assert found["frame_ms_by_stretch"]["zoom"]["median"] == 25.0


def test_the_table_says_of_a_page_that_did_not_draw_how_it_ended(tmp_path: Path) -> None:
    file = tmp_path / "plot.html"
    file.write_bytes(b"")
    crashed = Opened(name=PEER, recording="1 M", file=file, turns=[unopened("crash", "Target crashed")])

    lines = table([timing(REPORT, [2.0, 3.0])], [summary(crashed)], {"1 M": {"median": 1.25}}).splitlines()

    assert lines[1].split() == ["ullage", "report", "1", "M", "2.50", "2.00", "-", "3.00", "1.25"]
    assert lines[-1].split() == ["_memory_viz", "trace_plot", "1", "M", "0.0", "crash", "-", "-", "-", "0"]


def test_every_address_of_d3_gets_what_is_imported_from_it() -> None:
    viewer = (
        'import * as d3 from "https://cdn/npm/d3@7/+esm";\n'
        'import {zoom, zoomIdentity} from "https://cdn/npm/d3-zoom@3/+esm";\n'
        'import {other} from "./other.js";\n'
        "d3.select(document);\n"
    )

    modules = d3_modules(viewer, "exports.built = 1;")

    assert modules["https://cdn/npm/d3@7/+esm"] == f'export {{select}} from "{D3_URL}";'
    assert modules["https://cdn/npm/d3-zoom@3/+esm"] == f'export {{zoom, zoomIdentity}} from "{D3_URL}";'
    assert modules[D3_URL].endswith("exports.built = 1;\nexport const { select, zoom, zoomIdentity } = exports;")
    assert len(modules) == 3


def test_both_pages_are_magnified_alike() -> None:
    for subject in (page_timing.ULLAGE, page_timing.PEER):
        zooms = [-sum(pixels) for _, is_pan, pixels in page_timing.stretches(subject) if not is_pan]

        factors = [math.exp(pixels * subject.zoom_per_pixel) for pixels in zooms]

        assert factors == pytest.approx([4, 4, 4, 1 / 64])
