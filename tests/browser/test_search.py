"""Search: what is typed picks lines by any frame of their stacks, in all views."""

from __future__ import annotations

import numpy as np
import pytest

from tests.browser.recorded import LEAK, device_of
from tests.browser.report_page import Open, ReportPage

LINE = "workloads.py:140"


@pytest.fixture
def report(open_report: Open) -> ReportPage:
    return open_report(LEAK)


def search(report: ReportPage, text: str) -> None:
    """Type a text as a person does."""
    report.press("/")
    assert report.page.locator("#search").evaluate("(node) => document.activeElement === node")
    report.page.keyboard.type(text)
    report.settle()


def lines_with(text: str) -> set[str]:
    """Return the places of the lines that lead a stack with a frame that contains a text."""
    sites = device_of(LEAK).trace.sites
    found = set()
    for site in range(len(device_of(LEAK).trace.tables.site_starts) - 1):
        stack = [sites.frame(frame) for frame in sites.python_stack(site)]
        if any(text in f"{frame.file}:{frame.line} {frame.function}".lower() for frame in stack):
            lead = sites.user_stack(site)[0]
            found.add(f"{lead.file}:{lead.line}")
    return found


@pytest.mark.parametrize("text", [LINE, "  WORKLOADS.PY:140 ", "backward", "linear", "train_step"])
def test_a_search_shows_the_lines_with_a_frame_that_has_the_text(report: ReportPage, text: str) -> None:
    search(report, text)
    expected = lines_with(text.strip().lower())
    assert expected
    shown = report.ask(
        "argument.map((line) => `${recording.lines[line].file}:${recording.lines[line].line}`)", report.get("shown")
    )
    assert set(shown) == expected
    assert report.text("#found").split()[0] == str(len(report.get("shown")))
    report.page.locator("#tab-lines").click()
    report.settle()
    rows = report.page.locator("#pane-lines .body .row .place").all_inner_texts()
    assert rows
    assert {row.split("/")[-1] for row in rows} <= {name.split("/")[-1] for name in expected}


def test_a_search_pales_the_other_lines(report: ReportPage) -> None:
    before = report.picture("#timeline .plot").astype(int)
    search(report, "no such line")
    after = report.picture("#timeline .plot").astype(int)

    def colorful(pixels: np.ndarray) -> float:
        return float((pixels.max(axis=2) - pixels.min(axis=2) > 60).mean())

    assert colorful(before) > 10 * colorful(after)


def test_a_text_that_nothing_has_shows_no_lines(report: ReportPage) -> None:
    search(report, "no such line")
    assert report.text("#found") == "0 lines"
    assert report.get("shown") == []
    report.page.locator("#tab-lines").click()
    report.settle()
    assert report.text("#pane-lines .summary").startswith("0 lines")
    assert report.page.locator("#pane-lines .body .row").count() == 0
    report.page.locator("#tab-blocks").click()
    report.settle()
    assert report.text("#pane-blocks .summary").startswith("0 blocks")
    report.page.locator("#tab-flame").click()
    report.settle()
    assert report.text("#pane-flame .summary").startswith("0 B in 0 blocks")


def test_a_search_is_text_and_not_a_pattern(report: ReportPage) -> None:
    search(report, ".*[(\\")
    assert report.get("shown") == []


def test_escape_clears_the_search(report: ReportPage) -> None:
    search(report, LINE)
    report.press("Escape")
    assert (report.get("query"), report.get("shown"), report.text("#found")) == ("", None, "")
    assert report.page.locator("#search").input_value() == ""
    assert report.page.evaluate("() => document.activeElement === document.body")


def test_keys_are_letters_while_one_types(report: ReportPage) -> None:
    before = report.view(), report.get("tab")
    search(report, "n1x0?")
    assert (report.view(), report.get("tab")) == before
    assert report.get("query") == "n1x0?"
    assert not report.page.locator("#keys").is_visible()


def test_a_line_of_the_owners_is_shown_alone_and_again_with_the_others(report: ReportPage) -> None:
    first = report.page.locator("#owners .owners li").first
    report.click(first)
    line = report.get("line")
    assert report.get("shown") == [line]
    assert report.ask("recording.lines[argument].name", line) == first.locator(".place").inner_text()
    report.click(report.page.locator("#owners .owners li").first)
    assert (report.get("line"), report.get("shown")) == (None, None)
