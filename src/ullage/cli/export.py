"""`ullage export FILE`."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from ullage.cli.options import Debug, DeviceNumber, File, Mine, parse_instant, print_json
from ullage.cli.reading import read
from ullage.errors import UllageError


def export(
    file: File,
    perfetto: Annotated[
        str | None, typer.Option("--perfetto", metavar="OUT", help="Write a trace for https://ui.perfetto.dev.")
    ] = None,
    parquet: Annotated[
        str | None, typer.Option("--parquet", metavar="DIR", help="Write a Parquet file for each table into a folder.")
    ] = None,
    flamegraph: Annotated[
        str | None,
        typer.Option("--flamegraph", metavar="OUT|-", help="Write what is live by stack, as folded stacks; - prints."),
    ] = None,
    at: Annotated[
        str, typer.Option("--at", metavar="peak|end|oom|TIME", help="The instant of the flame graph; TIME as in 1.5s.")
    ] = "peak",
    device: DeviceNumber = None,
    mine: Mine = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the tables as JSON; with an output, say what was written.")
    ] = False,
    debug: Debug = False,
) -> None:
    """Write a recording as a Perfetto trace, Parquet tables, a flame graph or JSON."""
    from ullage.report.export import STANDARD_OUTPUT, Outputs, print_tables, write_outputs
    from ullage.report.export_text import print_written

    outputs = Outputs(perfetto=perfetto, parquet=parquet, flamegraph=flamegraph)
    is_printed = flamegraph == STANDARD_OUTPUT
    if not outputs.has_any and not as_json:
        raise UllageError("export needs an output: --perfetto OUT, --parquet DIR, --flamegraph OUT or --json")
    if is_printed and as_json:
        raise UllageError("--flamegraph - and --json both go to standard output: write the flame graph to a file")
    instant = parse_instant(at)
    trace = read(file, mine=mine)
    if not outputs.has_any:
        print_tables(trace, device=device, at=instant)
        return
    try:
        written = write_outputs(trace, outputs, device=device, at=instant, progress=_progress)
    finally:
        _progress("")
    if as_json:
        print_json({"written": [one._asdict() for one in written]})
    else:
        print_written(written, sys.stderr if is_printed else sys.stdout)


def _progress(path: str) -> None:
    """Say on a terminal what is written next; nothing, when all is done."""
    if _is_terminal():
        print(f"\033[Kwriting {path} …" if path else "\033[K", end="\r", file=sys.stderr, flush=True)


def _is_terminal() -> bool:
    return sys.stderr.isatty()
