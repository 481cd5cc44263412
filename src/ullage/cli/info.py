"""`ullage info FILE`."""

from __future__ import annotations

from typing import Annotated

import typer

from ullage.cli.options import AsJson, Debug, DeviceNumber, File, print_json
from ullage.cli.reading import read


def info(
    file: File,
    verify: Annotated[bool, typer.Option("--verify", help="Compare what is rebuilt with what is recorded.")] = False,
    device: DeviceNumber = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Say on one screen what a recording holds."""
    trace = read(file, "ullage.report.summary_json", *([] if as_json else ["ullage.report.summary_text"]))
    from ullage.report.summary_json import summary_json

    summary = summary_json(trace, device=device, verify=verify)
    if as_json:
        print_json(summary)
    else:
        from ullage.report.summary_text import print_summary

        print_summary(summary, trace.tables.size_bytes)
    if verify and not all(_agrees(one["verify"]) for one in summary["devices"]):
        raise typer.Exit(1)


def _agrees(counts: dict[str, int]) -> bool:
    pairs = (("allocs", "address_matches"), ("segments", "segment_matches"), ("final_blocks", "final_block_matches"))
    return all(counts[whole] == counts[matches] for whole, matches in pairs)
