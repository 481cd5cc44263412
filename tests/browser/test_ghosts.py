"""Ghosts are the segments that were given back in the stretch of time that is shown."""

from __future__ import annotations

import numpy as np

from tests.browser.recorded import device_of
from tests.browser.report_page import Open

BURSTS = "retries"
GHOSTS = """() => window.ullage.panes.find(({ name }) => name === "address").view.layout.filter((one) => one.isGhost).length"""


def test_ghosts_are_the_segments_given_back_before_the_instant_and_count_as_nothing(open_report: Open) -> None:
    report = open_report(BURSTS)
    device = device_of(BURSTS)
    segments, event = device.segments, device.num_events - 1
    gone = int(np.count_nonzero((segments.death >= 0) & (segments.death <= event)))
    assert gone > 10
    report.page.evaluate("(event) => window.ullage.state.set({ tab: 'address', event })", event)
    report.settle()
    before = report.text("#pane-address .summary")
    report.page.locator("#pane-address input[type=checkbox]").check()
    report.settle()
    assert report.text("#pane-address .summary") == before
    assert report.page.evaluate(GHOSTS) == gone
    report.page.locator("#pane-address input[type=checkbox]").uncheck()
    report.settle()
    assert report.page.evaluate(GHOSTS) == 0
