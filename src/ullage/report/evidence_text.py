"""The tables under a finding, by kind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.text import Text

from ullage.report.grid import Grid
from ullage.report.text import bar, indented, site_text, size, sparkline, via_text, without_stack
from ullage.units import format_duration, format_share

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rich.console import Console

Row = dict[str, Any]


def print_evidence(out: Console, finding: Row, top: int) -> None:
    """Print a finding's tables.

    Args:
        out: The console.
        finding: What `Finding.to_json` returns.
        top: The number of rows of each table.
    """
    show = _BY_KIND.get(finding["kind"])
    if show is not None:
        show(out, finding["evidence"], top)


def _print_more(out: Console, rows: Sequence[Row], top: int, key: str = "bytes") -> None:
    rest = rows[top:]
    if rest:
        out.print(indented(Text(f"… {len(rest):,} more, {size(sum(row[key] for row in rest))}", style="dim"), 4))


def _age(row: Row) -> str:
    newest, oldest = row["newest_us"], row["oldest_us"]
    if newest is None:
        return "before"
    newest_text = format_duration(newest)
    if oldest is None:
        return f"{newest_text} +"
    oldest_text = format_duration(oldest)
    return newest_text if newest_text == oldest_text else f"to {oldest_text}"


def _print_sites(out: Console, rows: Sequence[Row], top: int, unknown: str = "(no Python stack)") -> None:
    whole = sum(row["bytes"] for row in rows)
    table = Grid(">bytes", ">share", ">blocks", ">age", "line")
    for row in rows[:top]:
        site = site_text(row["site"], without_stack(row, unknown))
        site.append_text(via_text(row["via"], row["bytes"]))
        table.add_row(size(row["bytes"]), format_share(row["bytes"], whole), f"{row['num_blocks']:,}", _age(row), site)
    out.print(indented(table, 4))
    _print_more(out, rows, top)


def _print_classes(out: Console, title: str, rows: Sequence[Row]) -> None:
    if not rows:
        return
    whole = sum(row["bytes"] for row in rows)
    table = Grid(">bytes", title, "", ">blocks")
    for row in rows:
        table.add_row(size(row["bytes"]), row["label"], bar(row["bytes"], whole), f"{row['num_blocks']:,}")
    out.print(indented(table, 4))


def _print_causes(out: Console, title: str, rows: Sequence[Row]) -> None:
    whole = sum(row["bytes"] for row in rows)
    table = Grid(">bytes", title, "")
    for row in rows:
        if row["bytes"]:
            live = row["cause"] == "requested"
            table.add_row(size(row["bytes"]), row["label"], bar(row["bytes"], whole, "green" if live else "red"))
    out.print(indented(table, 4))


def _peak(out: Console, evidence: Row, top: int) -> None:
    _print_sites(out, evidence["by_site"], top)
    out.print()
    _print_classes(out, "made", evidence["by_step"] or evidence["by_age"])
    out.print()
    _print_causes(out, f"where {size(evidence['reserved_bytes'])} reserved went", evidence["waterfall"])


def _growth(out: Console, evidence: Row, top: int) -> None:
    line = sparkline(evidence["live_bytes_at_step_start"])
    out.print(indented(Text.assemble(("live, step by step  ", "dim"), (line, "yellow")), 4))
    _print_sites(out, evidence["by_site"], top)
    out.print(indented(Text(f"steps from {evidence['steps_from']}", style="dim"), 4))


def _held(out: Console, evidence: Row, top: int) -> None:
    _print_sites(out, evidence["by_site"], top)


def _fragmentation(out: Console, evidence: Row, top: int) -> None:
    look = evidence["instants"][evidence["at"]]
    _print_causes(out, "free", look["free_by_cause"])
    rows = evidence["pinning"]
    if not rows:
        return
    out.print()
    table = Grid(">holds back", ">with", ">blocks", ">age", "pinning line")
    for row in rows[:top]:
        table.add_row(
            size(row["held_back_bytes"]),
            size(row["live_bytes"]),
            f"{row['num_blocks']:,}",
            _age(row),
            site_text(row["site"], without_stack(row)),
        )
    out.print(indented(table, 4))
    _print_more(out, rows, top, "held_back_bytes")
    total = sum(row["held_back_bytes"] for row in rows)
    out.print(indented(Text(f"{size(total)} in all", style="dim"), 4))


def _oom(out: Console, evidence: Row, top: int) -> None:
    blockers = evidence["in_the_way"]
    if blockers:
        table = Grid(">bytes", ">age", "in the way")
        for row in blockers[:top]:
            age = "before" if row["age_us"] is None else format_duration(row["age_us"])
            table.add_row(size(row["bytes"]), age, site_text(row["site"]))
        out.print(indented(table, 4))
        _print_more(out, blockers, top)
        out.print()
    out.print(indented(Text("live at the error", style="dim"), 4))
    _print_sites(out, evidence["by_site"], top)
    out.print()
    _print_causes(out, f"where {size(evidence['reserved_bytes'])} reserved went", evidence["waterfall"])


def _private_pool(out: Console, evidence: Row, top: int) -> None:
    table = Grid("pool", ">reserved", ">live", ">free", ">segments", ">requests")
    pools = evidence["pools"]
    for row in pools[:top]:
        table.add_row(
            "({}, {})".format(*row["pool"]),
            size(row["reserved_bytes"]),
            size(row["live_bytes"]),
            size(row["free_bytes"]),
            f"{row['num_segments']:,}",
            f"{row['num_requests']:,}",
        )
    out.print(indented(table, 4))
    _print_more(out, pools, top, "reserved_bytes")
    _print_overwritten(out, "kept, made where a temporary of its capture was", evidence["kept_over_temporaries"], top)
    _print_overwritten(out, "lived through a capture, freed and overwritten", evidence["freed_after_capture"], top)


def _print_overwritten(out: Console, title: str, rows: Sequence[Row], top: int) -> None:
    if not rows:
        return
    table = Grid(">bytes", title)
    for row in rows[:top]:
        table.add_row(size(row["bytes"]), site_text(row["site"], max_callers=0))
    out.print()
    out.print(indented(table, 4))
    _print_more(out, rows, top)


def _stream(out: Console, evidence: Row, top: int) -> None:
    if "streams" not in evidence:
        _print_sites(out, evidence["by_site"], top)
        return
    table = Grid("stream", ">free", ">requests")
    for row in evidence["streams"][:top]:
        table.add_row(hex(row["stream"]), size(row["free_bytes"]), f"{row['num_requests']:,}")
    out.print(indented(table, 4))
    _print_more(out, evidence["streams"], top, "free_bytes")


def _churn(out: Console, evidence: Row, top: int) -> None:
    table = Grid(">at", "why", ">releases", ">bytes", ">took")
    for row in evidence["bursts"][:top]:
        at = format_duration(row["since_start_us"])
        reason = row["reason"].replace("_", " ")
        table.add_row(at, reason, f"{row['num_releases']:,}", size(row["bytes"]), format_duration(row["time_us"]))
    out.print(indented(table, 4))
    _print_more(out, evidence["bursts"], top)


_BY_KIND: dict[str, Callable[[Console, Row, int], None]] = {
    "peak": _peak,
    "growth": _growth,
    "held": _held,
    "fragmentation": _fragmentation,
    "oom": _oom,
    "private_pool": _private_pool,
    "stream": _stream,
    "churn": _churn,
}
