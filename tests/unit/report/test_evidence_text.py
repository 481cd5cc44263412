"""The tables of every recording's findings fit 80 columns, and each kind shows its own evidence."""

from __future__ import annotations

import pytest

from tests.recordings import EXPECTED, findings_of
from ullage.explain import Finding
from ullage.report.evidence_text import print_evidence
from ullage.report.text import console


def printed(finding: Finding, capsys: pytest.CaptureFixture[str], top: int = 3) -> str:
    print_evidence(console(), finding.to_json(), top)
    return capsys.readouterr().out


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_every_table_fits_80_columns_without_blanks_at_the_ends(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    for finding in findings_of(name):
        lines = printed(finding, capsys).splitlines()
        assert bool(lines) == (finding.kind != "recording")
        assert [line for line in lines if len(line) > 80 or line != line.rstrip()] == []


@pytest.mark.parametrize(
    ("name", "kind", "words"),
    [
        ("stranded_weights", "fragmentation", ["holds back", "pinning line", "3.81 GiB", "3.81 GiB in all"]),
        ("survivors", "oom", ["in the way", "live at the error", "fragmentation.py:18", "… 37 more, 592 MiB"]),
        ("ctx_cycle", "growth", ["live, step by step", "▁▂", "steps from the period of the request stream"]),
        ("graph_per_length", "private_pool", ["pool", "(1, 0)", "… 9 more"]),
        ("graph_workspace", "private_pool", ["kept, made where a temporary of its capture was"]),
        ("graph_input_freed", "private_pool", ["lived through a capture, freed and overwritten", "graphs.py:58"]),
        ("record_stream_backlog", "stream", ["4.75 GiB", "19", "registry.py:45"]),
        ("retries", "churn", ["releases", "took", "retry", "… 36 more"]),
        ("late_start", "peak", ["(before the recording)", "where 392 MiB reserved went"]),
        ("lru_model", "held", ["512 MiB", "100 %", "retention.py:49"]),
    ],
)
def test_each_kind_shows_its_own_evidence(
    name: str, kind: str, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    (finding,) = [one for one in findings_of(name) if one.kind == kind]
    text = printed(finding, capsys)
    assert [word for word in words if word not in text] == []
