"""What the browser tests share: one Chromium, and each report written once and opened once.

All lives as long as this package's tests and no longer: while Playwright runs, asyncio says that a loop is running, and tests
elsewhere may start one of their own.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Playwright, sync_playwright

from tests.browser.recorded import file_of
from tests.browser.report_page import SIZE, Open, ReportPage
from ullage.report.page_file import write_report

# Root has no sandbox in a container; frames that come as soon as they are asked for save a third of the time.
FLAGS = ["--no-sandbox", "--disable-gpu-vsync", "--disable-frame-rate-limit"]
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


@pytest.fixture(scope="package")
def chromium() -> str:
    """Return the path of the system's Chromium."""
    for name in BROWSERS:
        path = shutil.which(name)
        if path:
            return path
    pytest.fail(
        f"the report's tests need Chromium: none of {', '.join(BROWSERS)} is installed (`make test` installs it)"
    )


@pytest.fixture(scope="package")
def playwright() -> Iterator[Playwright]:
    with sync_playwright() as running:
        yield running


@pytest.fixture(scope="package")
def browser(playwright: Playwright, chromium: str) -> Iterator[Browser]:
    browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
    yield browser
    browser.close()


@pytest.fixture(scope="package")
def context(browser: Browser) -> Iterator[BrowserContext]:
    """Return a browser without a network, which lets pages use the clipboard."""
    context = browser.new_context(offline=True, viewport=SIZE, permissions=["clipboard-read", "clipboard-write"])
    context.set_default_timeout(20_000)
    yield context
    context.close()


@pytest.fixture(scope="package")
def reports(tmp_path_factory: pytest.TempPathFactory) -> Reports:
    return Reports(tmp_path_factory.mktemp("reports"))


@pytest.fixture(scope="package")
def opened() -> dict[tuple[str, ...], ReportPage]:
    """Return the pages that are open, by the recordings they show."""
    return {}


@pytest.fixture
def open_report(context: BrowserContext, reports: Reports, opened: dict[tuple[str, ...], ReportPage]) -> Iterator[Open]:
    """Return a function that shows recordings as at first; afterwards no page may have complained or asked for anything."""

    def show(*names: str, path: Path | None = None, fragment: str = "#nogl") -> ReportPage:
        shown = path or reports.of(*names)
        key = (str(shown), fragment)
        if key in opened:
            opened[key].reset()
        else:
            opened[key] = ReportPage(context, shown, fragment=fragment).open()
        return opened[key]

    yield show
    said = [complaint for report in opened.values() for complaint in report.take_complaints()]
    assert said == []
    assert [report.requests for report in opened.values()] == [[report.url] for report in opened.values()]


class Reports:
    """Writes the report of some recordings when it is first asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._written: dict[tuple[str, ...], Path] = {}

    def of(self, *names: str) -> Path:
        """Return the report of some recordings."""
        if names not in self._written:
            path = self.folder / f"report{len(self._written)}.html"
            write_report([str(file_of(name)) for name in names], str(path))
            self._written[names] = path
        return self._written[names]
