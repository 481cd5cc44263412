"""The page is readable at the sizes that screens have: nothing overlaps, nothing is cut, and text stands out."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import pytest
from playwright.sync_api import BrowserContext

from tests.browser.conftest import Reports
from tests.browser.recorded import LEAK, OOM
from tests.browser.report_page import Open, ReportPage

COLORS = [
    *("ink", "muted", "faint", "error", "warning", "info", "on-flag"),
    *("page", "card", "hover", "chosen", "band-even", "band-odd", "annotation"),
]
VALUES = """(names) => {
  const style = getComputedStyle(document.documentElement);
  return names.map((name) => style.getPropertyValue(`--${name}`).trim());
}"""

SIZES = [(1280, 720), (1920, 1080)]
RANKS = ("roundup", "roundup.div4", "split_mix", OOM)

# Of each group: the boxes of its visible children.
BOXES = """(selectors) => selectors.map((selector) => [...document.querySelectorAll(selector)].flatMap((group) => {
  const boxes = [...group.children].filter((node) => node.checkVisibility()).map((node) => {
    const { left, top, right, bottom } = node.getBoundingClientRect();
    return { name: `${selector} > ${node.id || node.className || node.tagName}`, left, top, right, bottom };
  });
  return [boxes.filter((box) => box.right > box.left && box.bottom > box.top)];
})).flat()"""

# Elements with text of their own whose box is too low for it.
CUT = """() => [...document.querySelectorAll("body *")].filter((node) => {
  if (!node.checkVisibility() || node.closest("dialog, canvas, noscript, .offscreen, script")) return false;
  if (![...node.childNodes].some((child) => child.nodeType === 3 && child.data.trim())) return false;
  const style = getComputedStyle(node);
  return style.display !== "inline" && style.overflowY !== "visible" && node.scrollHeight > node.clientHeight + 2;
}).map((node) => `${node.tagName}.${node.className}: ${node.textContent.slice(0, 40)}`)"""

GROUPS = [
    "header",
    ".controls",
    "#facts",
    "main",
    "#answers",
    "#owners",
    "#findings",
    "#pictures",
    ".timeline-head",
    "#tabs",
    ".tools",
    ".owners li",
    "#ranks",
    ".rank-row",
]


@pytest.fixture(params=SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
def sized(request: pytest.FixtureRequest, open_report: Open) -> ReportPage:
    report = open_report(LEAK)
    resize(report, request.param)
    return report


def resize(report: ReportPage, size: tuple[int, int]) -> None:
    report.page.set_viewport_size({"width": size[0], "height": size[1]})
    report.settle()


def overlaps(report: ReportPage) -> list[str]:
    """Return the siblings that lie over each other by more than a pixel."""
    groups: list[list[dict[str, Any]]] = report.page.evaluate(BOXES, GROUPS)
    found = []
    for boxes in groups:
        for one, other in combinations(boxes, 2):
            across = min(one["right"], other["right"]) - max(one["left"], other["left"])
            down = min(one["bottom"], other["bottom"]) - max(one["top"], other["top"])
            if across > 1 and down > 1:
                found.append(f"{one['name']} and {other['name']}")
    return found


def test_the_page_fits_the_window(sized: ReportPage) -> None:
    extent = (
        "() => [document.documentElement.scrollWidth, innerWidth, document.documentElement.scrollHeight, innerHeight]"
    )
    for key in "12345":
        sized.press(key)
        width, window_width, height, window_height = sized.page.evaluate(extent)
        assert width <= window_width
        assert height <= window_height


def test_nothing_lies_over_its_neighbour(sized: ReportPage) -> None:
    for key in "12345":
        sized.press(key)
        assert overlaps(sized) == []


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("names", [(OOM,), RANKS])
def test_nothing_lies_over_its_neighbour_in_fuller_pages(
    open_report: Open, names: tuple[str, ...], size: tuple[int, int]
) -> None:
    report = open_report(*names)
    resize(report, size)
    report.press("/")
    report.page.keyboard.type("workloads")
    report.page.evaluate("() => window.ullage.state.set({ span: [5, 90] })")
    report.settle()
    assert overlaps(report) == []
    assert report.page.evaluate(CUT) == []


def test_no_text_is_cut_below(sized: ReportPage) -> None:
    for key in "12345n":
        sized.press(key)
        assert sized.page.evaluate(CUT) == []


def test_each_view_has_room_to_be_read(sized: ReportPage) -> None:
    for target, least in {"#timeline": 180, "#panes": 150, "#owners": 100, "#findings": 150}.items():
        box = sized.page.locator(target).bounding_box()
        assert box
        assert box["height"] >= least, target


def luminance(color: str) -> float:
    """Return a colour's relative luminance (WCAG 2.2)."""
    values = [int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in values)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    """Return the contrast of two colours (WCAG 2.2)."""
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.fixture(scope="module")
def colors(context: BrowserContext, reports: Reports) -> dict[str, dict[str, str]]:
    """Return the colours of the style sheet, light and dark."""
    report = ReportPage(context, reports.of(LEAK), fragment="#nogl").open()
    found = {}
    for shade in ("light", "dark"):
        found[shade] = dict(zip(COLORS, report.page.evaluate(VALUES, COLORS), strict=True))
        report.press("t")
    report.page.close()
    return found


@pytest.mark.parametrize("shade", ["light", "dark"])
@pytest.mark.parametrize("ground", ["page", "card", "hover", "chosen"])
@pytest.mark.parametrize("text", ["ink", "muted", "error", "warning", "info"])
def test_text_stands_out_from_its_ground(colors: dict[str, dict[str, str]], text: str, ground: str, shade: str) -> None:
    assert contrast(colors[shade][text], colors[shade][ground]) >= 4.5


@pytest.mark.parametrize("shade", ["light", "dark"])
@pytest.mark.parametrize(
    ("text", "ground"),
    [
        ("on-flag", "ink"),
        ("on-flag", "error"),
        ("muted", "band-even"),
        ("muted", "band-odd"),
        ("muted", "annotation"),
        ("faint", "card"),
    ],
)
def test_what_is_written_on_the_timeline_stands_out(
    colors: dict[str, dict[str, str]], text: str, ground: str, shade: str
) -> None:
    assert contrast(colors[shade][text], colors[shade][ground]) >= 4.5
