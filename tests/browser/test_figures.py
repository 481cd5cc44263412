"""What the page says is what Python says, to the byte."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from playwright.sync_api import BrowserContext

import ullage
from tests.browser.conftest import Reports
from tests.browser.recorded import GRAPHS, KINDS, LEAK, OOM, VARLEN, device_of, findings_of, trace_of
from tests.browser.report_page import Open, ReportPage
from ullage.explain.attribution import share_by_site
from ullage.replay import parse_conf
from ullage.replay.models import MODELS
from ullage.report.page.payload import clipped
from ullage.units import format_bytes

# [file, line, function, bytes, blocks] of each line that has live blocks.
LIVE_LINES = """(() => {
  const { bytes, counts } = recording.byLine(recording.liveAt(argument));
  const rows = recording.lines.map((line, i) => [line.file || line.name, line.line, line.function, bytes[i], counts[i]]);
  return rows.filter((row) => row[4]);
})()"""

# [policy, its peak, the highest of its curve]
CURVES = """recording.head.what_if.map(({ outcome, reserved_bytes: bytes }) => (
  [outcome.policy, outcome.peak_reserved_bytes, Math.max(...bytes)]
))"""


@pytest.fixture(scope="module")
def many(context: BrowserContext, reports: Reports) -> Iterator[ReportPage]:
    """Return a page of one recording of each kind."""
    report = ReportPage(context, reports.of(*KINDS), fragment="#nogl").open()
    yield report
    assert report.complaints == []
    report.page.close()


@pytest.fixture(scope="module", params=KINDS)
def shown(request: pytest.FixtureRequest, many: ReportPage) -> tuple[ReportPage, ullage.DeviceTrace]:
    """Return the page turned to one of its recordings, and what Python has of that."""
    names = many.page.evaluate("() => window.ullage.ranks.map((rank) => rank.name)")
    many.page.evaluate("(rank) => window.ullage.open(rank)", names.index(f"{request.param}.pickle.xz"))
    many.settle()
    return many, device_of(request.param)


def test_the_peaks_are_pythons(shown: tuple[ReportPage, ullage.DeviceTrace]) -> None:
    report, device = shown
    facts = report.text("#facts").replace("\n", " ")
    assert f"peak allocated {format_bytes(device.peak.allocated_bytes)}" in facts
    assert f"reserved {format_bytes(device.peak.reserved_bytes)}" in facts
    assert f"{device.num_events:,} events" in facts
    report.press("p")
    assert report.get("event") == device.event_at("peak")


def test_the_lines_of_the_timeline_are_pythons(shown: tuple[ReportPage, ullage.DeviceTrace]) -> None:
    report, device = shown
    page = report.ask("{ allocated: recording.allocated, active: recording.active, time: recording.time }")
    before, counters = device.history.before, device.counters
    assert page["allocated"] == [before[1], *counters.allocated_bytes.tolist()]
    assert page["active"] == [before[2], *counters.active_bytes.tolist()]
    assert page["time"] == device.since_start_us.tolist()
    page = report.ask("{ events: recording.reservedEvent, bytes: recording.reservedBytes }")
    reserved = np.array([before[3], *counters.reserved_bytes.tolist()])
    changes = np.flatnonzero(np.diff(reserved))
    assert page == {"events": [-1, *changes.tolist()], "bytes": [before[3], *reserved[changes + 1].tolist()]}


def test_the_highest_allocated_of_any_stretch_is_exact(shown: tuple[ReportPage, ullage.DeviceTrace]) -> None:
    report, device = shown
    series = [device.history.before[1], *device.counters.allocated_bytes.tolist()]
    chance = np.random.default_rng(7)
    stretches = [sorted(chance.choice(len(series) + 1, 2, replace=False).tolist()) for _ in range(60)]
    highs = report.ask("argument.map(([begin, end]) => timeline.lines.allocated.high(begin, end))", stretches)
    assert highs == [max(series[begin:end]) for begin, end in stretches]


def test_every_block_is_pythons(shown: tuple[ReportPage, ullage.DeviceTrace]) -> None:
    report, device = shown
    columns = (
        "[recording.birth, recording.size, recording.requested, recording.drawn, recording.segment, recording.place]"
    )
    birth, size, requested, drawn, segment, place = report.ask(columns)
    blocks, segments = device.blocks, device.segments
    assert birth == blocks.birth.tolist()
    assert size == blocks.size_bytes.tolist()
    assert requested == blocks.requested_bytes.tolist()
    assert drawn == device.drawing.offset.tolist()
    addresses = [int(segments.address[s]) + int(p) for s, p in zip(segment, place, strict=True)]
    assert addresses == blocks.address.tolist()
    texts = report.ask(
        "Array.from({ length: Math.min(50, recording.numBlocks) }, (_, row) => recording.addressText(row))"
    )
    assert texts == [hex(address) for address in addresses[:50]]


@pytest.mark.parametrize("at", ["peak", "end"])
def test_the_lines_that_own_memory_are_pythons(shown: tuple[ReportPage, ullage.DeviceTrace], at: str) -> None:
    report, device = shown
    event = device.event_at(at)
    shares = share_by_site(device, device.live_after(event), event)
    leads = [(clipped(one.lead.file), one.lead.line, clipped(one.lead.function)) for one in shares]
    expected = [[*lead, one.bytes, one.num_blocks] for lead, one in zip(leads, shares, strict=True)]
    assert sorted(report.ask(LIVE_LINES, event)) == sorted(expected)


@pytest.mark.parametrize("name", [LEAK, OOM, GRAPHS])
def test_the_peak_finding_and_the_list_of_owners_agree(open_report: Open, name: str) -> None:
    report = open_report(name)
    report.press("p")
    peak = next(one for one in findings_of(name) if one.kind == "peak")
    numbers = report.page.locator("#owners .owners li .number").all_inner_texts()
    by_site = peak.evidence["by_site"]
    assert numbers[: len(by_site)] == [format_bytes(one["bytes"]) for one in by_site][: len(numbers)]
    assert format_bytes(peak.bytes) in report.text("#owners .figures")


def outcome_of(name: str, policy: str) -> ullage.Outcome:
    return ullage.replay(trace_of(name), MODELS[policy] if policy in MODELS else parse_conf(policy))


@pytest.mark.parametrize("name", [LEAK, OOM, "split_mix_capped"])
def test_other_settings_peaks_are_those_of_replay(open_report: Open, name: str) -> None:
    report = open_report(name)
    report.press("5")
    curves = report.ask(CURVES)
    assert len(curves) >= 3
    for policy, peak, highest in curves:
        assert peak == highest == outcome_of(name, policy).peak_reserved_bytes, policy
    rows = report.page.locator("#pane-what_if .policy .number").all_inner_texts()
    recorded = device_of(name).peak.reserved_bytes
    assert rows == [format_bytes(size) for size in (recorded, *(peak for _, peak, _ in curves))]


def test_sizes_and_times_are_written_as_in_python(open_report: Open) -> None:
    report = open_report(VARLEN)
    device = device_of(VARLEN)
    x = report.axis_at(20_000)
    report.page.mouse.move(*report.point(x, 0))
    tip = report.text(".tip")
    event = report.ask(
        "timeline.axis.eventAt(timeline.placeOf(argument).x)",
        dict(zip(("clientX", "clientY"), report.point(x, 0), strict=True)),
    )
    counters = device.counters
    assert f"event {event:,}" in tip
    assert f"allocated {format_bytes(int(counters.allocated_bytes[event]))}" in tip
    assert f"reserved {format_bytes(int(counters.reserved_bytes[event]))}" in tip
