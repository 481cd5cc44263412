"""`ullage explain FILE`."""

from __future__ import annotations

from typing import Annotated

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


def explain(
    file: File,
    at: Annotated[
        str, typer.Option("--at", metavar="peak|end|oom|TIME", help="The instant to explain; TIME as in 1.5s.")
    ] = "peak",
    top: Top = 5,
    device: DeviceNumber = None,
    mine: Mine = None,
    fail_on: FailOn = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Explain where GPU memory went, and what to change."""
    trace = read(file, "ullage.explain", *([] if as_json else ["ullage.report.findings_text"]), mine=mine)
    from ullage.explain import explain as explain_trace
    from ullage.report.summary_json import summary_json

    findings = explain_trace(trace, device=device, at=parse_instant(at))
    summary = summary_json(trace, device=device)
    plain = [finding.to_json() for finding in findings]
    if as_json:
        print_json(summary | {"findings": plain})
    else:
        from ullage.report.findings_text import print_findings

        print_findings(summary, plain, top=top)
    exit_on(fail_on, (one.severity for one in findings))
