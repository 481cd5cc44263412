"""The five tabs under the timeline: each shows the chosen instant, and what a click in it does."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import ullage
from tests.browser.recorded import GRAPHS, LEAK, OOM, device_of
from tests.browser.report_page import Open, ReportPage, num_colors
from tests.unit.snapshot_builder import MIB, SnapshotBuilder
from ullage.explain.attribution import leads_of, share_by_age
from ullage.report.page_file import write_report
from ullage.trace import NONE
from ullage.units import format_bytes


def hole_on(report: ReportPage) -> tuple[float, float]:
    """Return the middle of the widest hole that is drawn in the address space, as a place of the window."""
    pixels = report.picture("#pane-address .scroller").astype(int)
    colors = report.page.evaluate(
        "() => ['hole', 'hatch'].map((name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim())"
    )
    hole, hatch = (np.array([int(color[at : at + 2], 16) for at in (1, 3, 5)]) for color in colors)
    # A hole is a mixture of two colours: what it has of the second is the same for red, green and blue.
    share = ((pixels - hole) @ (hatch - hole)) / ((hatch - hole) @ (hatch - hole))
    is_hole = np.abs(pixels - (hole + share[:, :, None] * (hatch - hole))).max(axis=2) < 6
    is_hole &= (share > -0.02) & (share < 1.02)
    width, x, y = max(widest_run(row, y) for y, row in enumerate(is_hole))
    assert width >= 8, "no hole is drawn"
    box = report.page.locator("#pane-address .scroller").bounding_box()
    assert box
    return box["x"] + x, box["y"] + y + 0.5


def widest_run(row: NDArray[np.bool_], y: int) -> tuple[int, float, int]:
    """Return the width of the widest run of a row's pixels that hold, its middle, and the row."""
    edges = np.flatnonzero(np.diff(np.concatenate(([0], row.astype(np.int8), [0]))))
    runs = [(int(end - begin), (begin + end) / 2, y) for begin, end in zip(edges[::2], edges[1::2], strict=True)]
    return max(runs, default=(0, 0.0, y))


def holes_at(device: ullage.DeviceTrace, event: int) -> dict[str, list[list[str]]]:
    """Return the holes at an event: by size as it is written, the lines that live in each such hole's segment, least first."""
    blocks, segments = device.blocks, device.segments
    ends = np.where(blocks.death == NONE, device.num_events, blocks.death)
    rows = np.flatnonzero((blocks.birth <= event) & (ends > event))
    found: dict[str, list[list[str]]] = {}
    for segment in np.unique(blocks.segment[rows]).tolist():
        inside = rows[blocks.segment[rows] == segment]
        inside = inside[np.argsort(blocks.address[inside])]
        begin = int(segments.address[segment])
        edges = [
            begin,
            *(
                int(e)
                for row in inside
                for e in (blocks.address[row], blocks.address[row] + blocks.size_bytes[row].astype(np.uint64))
            ),
            begin + int(segments.size_bytes[segment]),
        ]
        lines = lines_of(device, inside)
        for low, high in zip(edges[::2], edges[1::2], strict=True):
            if high > low:
                found.setdefault(format_bytes(high - low), []).append(lines)
    return found


def lines_of(device: ullage.DeviceTrace, rows: np.ndarray) -> list[str]:
    """Return the lines that asked for blocks with their bytes, least first."""
    leads, sizes = leads_of(device, rows), device.blocks.size_bytes[rows]
    sums = sorted((int(sizes[leads == lead].sum()), int((leads == lead).sum()), int(lead)) for lead in np.unique(leads))
    frames = [(device.trace.sites.frame(lead), size, count) for size, count, lead in sums]
    return [
        f"{frame.file.split('/')[-1]}:{frame.line} {format_bytes(size)} in {count:,}" for frame, size, count in frames
    ]


