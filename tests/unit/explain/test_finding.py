"""A finding turns into plain data with stable keys."""

from __future__ import annotations

import dataclasses

import pytest

from ullage.explain import SEVERITIES, Finding, Findings
from ullage.explain.finding import place
from ullage.trace import Frame

FINDING = Finding(
    kind="held",
    severity="info",
    device=1,
    bytes=512,
    title="t",
    why="w",
    next_step="n",
    site=(Frame("a.py", 3, "f"),),
    evidence={"x": 1},
)


def test_a_finding_as_json_has_nine_keys() -> None:
    assert FINDING.to_json() == {
        "kind": "held",
        "severity": "info",
        "device": 1,
        "bytes": 512,
        "title": "t",
        "why": "w",
        "next_step": "n",
        "site": [{"file": "a.py", "line": 3, "function": "f"}],
        "evidence": {"x": 1},
    }


def test_a_finding_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        FINDING.bytes = 0  # type: ignore[misc]


def test_severities_rise() -> None:
    assert SEVERITIES == ("info", "warning", "error")


def test_a_place_is_the_leading_frames_file_and_line() -> None:
    assert (
        place([{"file": "src/a.py", "line": 3, "function": "f"}, {"file": "b.py", "line": 4, "function": "g"}])
        == "a.py:3"
    )
    assert place([{"file": "libcublas.so", "line": 0, "function": "f"}]) == "libcublas.so"
    assert place([]) == "requests without a Python stack"


def test_findings_are_a_list_and_so_is_a_slice_of_them() -> None:
    findings = Findings([FINDING, FINDING])
    assert findings == [FINDING, FINDING]
    assert findings[0] is FINDING
    assert findings[:1] == [FINDING]
    assert type(findings[:1]) is Findings
    assert isinstance(findings, list)
