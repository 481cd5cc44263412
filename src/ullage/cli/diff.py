"""`ullage diff BEFORE [AFTER]`."""

from __future__ import annotations

from typing import Annotated

import typer

from ullage.cli.options import (
    STANDARD_INPUT,
    AsJson,
    Debug,
    DeviceNumber,
    File,
    Mine,
    Top,
    parse_instant,
    print_json,
    standard_input_path,
)
from ullage.errors import UllageError


def diff(
    before: File,
    after: Annotated[
        str | None, typer.Argument(metavar="FILE", help="A second one.", callback=standard_input_path)
    ] = None,
    start: Annotated[
        str | None, typer.Option("--from", metavar="peak|end|oom|TIME", help="Where in the first. [default: end]")
    ] = None,
    end: Annotated[str, typer.Option("--to", metavar="peak|end|oom|TIME", help="Where in the second.")] = "end",
    top: Top = 20,
    device: DeviceNumber = None,
    mine: Mine = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Compare two snapshots, or two instants of one."""
    from ullage.diff import diff as diff_traces
    from ullage.trace import load

    if after is None and start is None:
        raise UllageError("diff needs a second snapshot, or --from (and --to) to compare two instants of one")
    if before == after == STANDARD_INPUT:
        raise UllageError("only one of the two snapshots can come from standard input")
    first = load(before, mine=mine)
    second = load(after, mine=mine) if after is not None else first
    diffs = diff_traces(
        first,
        second,
        before_at=parse_instant(start or "end", "--from"),
        after_at=parse_instant(end, "--to"),
        device=device,
    )
    plain = [one.to_json() for one in diffs]
    if as_json:
        print_json({"devices": plain})
    else:
        from ullage.report.diff_text import print_diff

        print_diff(plain, top=top)
