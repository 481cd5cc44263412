"""`ullage explain FILE`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from ullage.cli.options import (
    AsJson,
    Debug,
    DeviceNumber,
    FailOn,
    File,
    Mine,
    Top,
    exit_on,
    parse_instant,
    print_json,
)
from ullage.cli.reading import read

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ullage.explain import Finding
    from ullage.trace import DeviceTrace, Trace


def explain(
    file: File,
    at: Annotated[
        str, typer.Option("--at", metavar="peak|end|oom|TIME", help="The instant to explain; TIME as in 1.5s.")
    ] = "peak",
    top: Top = 5,
    device: DeviceNumber = None,
    mine: Mine = None,
    plot: Annotated[bool, typer.Option("--plot", help="Draw the timeline in the terminal too.")] = False,
    png: Annotated[str | None, typer.Option("--png", metavar="OUT", help="Draw the timeline into a PNG file.")] = None,
    fail_on: FailOn = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Explain where GPU memory went, and what to change."""
    if plot and as_json:
        print("ullage: --plot is ignored with --json (--png FILE draws the timeline into a file)", file=sys.stderr)
    modules = [] if as_json else ["ullage.report.findings_text", *(["ullage.report.timeline_text"] if plot else [])]
    trace = read(file, "ullage.explain", *modules, mine=mine)
    from ullage.explain import explain as explain_trace
    from ullage.report.summary_json import summary_json

    instant = parse_instant(at)
    findings = explain_trace(trace, device=device, at=instant)
    drawn = _device_to_draw(trace, findings, device)
    if png is not None:
        from ullage.report.plot import save_png

        save_png(drawn, png, at=instant, source=file)
    summary = summary_json(trace, device=device)
    plain = [finding.to_json() for finding in findings]
    if as_json:
        print_json(summary | ({} if png is None else {"png": png}) | {"findings": plain})
    else:
        from ullage.report.findings_text import print_findings

        timeline = None
        if plot:
            from ullage.report.timeline_text import Timeline

            timeline = Timeline(drawn, at=instant)
        print_findings(summary, plain, top=top, timeline=timeline)
    exit_on(fail_on, (one.severity for one in findings))


def _device_to_draw(trace: Trace, findings: Sequence[Finding], device: int | None) -> DeviceTrace:
    """Choose the device of the worst finding among those that have the instant asked for, as their peak tells."""
    have_it = {finding.device for finding in findings if finding.kind == "peak"}
    worst = next((finding.device for finding in findings if finding.device in have_it), device)
    return trace.device(worst if device is None else device)
