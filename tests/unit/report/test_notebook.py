"""What notebooks show: found by IPython, well-formed, escaped, without scripts."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest
from IPython.core.formatters import DisplayFormatter

import ullage
from tests.recordings import EXPECTED, findings_of, trace_of
from tests.unit.conftest import Load
from tests.unit.report.hostile_names import NAMES, QUOTE, RIGHT_TO_LEFT, TAG
from tests.unit.snapshot_builder import MIB, SnapshotBuilder, merged

VOID = {"br", "hr", "img", "meta", "link", "input"}
ALLOWED = {"div", "span", "b", "bdi", "svg", "path", "text"}


class Checker(HTMLParser):
    """Reads a fragment: the tags, the attributes' names, and whether each tag is closed."""

    def __init__(self, fragment: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.words = ""
        self._open: list[str] = []
        self.feed(fragment)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self._open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words += data


def shown(value: object) -> str:
    """Return the HTML that IPython picks for a value."""
    formats, _ = DisplayFormatter().format(value)
    html: str = formats["text/html"]
    return html


def hostile(name: str) -> SnapshotBuilder:
    one = SnapshotBuilder()
    for _ in range(3):
        one.alloc(300 * MIB)
    for event in one.events:
        event["frames"] = [{"filename": f"{name}.py", "line": 3, "name": name}]
    return one


def test_ipython_shows_a_trace_a_device_findings_and_one_finding_as_html() -> None:
    trace = trace_of("survivors")
    findings = ullage.explain(trace)
    assert "<svg" in shown(trace)
    assert "<svg" in shown(trace.device())
    assert "out of memory" in shown(findings).lower()
    assert shown(findings[0]) == shown(findings[:1])
    assert shown(findings[0]) in shown(findings)[: len(shown(findings[0]))] + shown(findings[0])


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_every_recording_is_shown_by_plain_elements_alone(name: str) -> None:
    for value in (trace_of(name), ullage.explain(trace_of(name))):
        checker = Checker(shown(value))
        assert checker.tags <= ALLOWED
        assert not {one for one in checker.attributes if one.startswith("on")}


@pytest.mark.parametrize("name", NAMES)
def test_hostile_names_are_escaped_and_clipped(name: str, load: Load) -> None:
    trace = load(hostile(name))
    for value in (trace, ullage.explain(trace)):
        html = shown(value)
        checker = Checker(html)
        assert checker.tags <= ALLOWED
        assert not {one for one in checker.attributes if one.startswith("on")}
        assert len(html) < 50_000
        assert "\u202e" not in html
        assert "\x1b" not in html


def test_a_tag_in_a_name_is_shown_as_text(load: Load) -> None:
    assert TAG in Checker(shown(ullage.explain(load(hostile(TAG))))).words
    assert QUOTE in Checker(shown(ullage.explain(load(hostile(QUOTE))))).words
    assert "\\u202e" in Checker(shown(ullage.explain(load(hostile(RIGHT_TO_LEFT))))).words


def test_a_path_is_escaped_too() -> None:
    trace = ullage.Trace(trace_of("survivors").tables, path=f"folder/{QUOTE}")
    assert QUOTE in Checker(shown(trace)).words


def test_a_finding_shows_its_title_bytes_line_why_and_what_to_do() -> None:
    finding = findings_of("survivors")[0]
    words = Checker(shown(finding)).words
    for part in (finding.title, finding.why, finding.next_step, finding.site[0].function, "error"):
        assert part in words
    assert ullage.explain(trace_of("survivors"))[0].kind == "oom"


def test_a_trace_shows_its_figures() -> None:
    words = Checker(shown(trace_of("survivors"))).words
    for part in ("survivors.pickle.xz", "peak allocated 11 GiB", "peak reserved 11 GiB", "out-of-memory errors 1"):
        assert part in words


def test_of_many_devices_some_are_shown_and_the_rest_is_counted(load: Load) -> None:
    builders = [SnapshotBuilder(device=number) for number in range(10)]
    for one in builders:
        one.alloc(12 * MIB)
    html = shown(load(merged(*(one.snapshot() for one in builders))))
    assert html.count("<svg") == 8
    assert "and 2 more devices" in html


def test_a_recording_without_events_shows_its_figures_alone(load: Load) -> None:
    one = SnapshotBuilder()
    one.alloc(12 * MIB)
    html = shown(load(one.snapshot() | {"device_traces": []}))
    assert "<svg" not in html
    assert "12 MiB" in html


def test_no_findings_are_said_to_be_none() -> None:
    assert "No findings." in shown(ullage.explain(trace_of("survivors"))[:0])
