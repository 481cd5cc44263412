"""Many ranks in one page: a row each, the odd one first, and a click turns all views to it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext

from tests.browser.conftest import Reports
from tests.browser.recorded import LEAK, OOM, device_of
from tests.browser.report_page import Open, ReportPage, num_colors
from ullage.fleet import odd_first, rank_of
from ullage.units import format_bytes

NAMES = ("roundup", "roundup.div4", "split_mix", OOM)


def test_each_rank_has_a_row_with_the_odd_one_first(open_report: Open) -> None:
    report = open_report(*NAMES)
    expected = [rank for _, rank in odd_first([rank_of(device_of(name), f"{name}.pickle.xz") for name in NAMES])]
    rows = report.page.locator("#ranks .rank-row")
    assert expected[0].name == "oom.pickle.xz"
    assert rows.locator(".name").all_inner_texts() == [rank.name for rank in expected]
    assert rows.locator(".aside").all_inner_texts() == [rank.aside for rank in expected]
    assert rows.nth(0).locator(".number").all_inner_texts() == [
        format_bytes(expected[0].peak_allocated_bytes),
        format_bytes(expected[0].peak_reserved_bytes),
    ]
    assert report.page.locator("#ranks .rank-row.odd").count() == sum(bool(rank.aside) for rank in expected)
    assert num_colors(report.picture("#ranks .rank-row canvas >> nth=0")) > 1


def test_the_odd_rank_is_shown_at_first(open_report: Open) -> None:
    report = open_report(*NAMES)
    assert report.text("#facts .file") == "oom.pickle.xz"
    assert report.page.locator("#ranks .rank-row.chosen .name").all_inner_texts() == ["oom.pickle.xz"]


@pytest.mark.parametrize("key", ["click", "Enter"])
def test_a_row_turns_all_views_to_its_recording(open_report: Open, key: str) -> None:
    report = open_report(*NAMES)
    report.press("4")
    report.click(report.page.locator("#pane-blocks .body .row").first)
    row = report.page.locator("#ranks .rank-row").filter(has_text="split_mix")
    if key == "click":
        report.click(row)
    else:
        row.focus()
        report.press(key)
    device = device_of("split_mix")
    assert report.text("#facts .file") == "split_mix.pickle.xz"
    assert format_bytes(device.peak.allocated_bytes) in report.text("#facts")
    assert (report.get("block"), report.get("line"), report.get("finding")) == (-1, None, None)
    assert report.ask("recording.numBlocks") == len(device.blocks.birth)
    assert report.text("#pane-blocks .summary").startswith(f"{len(device.live_at('peak')):,} block")
    assert num_colors(report.picture("#timeline .plot")) > 8


def test_one_recording_has_no_rows(open_report: Open) -> None:
    assert open_report(LEAK).page.locator("#ranks").is_hidden()


def test_a_rank_that_is_broken_says_so_and_leaves_the_others(
    context: BrowserContext, reports: Reports, tmp_path: Path
) -> None:
    page = reports.of(*NAMES).read_text("utf-8")
    blocks = list(re.finditer(r'class="rank">([^<]+)<', page))
    assert len(blocks) == 1 + len(NAMES)
    path = tmp_path / "broken.html"
    path.write_text(page[: blocks[2].start(1) + 400] + page[blocks[2].end(1) :], "utf-8")
    report = ReportPage(context, path, fragment="#nogl").open()
    assert report.page.locator("#failure").is_hidden()
    report.click(report.page.locator("#ranks .rank-row").nth(1))
    report.page.locator("#failure").wait_for(state="visible")
    assert report.text("#facts .file") == "oom.pickle.xz"
    report.page.close()
