"""Every key that the help names does what it says there."""

from __future__ import annotations

import pytest

from tests.browser.recorded import LEAK, device_of
from tests.browser.report_page import Open, ReportPage

PANES = {"1": "address", "2": "flame", "3": "lines", "4": "blocks", "5": "what_if"}


@pytest.fixture
def report(open_report: Open) -> ReportPage:
    return open_report(LEAK)


def width(report: ReportPage) -> float:
    left, right = report.view()
    return right - left


def test_the_help_names_each_key_that_is_tested_here(report: ReportPage) -> None:
    named = report.page.evaluate("() => [...document.querySelectorAll('#keys dt')].map((node) => node.textContent)")
    assert named == [
        "← →",
        "+ \N{MINUS SIGN} or ↑ ↓",
        "0",
        "wheel, drag",
        "click",
        ", .",
        "p",
        "n N",
        "1 … 5",
        "x",
        "t",
        "/",
        "Esc",
        "?",
    ]


def test_question_mark_opens_the_help_and_closes_it(report: ReportPage) -> None:
    keys = report.page.locator("#keys")
    report.press("?")
    assert keys.is_visible()
    report.press("?")
    assert not keys.is_visible()


def test_escape_closes_the_help_and_leaves_what_is_chosen(report: ReportPage) -> None:
    report.click(report.page.locator("#owners .owners li").first)
    line = report.get("line")
    report.press("?", "Escape")
    assert not report.page.locator("#keys").is_visible()
    assert report.get("line") == line


def test_no_other_key_works_behind_the_help(report: ReportPage) -> None:
    report.press("?", "5", "n")
    assert (report.get("tab"), report.get("finding")) == ("address", None)
    report.click("#keys button")
    assert not report.page.locator("#keys").is_visible()


@pytest.mark.parametrize(("closer", "wider"), [("+", "-"), ("ArrowUp", "ArrowDown"), ("=", "-")])
def test_plus_and_up_zoom_in_and_minus_and_down_zoom_out(report: ReportPage, closer: str, wider: str) -> None:
    whole = width(report)
    at = report.axis_at(report.get("event"))
    report.press(closer)
    left, right = report.view()
    assert right - left < 0.8 * whole
    assert left <= at <= right
    report.press(wider)
    assert width(report) == pytest.approx(whole)


def test_the_arrows_pan(report: ReportPage) -> None:
    report.press("+", "+", "+", "+")
    left, right = report.view()
    report.press("ArrowLeft")
    assert report.view()[0] < left
    report.press("ArrowRight")
    assert report.view() == pytest.approx((left, right))


def test_the_arrows_stop_at_the_ends(report: ReportPage) -> None:
    end = report.view()[1]
    report.press("+", "+", *["ArrowLeft"] * 12)
    assert report.view()[0] == 0
    report.press(*["ArrowRight"] * 24)
    assert report.view()[1] == pytest.approx(end)


def test_0_shows_everything(report: ReportPage) -> None:
    whole = report.view()
    report.press("+", "ArrowRight", "0")
    assert report.view() == whole


def test_comma_and_period_go_by_one_event(report: ReportPage) -> None:
    event = report.get("event")
    report.press(".")
    assert report.get("event") == event + 1
    report.press(",", ",")
    assert report.get("event") == event - 1


def test_comma_and_period_stop_at_the_ends(report: ReportPage) -> None:
    last = device_of(LEAK).num_events - 1
    report.page.evaluate("(event) => window.ullage.state.set({ event })", last)
    report.press(".")
    assert report.get("event") == last
    report.page.evaluate("() => window.ullage.state.set({ event: 0 })")
    report.press(",", ",", ",")
    assert report.get("event") == -1
    assert "before the first event" in report.text("#owners .figures").lower()


def test_p_goes_to_the_peak(report: ReportPage) -> None:
    report.press(",", ",", "p")
    assert report.get("event") == device_of(LEAK).event_at("peak")
    assert report.text("#owners .figures").startswith("The peak")


@pytest.mark.parametrize(("key", "name"), PANES.items())
def test_a_number_turns_to_a_tab(report: ReportPage, key: str, name: str) -> None:
    report.press("5" if key == "1" else "1", key)
    assert report.get("tab") == name
    assert report.page.locator(f"#pane-{name}").is_visible()
    assert report.page.locator("#panes .pane:visible").count() == 1
    assert report.page.locator("#tabs [aria-selected=true]").get_attribute("id") == f"tab-{name}"


def test_x_turns_the_axis_and_back(report: ReportPage) -> None:
    report.press("+", "+")
    left, right = report.view()
    events = [report.ask("timeline.axis.eventAt(argument)", place) for place in (left, right)]
    report.press("x")
    assert report.text("#axis") == "by event"
    assert report.view() == pytest.approx([event + 1 for event in events], abs=2)
    report.press("x")
    assert report.text("#axis") == "by time"
    assert report.view() == pytest.approx((left, right), abs=(right - left) / 50)


def test_t_turns_light_and_dark(report: ReportPage) -> None:
    background = "() => getComputedStyle(document.body).backgroundColor"
    light = report.page.evaluate(background)
    report.press("t")
    dark = report.page.evaluate(background)
    assert report.get("isDark") is True
    assert light != dark
    report.press("t")
    assert report.page.evaluate(background) == light


def test_a_system_that_is_dark_makes_a_dark_page(report: ReportPage) -> None:
    report.page.emulate_media(color_scheme="dark")
    report.settle()
    assert report.get("isDark") is True
    report.press("t")
    assert report.get("isDark") is False
    report.page.emulate_media(color_scheme="light")


def test_escape_clears_span_line_block_and_finding(report: ReportPage) -> None:
    report.press("n")
    report.page.evaluate("() => window.ullage.state.set({ span: [5, 90], block: 3 })")
    report.settle()
    report.press("Escape")
    assert [report.get(name) for name in ("span", "line", "block", "finding", "shown")] == [None, None, -1, None, None]


def test_keys_of_the_browser_are_left_alone(report: ReportPage) -> None:
    report.press("Control+5", "Alt+5", "Control+n")
    assert (report.get("tab"), report.get("finding")) == ("address", None)


def test_the_slider_of_the_address_space_moves_by_arrow_keys(report: ReportPage) -> None:
    event, view = report.get("event"), report.view()
    report.page.locator("#pane-address input[type=range]").focus()
    report.press("ArrowLeft", "ArrowLeft", "ArrowRight")
    assert (report.get("event"), report.view()) == (event - 1, view)
