"""A report opens from its file with the network off, with WebGL and without, and says so where it cannot."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Browser, BrowserContext, Playwright

from tests.browser.conftest import FLAGS, Reports
from tests.browser.recorded import LEAK, VARLEN
from tests.browser.report_page import SIZE, Open, ReportPage, num_colors

WITHOUT_WEBGL = [*FLAGS, "--disable-gpu", "--disable-webgl", "--disable-webgl2", "--disable-3d-apis"]
PAYLOAD = re.compile(r'(<script type="application/x-ullage" class="rank">)([^<]+)(</script>)')


@pytest.fixture(scope="module")
def plain_browser(playwright: Playwright, chromium: str) -> Iterator[Browser]:
    """Return a browser in which no page gets WebGL."""
    browser = playwright.chromium.launch(executable_path=chromium, args=WITHOUT_WEBGL)
    yield browser
    browser.close()


def test_a_page_opens_with_the_network_off_and_asks_for_nothing(context: BrowserContext, reports: Reports) -> None:
    report = ReportPage(context, reports.of(LEAK), fragment="#webgl").open()
    report.page.locator("#timeline[data-painter=webgl2]").wait_for(state="attached")
    report.settle()
    assert num_colors(report.picture("#timeline .plot")) > 20
    assert (report.requests, report.complaints) == ([report.url], [])
    report.page.close()


def test_a_page_goes_over_to_webgl_where_a_gpu_does_the_work(context: BrowserContext, reports: Reports) -> None:
    report = ReportPage(context, reports.of(LEAK)).open()
    renderer = report.page.evaluate(
        """() => {
        const gl = document.createElement("canvas").getContext("webgl2");
        return gl && gl.getParameter(gl.getExtension("WEBGL_debug_renderer_info").UNMASKED_RENDERER_WEBGL);
        }"""
    )
    is_software = renderer is None or re.search("SwiftShader|llvmpipe", renderer) is not None
    report.page.wait_for_timeout(1500)
    expected = "canvas" if is_software else "webgl2"
    assert report.page.locator("#timeline").get_attribute("data-painter") == expected
    assert report.page.locator("#timeline .plot canvas").count() == 1
    assert report.complaints == []
    report.page.close()


def test_a_page_opens_with_webgl_turned_off_in_its_address(context: BrowserContext, reports: Reports) -> None:
    report = ReportPage(context, reports.of(LEAK), fragment="#nogl").open()
    report.page.wait_for_timeout(100)
    assert report.page.locator("#timeline").get_attribute("data-painter") == "canvas"
    assert num_colors(report.picture("#timeline .plot")) > 20
    assert (len(report.requests), report.complaints) == (1, [])
    report.page.close()


def test_a_page_opens_in_a_browser_without_webgl(plain_browser: Browser, reports: Reports) -> None:
    context = plain_browser.new_context(offline=True, viewport=SIZE)
    report = ReportPage(context, reports.of(LEAK)).open()
    report.page.wait_for_timeout(100)
    assert report.page.evaluate("() => document.createElement('canvas').getContext('webgl2') === null")
    assert report.page.locator("#timeline").get_attribute("data-painter") == "canvas"
    assert report.page.locator("#timeline .plot canvas").count() == 1
    assert num_colors(report.picture("#timeline .plot")) > 20
    assert (report.requests, report.complaints) == ([report.url], [])


def test_the_picture_is_the_same_with_webgl_and_without(open_report: Open) -> None:
    pictures = []
    for fragment in ("#webgl", "#nogl"):
        report = open_report(VARLEN, fragment=fragment)
        report.page.locator(f"#timeline[data-painter={'canvas' if fragment == '#nogl' else 'webgl2'}]").wait_for(
            state="attached"
        )
        report.settle()
        pictures.append(report.picture("#timeline .plot").astype(int))
    assert np.abs(pictures[0] - pictures[1]).mean() < 6  # of 255: edges of boxes are dark in one of them


def test_a_lost_webgl_context_leaves_a_picture(open_report: Open) -> None:
    report = open_report(LEAK, fragment="#webgl&lost")
    report.page.locator("#timeline[data-painter=webgl2]").wait_for(state="attached")
    report.page.evaluate("() => window.ullage.timeline.painter.gl.getExtension('WEBGL_lose_context').loseContext()")
    report.page.locator("#timeline[data-painter=canvas]").wait_for(state="attached")
    report.settle()
    assert num_colors(report.picture("#timeline .plot")) > 20
    report.complaints[:] = [said for said in report.complaints if "CONTEXT_LOST_WEBGL" not in said]


def test_the_title_names_the_recording(open_report: Open) -> None:
    assert open_report(LEAK).page.title() == "train_leak.pickle.xz - ullage"


def cut_in_the_middle(text: str) -> str:
    return text[: len(text) // 8 * 4]


def garbled(text: str) -> str:
    return text[:200] + text[200:400][::-1] + text[400:]


@pytest.mark.parametrize("place", [0, 1], ids=["index", "recording"])
@pytest.mark.parametrize(
    "broken", [cut_in_the_middle, lambda text: text[: len(text) // 8 * 4 - 1], garbled, lambda _: "="]
)
def test_a_broken_page_says_that_it_is_broken(
    context: BrowserContext, reports: Reports, tmp_path: Path, broken, place: int
) -> None:
    whole = reports.of(LEAK).read_text("utf-8")
    found = list(PAYLOAD.finditer(whole))[place]
    path = tmp_path / "broken.html"
    path.write_text(whole[: found.start(2)] + broken(found[2]) + whole[found.end(2) :], "utf-8")
    report = ReportPage(context, path)
    report.load()
    report.page.locator("#failure").wait_for(state="visible")
    assert "This page cannot show its recording" in report.text("#failure")
    report.page.close()


def test_a_page_without_its_data_says_that_it_is_broken(
    context: BrowserContext, reports: Reports, tmp_path: Path
) -> None:
    path = tmp_path / "empty.html"
    path.write_text(PAYLOAD.sub("", reports.of(LEAK).read_text("utf-8")), "utf-8")
    report = ReportPage(context, path)
    report.load()
    report.page.locator("#failure").wait_for(state="visible")
    report.page.close()
