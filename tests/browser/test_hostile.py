"""A recording's texts are shown as text: none runs, none becomes markup, none hides or reverses what is around it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tests.browser.conftest import Reports
from tests.browser.hostile_recording import FILE_NAME, TEXTS, write_hostile
from tests.browser.recorded import LEAK
from tests.browser.report_page import SIZE, Open, ReportPage
from ullage.report.page_file import write_report

# Controls, and marks that turn the direction of writing.
UNSHOWN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


@pytest.fixture(scope="module")
def hostile_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hostile")
    page = folder / "hostile.html"
    write_report([str(write_hostile(folder))], str(page))
    return page


@pytest.fixture
def report(open_report: Open, hostile_page: Path) -> ReportPage:
    return open_report(path=hostile_page)


def all_text(report: ReportPage) -> str:
    """Return the text of all that can be turned to: each tab, with a span and without, each finding."""
    texts = []
    for key in "12345":
        report.press(key)
        texts.append(report.page.evaluate("() => document.body.innerText"))
    for _ in range(report.page.locator("#findings li").count()):
        report.press("n")
        texts.append(report.page.evaluate("() => document.body.innerText"))
    return "\n".join(texts)


def test_a_hostile_recording_runs_nothing(report: ReportPage) -> None:
    all_text(report)
    assert report.page.evaluate("() => typeof window.hacked") == "undefined"
    assert report.page.locator("img, svg, iframe, object, embed, link, a, form").count() == 0
    assert report.page.locator("script").count() == 3  # the two blocks of data and the page's own
    assert report.complaints == []


def test_hostile_texts_are_shown_as_text(report: ReportPage) -> None:
    report.press("3")
    shown = report.page.evaluate(
        "() => [...document.querySelectorAll('#pane-lines .place, #pane-lines .function')].map((node) => node.textContent)"
    )
    listed = "\n".join(shown) + "\n".join(report.ask("recording.lines.map((line) => line.name + ' ' + line.function)"))
    for text in ("<script>alert(1)</script>", "<!--", "]]>", "&lt;b&gt; &amp; &#60;", "__proto__", "constructor"):
        assert text in listed, text
    assert report.text("#facts .file").startswith('"><img src=x onerror=')


def test_marks_that_turn_or_hide_text_are_written_out(report: ReportPage) -> None:
    text = all_text(report)
    assert "\\u202e" in text
    assert UNSHOWN.findall(text) == []
    assert UNSHOWN.findall(report.page.title()) == []


def test_what_is_drawn_has_no_such_marks_either(report: ReportPage) -> None:
    names = report.ask(
        "[...recording.lines.map((line) => line.name + line.function + line.file), ...recording.functions, ...recording.files]"
    )
    assert UNSHOWN.findall("".join(names)) == []


def test_a_tip_is_text_too(report: ReportPage) -> None:
    for x in (0.1, 0.5, 0.9):
        report.page.mouse.move(*report.point(x * report.view()[1], 20 << 20))
        assert "event" in report.text(".tip")
        assert UNSHOWN.findall(report.text(".tip")) == []
    assert report.page.locator(".tip b b, .tip img, .tip script").count() == 0


def test_a_search_for_markup_finds_it(report: ReportPage) -> None:
    report.press("/")
    report.page.keyboard.type("</script><script>")
    report.settle()
    assert len(report.get("shown")) >= 1


def test_hostile_texts_are_copied_on_one_line_each(report: ReportPage) -> None:
    report.press("3")
    report.click("#pane-lines button:has-text('Copy as text')")
    lines = report.page.evaluate("() => navigator.clipboard.readText()").split("\n")
    assert {line.count("\t") for line in lines} == {6}
    assert len(lines) - 1 == int(report.text("#pane-lines .summary").split()[0])


def test_a_megabyte_of_a_name_makes_no_large_page(hostile_page: Path, reports: Reports) -> None:
    assert hostile_page.stat().st_size < reports.of(LEAK).stat().st_size + 200_000
    assert "x" * 1000 not in hostile_page.read_text("utf-8")


def test_the_file_holds_no_markup_of_a_recording(hostile_page: Path) -> None:
    text = hostile_page.read_text("utf-8")
    for one in TEXTS:
        assert "<" not in one or one not in text
    assert FILE_NAME not in text
    assert text.count("<script") == text.count("</script>") == 3
    assert UNSHOWN.findall(text) == []


@pytest.mark.parametrize("is_hostile", [False, True], ids=["example", "hostile"])
def test_without_javascript_the_findings_are_text(
    browser: Browser, reports: Reports, hostile_page: Path, is_hostile: bool
) -> None:
    context = browser.new_context(offline=True, viewport=SIZE, java_script_enabled=False)
    page = context.new_page()
    dialogs: list[str] = []
    page.on("dialog", lambda dialog: dialogs.append(dialog.message))
    page.goto((hostile_page if is_hostile else reports.of(LEAK)).as_uri())
    shown = page.locator("noscript .plain")
    assert shown.is_visible()
    assert "The views need JavaScript, which is off." in shown.inner_text()
    assert page.locator("noscript li").count() >= 3
    assert page.locator("img, svg").count() == 0
    if not is_hostile:
        assert "123 MiB more every step, 1.56 GiB in 13 steps: workloads.py:140 train_step" in shown.inner_text()
    assert UNSHOWN.findall(shown.inner_text()) == []
    assert dialogs == []
    context.close()
