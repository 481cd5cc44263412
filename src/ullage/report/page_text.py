"""`ullage report` for people: what was written."""

from __future__ import annotations

from typing import Any

from ullage.report.printable import printable
from ullage.units import plural

_SHOWN = 8


def print_written(written: dict[str, Any]) -> None:
    """Print what was written.

    Args:
        written: What `write_report` returns.
    """
    print(f"wrote {printable(written['path'], 4096)} ({written['bytes'] / 1e6:.1f} MB): open it in a browser")
    if len(written["ranks"]) > 1:
        _print_ranks(written["ranks"])


def _print_ranks(ranks: list[dict[str, Any]]) -> None:
    # One recording is the usual case, and needs nothing of rich, which takes longer to load than all else here.
    from rich.text import Text

    from ullage.report.grid import Grid
    from ullage.report.text import console, indented, size

    out = console()
    out.print(Text(plural(len(ranks), "rank"), style="dim"))
    table = Grid("rank", ">allocated", ">reserved", "")
    for rank in ranks[:_SHOWN]:
        aside = Text(rank["aside"], style="red")
        table.add_row(rank["name"], size(rank["peak_allocated_bytes"]), size(rank["peak_reserved_bytes"]), aside)
    out.print(indented(table))
    if len(ranks) > _SHOWN:
        out.print(indented(Text(f"… {len(ranks) - _SHOWN:,} more", style="dim")))
