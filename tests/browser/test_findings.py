"""The findings: a click on one takes all views to what it is about."""

from __future__ import annotations

import pytest

from tests.browser.recorded import GRAPHS, LEAK, OOM, device_of, findings_of
from tests.browser.report_page import Open
from ullage.explain.moment import event_of, span_of

NAMES = (LEAK, OOM, GRAPHS, "stranded_weights", "cublas_workspaces_cleared", "wrapped", "split_mix_capped")
FINDINGS = [(name, index) for name in NAMES for index in range(len(findings_of(name)))]
TABS = {"fragmentation": "address", "oom": "address", "private_pool": "address", "growth": "blocks", "held": "blocks"}


@pytest.mark.parametrize(("name", "index"), FINDINGS)
def test_a_click_on_a_finding_moves_all_views_to_it(open_report: Open, name: str, index: int) -> None:
    report, device, finding = open_report(*NAMES), device_of(name), findings_of(name)[index]
    names = report.page.evaluate("() => window.ullage.ranks.map((rank) => rank.name)")
    report.click(report.page.locator(".rank-row").nth(names.index(f"{name}.pickle.xz")))
    report.press("5", "0")
    before, whole = report.get("event"), report.view()

    report.click(report.page.locator("#findings .findings li").nth(index))
    event, span = event_of(device, finding), span_of(device, finding)
    moment = span[1] - 1 if span else event  # what has grown shows at the end of it
    assert report.get("finding") == index
    assert report.get("event") == (before if moment is None else moment)
    left, right = report.view()
    if moment is None:
        assert (left, right) == whole
    else:
        assert left <= report.axis_at(moment) <= right
    if span:
        assert left <= report.axis_at(span[0]) < report.axis_at(span[1]) <= right
    assert report.get("tab") == TABS.get(finding.kind, "what_if")
    line = report.get("line")
    if line is not None:
        file, number = report.ask("[recording.lines[argument].file, recording.lines[argument].line]", line)
        assert (file, number) == (finding.site[0].file, finding.site[0].line)
    assert (line is not None) == bool(finding.site)


def test_a_finding_that_is_chosen_shows_why_and_what_to_do(open_report: Open) -> None:
    report = open_report(LEAK)
    items, finding = report.page.locator("#findings .findings li"), findings_of(LEAK)[0]
    assert items.count() == len(findings_of(LEAK))
    assert not items.nth(0).locator(".more").is_visible()
    report.click(items.nth(0))
    assert items.nth(0).locator(".more").is_visible()
    shown = items.nth(0).inner_text()
    assert finding.title in shown
    assert finding.why in shown
    assert finding.next_step in shown


def test_n_goes_through_the_findings_and_begins_again(open_report: Open) -> None:
    report, count = open_report(LEAK), len(findings_of(LEAK))
    seen = []
    for _ in range(count + 1):
        report.press("n")
        seen.append((report.get("finding"), report.page.locator("#findings li.chosen").count()))
    assert seen == [*((index, 1) for index in range(count)), (0, 1)]


def test_shift_n_goes_back_through_the_findings_from_the_last(open_report: Open) -> None:
    report, count = open_report(LEAK), len(findings_of(LEAK))
    seen = []
    for _ in range(count + 1):
        report.press("N")
        seen.append(report.get("finding"))
    assert seen == [*reversed(range(count)), count - 1]


@pytest.mark.parametrize("key", ["Enter", " "])
def test_a_finding_is_chosen_by_the_keyboard(open_report: Open, key: str) -> None:
    report = open_report(LEAK)
    report.page.locator("#findings .findings li").nth(1).focus()
    report.press(key)
    assert report.get("finding") == 1
