"""`ullage explain` for people: the answer first, then why, what to do, and the evidence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.text import Text

from ullage.report.evidence_text import print_evidence
from ullage.report.grid import Grid
from ullage.report.text import bullet, console, frame_text, indented, without_stack
from ullage.units import format_bytes, format_duration, format_share, plural

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from ullage.report.timeline_text import Timeline

_STYLES = {"error": "bold red", "warning": "bold yellow", "info": "bold blue"}
_WORDS = {"error": "ERROR", "warning": "WARNING", "info": "note"}


def print_findings(
    summary: dict[str, Any], findings: Sequence[dict[str, Any]], *, top: int, timeline: Timeline | None = None
) -> None:
    """Print findings.

    Args:
        summary: What `summary_json` returns.
        findings: What `Finding.to_json` returns, in the order to print.
        top: The number of rows of each table.
        timeline: A drawing for below the head: there the answer and its picture are on one screen, the first.
    """
    out = console()
    _print_head(out, summary, findings)
    if timeline is not None:
        out.print()
        out.print(timeline)
    several = len(summary["devices"]) > 1
    for finding in findings:
        _print_finding(out, finding, top, several)


def _print_head(out: Console, summary: dict[str, Any], findings: Sequence[dict[str, Any]]) -> None:
    counts = {word: sum(finding["severity"] == word for finding in findings) for word in _WORDS}
    for device in summary["devices"]:
        span = device["last_event_us"] - device["first_event_us"]
        out.print(
            Text.assemble(
                (f"GPU {device['device']}", "bold"),
                f": {format_bytes(device['peak']['allocated_bytes'])} allocated, "
                f"{format_bytes(device['peak']['reserved_bytes'])} reserved at peak; "
                f"{plural(device['num_events'], 'event')} in {format_duration(span)}",
            )
        )
    if not summary["devices"]:
        out.print("No device has events or segments in this file.")
    elif counts["error"] or counts["warning"]:
        line = [plural(counts[word], word) for word in ("error", "warning") if counts[word]]
        out.print(
            Text(", ".join(line) + (f", {plural(counts['info'], 'note')}" if counts["info"] else ""), style="dim")
        )
        for finding in findings:
            if finding["severity"] != "info":
                out.print(bullet(finding["title"], _STYLES[finding["severity"]]))
    else:
        out.print(Text("No warnings. What there is to know:", style="green"))
        for finding in findings:
            if finding["kind"] == "peak":
                _print_owner(out, finding, several=len(summary["devices"]) > 1)


def _print_owner(out: Console, peak: dict[str, Any], several: bool) -> None:
    """Print a peak's title and the line that owns most of it."""
    where = f"GPU {peak['device']}: " if several else ""
    out.print(bullet(where + peak["title"], _STYLES["info"]))
    rows = peak["evidence"]["by_site"]
    if rows:
        largest, whole = rows[0]["bytes"], sum(row["bytes"] for row in rows)
        line = Text("    most of it: " if 2 * largest > whole else "    its largest part: ")
        line.append_text(frame_text(rows[0]["site"][0]) if rows[0]["site"] else Text(without_stack(rows[0])))
        out.print(line.append(f", {format_share(largest, whole)}"), overflow="fold")


def _print_finding(out: Console, finding: dict[str, Any], top: int, several: bool) -> None:
    severity = finding["severity"]
    where = f"  GPU {finding['device']}" if several else ""
    out.print()
    out.rule(
        Text.assemble((_WORDS[severity], _STYLES[severity]), f" {finding['kind'].replace('_', ' ')}{where}"),
        align="left",
        style="dim",
    )
    out.print(Text(finding["title"], style="bold"))
    table = Grid("", "", gap=1)
    table.add_row(Text("Why", style="dim"), finding["why"])
    table.add_row(Text("Do", style="dim"), finding["next_step"])
    out.print(indented(table))
    print_evidence(out, finding, top)
