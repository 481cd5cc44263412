"""The timeline: what it draws, and what wheel, drag and click do on it."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

import ullage
from tests.browser.recorded import KINDS, LEAK, OOM, VARLEN, device_of
from tests.browser.report_page import Open, ReportPage, num_colors
from ullage.trace import NONE
from ullage.units import format_bytes


@pytest.fixture
def report(open_report: Open) -> ReportPage:
    return open_report(LEAK)


def middle(report: ReportPage) -> tuple[float, float]:
    """Return the middle of the plot on the window."""
    box = report.page.locator("#timeline .plot").bounding_box()
    assert box
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def place_under(report: ReportPage, point: tuple[float, float]) -> float:
    """Return the place on the axis under a place of the window."""
    return float(report.ask("timeline.placeOf({ clientX: argument[0], clientY: argument[1] }).x", list(point)))


def ends_of(device: ullage.DeviceTrace) -> NDArray[np.int64]:
    """Return the event at which each block ends; the number of events where it does not."""
    return np.where(device.blocks.death == NONE, device.num_events, device.blocks.death)


def events_of_columns(report: ReportPage, num_columns: int) -> list[int]:
    """Return the event whose state the middle of each column of pixels shows, of the whole recording."""
    columns = [(column + 0.5) / num_columns for column in range(num_columns)]
    events: list[int] = report.ask("argument.map((share) => timeline.axis.eventAt(share * timeline.axis.end))", columns)
    return events


@pytest.mark.parametrize("fragment", ["#webgl", "#nogl"], ids=["webgl", "canvas"])
def test_blocks_are_drawn_in_the_colours_of_their_lines(open_report: Open, fragment: str) -> None:
    report = open_report(OOM, fragment=fragment)
    if fragment == "#webgl":
        report.page.locator("#timeline[data-painter=webgl2]").wait_for(state="attached")
    device, peak = device_of(OOM), device_of(OOM).event_at("peak")
    rows = device.live_at("peak")
    largest = int(rows[np.argmax(device.blocks.size_bytes[rows])])
    report.page.evaluate("() => window.ullage.state.set({ event: -1 })")
    report.settle()
    pixels = report.picture("#timeline")
    height = int(device.drawing.offset[largest]) + int(device.blocks.size_bytes[largest]) // 2
    left, top = report.point((report.axis_at(peak) + report.axis_at(int(ends_of(device)[largest]))) / 2, height)
    box = report.page.locator("#timeline").bounding_box()
    assert box
    drawn = pixels[int(top - box["y"]), int(left - box["x"])].astype(int)
    color = np.array(report.ask("state.get('colors').rgb[recording.line[argument]]", largest))
    assert np.abs(drawn - color).max() < 26  # shades of a line's colour differ by up to a tenth


@pytest.mark.parametrize("name", KINDS)
def test_no_recording_gives_a_blank_picture(open_report: Open, name: str) -> None:
    report = open_report(*KINDS)
    names = report.page.evaluate("() => window.ullage.ranks.map((rank) => rank.name)")
    report.click(report.page.locator(".rank-row").nth(names.index(f"{name}.pickle.xz")))
    pixels = report.picture("#timeline .plot")
    background = pixels[0, 0]
    assert num_colors(pixels) > 8
    assert (pixels != background).any(axis=2).mean() > 0.01


def test_every_column_in_which_memory_is_allocated_shows_some(open_report: Open) -> None:
    report = open_report(VARLEN)
    drawn = report.painted_columns()
    lives = [device_of(VARLEN).allocated_after(event) > 0 for event in events_of_columns(report, len(drawn))]
    assert lives.count(True) > 700
    assert [column for column, (one, other) in enumerate(zip(drawn, lives, strict=True)) if other and not one] == []


def test_the_wheel_zooms_around_the_pointer(report: ReportPage) -> None:
    x, y = middle(report)
    point = (x + 150, y)
    before, (x0, x1) = place_under(report, point), report.view()
    report.wheel(point, -300)
    left, right = report.view()
    assert right - left < 0.7 * (x1 - x0)
    assert place_under(report, point) == pytest.approx(before, abs=(right - left) / 500)
    report.wheel(point, 300)
    assert report.view() == pytest.approx((x0, x1), abs=(x1 - x0) / 500)


def test_the_wheel_cannot_leave_the_recording(report: ReportPage) -> None:
    whole = report.view()
    report.wheel(middle(report), 5000)
    assert report.view() == whole
    for _ in range(12):
        report.wheel(middle(report), -3000)
    left, right = report.view()
    assert 0 <= left < right <= whole[1]
    assert num_colors(report.picture("#timeline .plot")) > 1


def test_the_wheel_with_shift_zooms_bytes(report: ReportPage) -> None:
    before = report.view()
    report.page.keyboard.down("Shift")
    report.wheel(middle(report), -300)
    report.page.keyboard.up("Shift")
    view = report.get("view")
    assert report.view() == before
    assert 0 < view["y0"] < view["y1"] < 1


def test_a_drag_pans(report: ReportPage) -> None:
    x, y = middle(report)
    report.wheel((x, y), -800)
    before, (left, right) = place_under(report, (x, y)), report.view()
    report.drag((x, y), (x - 120, y + 3))
    moved_left, moved_right = report.view()
    assert moved_right - moved_left == pytest.approx(right - left)
    assert moved_left > left
    assert place_under(report, (x - 120, y)) == pytest.approx(before, abs=(right - left) / 500)
    assert report.get("span") is None


def test_a_drag_with_shift_chooses_a_span_that_the_tables_follow(report: ReportPage) -> None:
    device = device_of(LEAK)
    x, y = middle(report)
    before = report.view()
    report.drag((x - 100, y), (x + 100, y), shift=True)
    begin, end = report.get("span")
    first, last = report.ask(
        "argument.map((x) => timeline.axis.eventAt(x))",
        [place_under(report, (x - 100, y)), place_under(report, (x + 100, y))],
    )
    assert (begin, end) == (first + 1, last + 1)
    assert report.view() == before

    born = (device.blocks.birth >= begin) & (device.blocks.birth < end)
    asked = int(device.blocks.size_bytes[born].sum())
    assert f"{born.sum():,} blocks, {format_bytes(asked)} asked for" in report.text("#span")
    report.press("4")
    assert f"{born.sum():,} blocks born from" in report.text("#pane-blocks .summary")
    report.press("2")
    assert f"{format_bytes(asked)} in {born.sum():,} blocks asked for from" in report.text("#pane-flame .summary")
    report.press("3")
    lines = report.page.evaluate(
        "() => [...document.querySelectorAll('#pane-lines .body .row')].map((row) => row.children[5].textContent)"
    )
    counts = sorted((int(text.replace(",", "")) for text in lines if text != "·"), reverse=True)
    assert sum(counts) == born.sum()

    report.click(report.page.locator("#span button"))
    assert report.get("span") is None
    assert report.page.locator("#span").is_hidden()


@pytest.mark.parametrize("name", [LEAK, OOM, "stranded_weights.exp", "record_stream_backlog"])
def test_a_click_on_a_block_chooses_it(open_report: Open, name: str) -> None:
    report, device = open_report(name), device_of(name)
    ends, blocks = ends_of(device), device.blocks
    per_pixel = report.view()[1] / 800
    starts, stops = (
        np.array(report.ask("argument.map((event) => timeline.axis.at(event))", one.tolist()))
        for one in (blocks.birth, ends)
    )
    wide = np.flatnonzero((stops - starts > 12 * per_pixel) & (blocks.size_bytes > device.drawing.height / 60))
    assert len(wide) >= 3
    for row in np.random.default_rng(3).choice(wide, 3, replace=False).tolist():
        height = int(device.drawing.offset[row]) + int(blocks.size_bytes[row]) / 2
        x = (starts[row] + stops[row]) / 2
        report.click_at(report.point(x, height))
        assert report.get("block") == row
        assert report.get("line") == report.ask("recording.line[argument]", row)
        assert blocks.birth[row] <= report.get("event") <= ends[row]


@pytest.mark.parametrize("share", [0.02, 0.5, 0.98])
def test_a_click_chooses_the_instant_under_the_pointer(report: ReportPage, share: float) -> None:
    device = device_of(LEAK)
    x = share * report.view()[1]
    report.click_at(report.point(x, device.drawing.height * 1.04))
    per_pixel = report.view()[1] / 800
    chosen = report.get("event")
    assert report.axis_at(chosen) <= x + per_pixel
    assert chosen + 1 == device.num_events or report.axis_at(chosen + 1) >= x - per_pixel
    assert report.get("block") == -1
    assert format_bytes(device.allocated_after(chosen)) in report.text("#owners .figures")


def test_a_double_click_zooms_to_the_block(report: ReportPage) -> None:
    device = device_of(LEAK)
    lived = ends_of(device) - device.blocks.birth
    usable = (
        (device.blocks.size_bytes > device.drawing.height / 60)
        & (device.blocks.death != NONE)
        & (device.blocks.birth != NONE)
    )
    row = int(np.flatnonzero(usable)[np.argmax(lived[usable])])
    begin, end = report.axis_at(int(device.blocks.birth[row])), report.axis_at(int(device.blocks.death[row]))
    point = report.point((begin + end) / 2, int(device.drawing.offset[row]) + int(device.blocks.size_bytes[row]) / 2)
    report.page.mouse.dblclick(*point)
    report.settle()
    left, right = report.view()
    assert report.get("block") == row
    assert left <= begin < end <= right
    assert end - begin > 0.5 * (right - left)


def test_the_tip_says_what_is_under_the_pointer_and_goes_away(report: ReportPage) -> None:
    device = device_of(LEAK)
    rows = device.live_at("peak")
    row = int(rows[np.argmax(device.blocks.size_bytes[rows])])
    x = (report.axis_at(int(device.blocks.birth[row])) + report.axis_at(int(ends_of(device)[row]))) / 2
    report.page.mouse.move(*report.point(x, int(device.drawing.offset[row]) + int(device.blocks.size_bytes[row]) / 2))
    tip = report.text(".tip")
    assert format_bytes(int(device.blocks.size_bytes[row])) in tip
    assert report.ask("recording.lines[recording.line[argument]].name", row) in tip
    report.page.mouse.move(2, 2)
    assert report.page.locator(".tip").is_hidden()


def test_the_picture_follows_the_window(report: ReportPage) -> None:
    report.page.set_viewport_size({"width": 1600, "height": 900})
    report.page.wait_for_timeout(60)
    report.settle()
    canvas = report.page.evaluate(
        "() => { const { canvas } = window.ullage.timeline.boxSurface; return [canvas.width, canvas.clientWidth]; }"
    )
    assert canvas[0] == canvas[1] > 1000
    assert num_colors(report.picture("#timeline .plot")) > 20
