"""The tables of lines and of blocks: their rows, their order, and what is copied of them."""

from __future__ import annotations

import numpy as np
import pytest

from tests.browser.recorded import LEAK, VARLEN, device_of
from tests.browser.report_page import Open, ReportPage

KEYS = {"lines": "3", "blocks": "4"}


def copied(report: ReportPage, tab: str) -> list[list[str]]:
    """Copy a table as text; return its rows, the heading first."""
    report.press(KEYS[tab])
    report.click(f"#pane-{tab} button:has-text('Copy as text')")
    report.page.locator(f"#pane-{tab} button:has-text('Copied')").wait_for()
    text = report.page.evaluate("() => navigator.clipboard.readText()")
    report.page.evaluate(
        "(tab) => (document.querySelector(`#pane-${tab} .tools button`).textContent = 'Copy as text')", tab
    )
    return [line.split("\t") for line in text.split("\n")]


def column(rows: list[list[str]], title: str) -> list[str]:
    return [row[rows[0].index(title)] for row in rows[1:]]


@pytest.mark.parametrize("name", [LEAK, VARLEN, "wrapped"])
def test_the_lines_that_are_copied_add_up(open_report: Open, name: str) -> None:
    report, device = open_report(name), device_of(name)
    report.page.evaluate("(event) => window.ullage.state.set({ event })", device.num_events // 2)
    rows = copied(report, "lines")
    live, peak = device.live_after(device.num_events // 2), device.live_at("peak")
    sizes = device.blocks.size_bytes
    sums = {title: sum(int(value) for value in column(rows, title)) for title in rows[0][1:]}
    assert sums["live now"] == sizes[live].sum()
    assert sums["blocks"] == len(live)
    assert sums["at the peak"] == sizes[peak].sum() == device.peak.allocated_bytes
    recorded = device.blocks.birth >= 0  # blocks from before the first event were asked for by no request of these
    assert sums["asked for"] == sizes[recorded].sum()
    assert sums["requests"] == recorded.sum()
    assert len(rows) - 1 == int(report.text("#pane-lines .summary").split()[0].replace(",", ""))


def test_the_blocks_that_are_copied_are_those_that_live(open_report: Open) -> None:
    report, device = open_report(LEAK), device_of(LEAK)
    rows = copied(report, "blocks")
    live, blocks = device.live_after(report.get("event")), device.blocks
    assert {len(row) for row in rows} == {len(rows[0])}
    assert sorted(column(rows, "address")) == sorted(hex(int(address)) for address in blocks.address[live])
    assert sorted(int(size) for size in column(rows, "size")) == sorted(blocks.size_bytes[live].tolist())
    assert sorted(int(event) for event in column(rows, "born")) == sorted(blocks.birth[live].tolist())
    assert sum(int(size) for size in column(rows, "asked for")) == blocks.requested_bytes[live].sum()


def test_a_table_is_copied_where_the_browsers_clipboard_is_out_of_reach(open_report: Open) -> None:
    report = open_report(LEAK)
    expected = copied(report, "lines")
    report.page.evaluate("() => navigator.clipboard.writeText('')")
    report.page.evaluate("() => { navigator.clipboard.writeText = () => Promise.reject(new Error('no')); }")
    assert copied(report, "lines") == expected
    report.page.evaluate("() => { delete navigator.clipboard.writeText; }")
    assert report.page.locator("textarea").count() == 0


@pytest.mark.parametrize("tab", ["lines", "blocks"])
def test_a_click_on_a_heading_sorts_and_a_second_one_turns_the_order(open_report: Open, tab: str) -> None:
    report = open_report(LEAK)
    report.press(KEYS[tab])
    title = {"lines": "requests", "blocks": "asked for"}[tab]
    heading = report.page.locator(f"#pane-{tab} .head button").filter(has_text=title)
    report.click(heading)
    assert heading.get_attribute("aria-sort") == "descending"
    numbers = [int(value) for value in column(copied(report, tab), title)]
    assert numbers == sorted(numbers, reverse=True)
    report.click(heading)
    assert heading.get_attribute("aria-sort") == "ascending"
    numbers = [int(value) for value in column(copied(report, tab), title)]
    assert numbers == sorted(numbers)
    report.click(
        report.page.locator(f"#pane-{tab} .head button").filter(has_text={"lines": "live now", "blocks": "size"}[tab])
    )


def test_a_long_table_is_drawn_where_it_is_seen(open_report: Open) -> None:
    report, device = open_report(LEAK), device_of(LEAK)
    report.page.evaluate("(end) => window.ullage.state.set({ span: [0, end] })", device.num_events)
    report.press("4")
    assert report.page.locator("#pane-blocks .body .row").count() < 60
    largest = report.page.locator("#pane-blocks .body .row .cell").first.inner_text()
    report.page.locator("#pane-blocks .table").focus()
    report.press("End")
    report.page.wait_for_timeout(50)
    rows = report.page.locator("#pane-blocks .body .row")
    assert 0 < rows.count() < 60
    assert rows.last.locator(".cell").first.inner_text() != largest
    shown = report.page.locator("#pane-blocks .table").evaluate(
        "(node) => node.scrollTop + node.clientHeight >= node.scrollHeight - 1"
    )
    assert shown
    report.press("Home")


def test_a_click_on_a_row_chooses_its_block_or_its_line(open_report: Open) -> None:
    report = open_report(LEAK)
    report.press("4")
    report.click(report.page.locator("#pane-blocks .body .row").nth(2))
    row = report.get("block")
    sizes = np.sort(device_of(LEAK).blocks.size_bytes[device_of(LEAK).live_after(report.get("event"))])[::-1]
    assert device_of(LEAK).blocks.size_bytes[row] == sizes[2]
    report.press("Escape", "3")
    report.click(report.page.locator("#pane-lines .body .row").first)
    assert report.get("shown") == [report.get("line")]
    assert report.page.locator("#pane-lines .body .row.chosen").count() == 1
