"""`ullage diff` for people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.text import Text

from ullage.report.grid import Grid
from ullage.report.text import console, indented, site_text, size
from ullage.units import format_bytes, plural

if TYPE_CHECKING:
    from collections.abc import Sequence


def print_diff(diffs: Sequence[dict[str, Any]], *, top: int) -> None:
    """Print comparisons.

    Args:
        diffs: What `Diff.to_json` returns, one for each device.
        top: The number of rows.
    """
    out = console()
    for one in diffs:
        before, after = one["before"], one["after"]
        net = after["allocated_bytes"] - before["allocated_bytes"]
        out.print(
            Text.assemble(
                (f"GPU {one['device']}", "bold"),
                f": {_signed(net)} allocated ({format_bytes(before['allocated_bytes'])} → "
                f"{format_bytes(after['allocated_bytes'])}), "
                f"{_signed(after['reserved_bytes'] - before['reserved_bytes'])} reserved",
            )
        )
        changed = [
            row for row in one["sites"] if row["net_bytes"] or row["num_new"] or row["num_gone"] or row["num_moved"]
        ]
        same = sum(row["num_same"] for row in one["sites"])
        table = Grid(">net", ">before", ">after", ">new", ">gone", ">moved", "line")
        for row in changed[:top]:
            table.add_row(
                Text(_signed(row["net_bytes"]), style="red" if row["net_bytes"] > 0 else "green"),
                size(row["before_bytes"]),
                size(row["after_bytes"]),
                f"{row['num_new']:,}",
                f"{row['num_gone']:,}",
                f"{row['num_moved']:,}",
                site_text(row["site"], max_callers=1, short=True),
            )
        if changed:
            out.print(indented(table))
        if len(changed) > top:
            rest = changed[top:]
            net_rest = sum(row["net_bytes"] for row in rest)
            out.print(indented(Text(f"… {plural(len(rest), 'more line')}, {_signed(net_rest)}", style="dim")))
        out.print(indented(Text(f"{plural(same, 'block')} unchanged", style="dim")))
    if not diffs:
        out.print("The two have no device in common.")


def _signed(size_bytes: int) -> str:
    return ("+" if size_bytes > 0 else "") + format_bytes(size_bytes)
