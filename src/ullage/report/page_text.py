"""`ullage report` for people: what was written."""

from __future__ import annotations

from typing import Any

from rich.text import Text

from ullage.report.grid import Grid
from ullage.report.text import console, indented, size
from ullage.units import plural

_SHOWN = 8


def print_written(written: dict[str, Any]) -> None:
    """Print what was written.

    Args:
        written: What `write_report` returns.
    """
    out = console()
    ranks = written["ranks"]
    megabytes = written["bytes"] / 1e6
    out.print(
        Text.assemble("wrote ", (written["path"], "bold"), f" ({megabytes:.1f} MB): open it in a browser"),
        overflow="fold",
    )
    if len(ranks) == 1:
        return
    out.print(Text(plural(len(ranks), "rank"), style="dim"))
    table = Grid("rank", ">allocated", ">reserved", "")
    for rank in ranks[:_SHOWN]:
        aside = Text(rank["aside"], style="red")
        table.add_row(rank["name"], size(rank["peak_allocated_bytes"]), size(rank["peak_reserved_bytes"]), aside)
    out.print(indented(table))
    if len(ranks) > _SHOWN:
        out.print(indented(Text(f"… {len(ranks) - _SHOWN:,} more", style="dim")))