@pytest.mark.parametrize("name", [LEAK, OOM, "stranded_weights", "split_mix_capped"])
def test_a_click_on_a_hole_names_what_lives_in_its_segment(open_report: Open, name: str) -> None:
    report, device = open_report(name), device_of(name)
    report.click_at(hole_on(report))
    title = report.text("#pane-address .side h3").removeprefix("A hole of ")
    pins = report.page.locator("#pane-address .side .hint:has-text('all that pins') ~ .pin")
    shown = []
    for index in range(pins.count()):
        place = pins.nth(index).locator(".place").inner_text().split("/")[-1]
        shown.append(f"{place} {pins.nth(index).locator('div').inner_text().removesuffix('s').removesuffix(' block')}")
    assert shown
    assert shown in [lines[:12] for lines in holes_at(device, report.get("event"))[title]]


def test_what_pins_a_hole_is_listed_least_first(open_report: Open, tmp_path: Path) -> None:
    builder = SnapshotBuilder()
    for size, line in ((3 * MIB, "most.py:1 f"), (2 * MIB, "least.py:2 f"), (5 * MIB // 4, "some.py:3 f")):
        builder.alloc(size, line)  # in one segment of 20 MiB, before a hole of 12.5 MiB
    builder.alloc(5 * MIB // 4, "some.py:3 f")
    recording, path = tmp_path / "pinned.pickle", tmp_path / "pinned.html"
    recording.write_bytes(builder.pickled())
    write_report([str(recording)], str(path), simulate=False)
    report = open_report(path=path)
    report.click_at(hole_on(report))
    assert report.text("#pane-address .side h3") == "A hole of 12.5 MiB"
    shown = report.page.locator("#pane-address .side .hint:has-text('all that pins') ~ .pin").all_inner_texts()
    assert [" ".join(text.split()) for text in shown] == [
        "least.py:2 f 2 MiB in 1 block",
        "some.py:3 f 2.5 MiB in 2 blocks",
        "most.py:1 f 3 MiB in 1 block",
    ]


def test_the_line_beside_a_hole_is_chosen_by_click_and_by_enter(open_report: Open) -> None:
    report = open_report(LEAK)
    report.click_at(hole_on(report))
    neighbour = report.page.locator("#pane-address .side .pin[tabindex]").first
    size = neighbour.locator("div").last.inner_text().split(",")[0]
    neighbour.focus()
    report.press("Enter")
    row = report.get("block")
    assert row >= 0
    assert format_bytes(int(device_of(LEAK).blocks.size_bytes[row])) == size


@pytest.mark.parametrize("name", [LEAK, GRAPHS, "stranded_weights.exp", "late_start"])
def test_the_address_space_adds_up(open_report: Open, name: str) -> None:
    report, device = open_report(name), device_of(name)
    event = report.get("event")
    layout = device.layouts_after([event])[event]
    reserved = int(layout.segment_bytes.sum())
    assert f"{format_bytes(reserved)} in " in report.text("#pane-address .summary")
    totals = report.page.locator("#pane-address .side .number").all_inner_texts()
    assert totals[0] == format_bytes(int(device.counters.active_bytes[event]))
    assert num_colors(report.picture("#pane-address .scroller")) > 8


def test_a_click_on_a_block_in_the_address_space_chooses_it(open_report: Open) -> None:
    report = open_report(OOM)
    box = report.page.locator("#pane-address .sheet canvas").bounding_box()
    assert box
    for x in np.linspace(box["x"] + 5, box["x"] + box["width"] - 5, 12):
        report.click_at((float(x), box["y"] + 30))
        if report.get("block") >= 0:
            break
    row, event = report.get("block"), report.get("event")
    assert row >= 0
    assert device_of(OOM).blocks.birth[row] <= event
    assert report.get("line") == report.ask("recording.line[argument]", row)


def test_the_slider_goes_through_the_events(open_report: Open) -> None:
    report = open_report(LEAK)
    slider = report.page.locator("#pane-address input[type=range]")
    assert slider.get_attribute("max") == str(device_of(LEAK).num_events - 1)
    slider.fill("500")
    report.settle()
    assert report.get("event") == 500
    assert format_bytes(device_of(LEAK).allocated_after(500)) in report.text("#owners .figures")


def test_the_flame_graph_is_of_all_that_is_live(open_report: Open) -> None:
    report, device = open_report(LEAK), device_of(LEAK)
    report.press("p", "2")
    live = device.live_at("peak")
    whole = format_bytes(int(device.blocks.size_bytes[live].sum()))
    assert report.text("#pane-flame .summary").startswith(f"{whole} in {len(live):,} blocks")
    canvas = report.page.locator("#pane-flame canvas")
    assert num_colors(report.picture("#pane-flame .scroller")) > 20
    canvas.hover(position={"x": 100, "y": 8})
    assert report.text(".tip").split("\n")[:2] == ["all", f"{whole}, 100 % of all"]


def test_a_click_in_the_flame_graph_enlarges_and_whole_undoes_it(open_report: Open) -> None:
    report = open_report(LEAK)
    report.press("2")
    canvas = report.page.locator("#pane-flame canvas")
    before = report.picture("#pane-flame .scroller")
    canvas.click(position={"x": 60, "y": 50})
    report.page.mouse.move(2, 2)
    report.settle()
    enlarged = report.picture("#pane-flame .scroller")
    assert not np.array_equal(before, enlarged)
    report.click(report.page.locator("#pane-flame button"))
    report.page.mouse.move(2, 2)
    assert np.array_equal(before, report.picture("#pane-flame .scroller"))


def test_the_flame_graph_groups_by_age(open_report: Open) -> None:
    report, device = open_report(LEAK), device_of(LEAK)
    report.press("p", "2")
    choice = report.page.locator("#pane-flame select")
    choice.select_option("age")
    report.settle()
    report.page.locator("#pane-flame canvas").hover(position={"x": 40, "y": 28})
    event = device.event_at("peak")
    largest = max(share_by_age(device, device.live_at("peak"), event), key=lambda one: one["bytes"])
    words = {"under 1 s": "younger than 1 s", "1 to 10 s": "1 to 10 s old", "10 to 60 s": "10 to 60 s old"}
    name, size = report.text(".tip").split("\n")[:2]
    assert (name, size.split(",")[0]) == (
        words[next(v for v in largest.values() if v in words)],
        format_bytes(largest["bytes"]),
    )
    choice.select_option("line")


def test_a_curve_of_another_setting_is_hidden_and_shown_again(open_report: Open) -> None:
    report = open_report(LEAK)
    report.press("5")
    row = report.page.locator("#pane-what_if [role=switch][aria-checked=true]").first
    policy = row.locator(".name").inner_text()
    row = report.page.locator("#pane-what_if [role=switch]").filter(has_text=policy).first
    before = report.picture("#pane-what_if .plot-area")
    report.click(row)
    assert row.get_attribute("aria-checked") == "false"
    report.page.mouse.move(2, 2)
    assert not np.array_equal(before, report.picture("#pane-what_if .plot-area"))
    row.focus()
    report.press(" ")
    assert row.get_attribute("aria-checked") == "true"
    assert row.evaluate("(node) => document.activeElement === node")
    assert np.array_equal(before, report.picture("#pane-what_if .plot-area"))


def test_a_setting_is_copied_as_the_variable_that_sets_it(open_report: Open) -> None:
    report = open_report(LEAK)
    report.press("5")
    report.click(report.page.locator("#pane-what_if button:has-text('copy')").first)
    said = report.page.evaluate("() => navigator.clipboard.readText()")
    assert said.startswith("PYTORCH_")
    assert said in [one["setting"] for one in report.ask("recording.head.what_if")]


def test_all_views_follow_the_instant(open_report: Open) -> None:
    report, device = open_report(LEAK), device_of(LEAK)
    report.page.evaluate("() => window.ullage.state.set({ event: 900 })")
    live, size = device.live_after(900), format_bytes(device.allocated_after(900))
    report.press("2")
    assert report.text("#pane-flame .summary").startswith(f"{size} in {len(live):,} block")
    report.press("4")
    assert report.text("#pane-blocks .summary").startswith(f"{len(live):,} block")
    assert size in report.text("#owners .figures")
