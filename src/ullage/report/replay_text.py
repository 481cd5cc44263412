"""`ullage replay` and `ullage tune` for people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.text import Text

from ullage.report.text import bar, console, grid, indented, site_text, size
from ullage.units import format_bytes, format_share

if TYPE_CHECKING:
    from rich.console import Console

_CAUSES = {
    "requested": "asked for by live tensors",
    "rounding": "rounding and tails",
    "pending": "freed, but waiting for a stream",
    "stranded": "free, beside live blocks (large pool)",
    "small_pool": "free, beside live blocks (small pool)",
    "other_stream": "free, but on another stream",
    "private_pool": "free inside private pools",
    "cached": "free whole segments (can go back)",
}


def print_replay(outcome: dict[str, Any]) -> None:
    """Print one policy's outcome beside the recorded one.

    Args:
        outcome: What `Outcome.to_json` returns, with the recorded one under "recorded".
    """
    out = console()
    recorded = outcome["recorded"]
    out.print(_headline(outcome, recorded))
    if outcome["first_oom"]:
        _print_oom(out, outcome)
    table = grid("", ">reserved", ">allocated", ">driver calls", ">retries", gap=3)
    for name, row in (("recorded", recorded), ("replayed", outcome)):
        calls = f"{row['num_device_alloc']:,} + {row['num_device_free']:,}"
        retries = f"{row['num_retries']:,}" if row["num_retries"] is not None else ""
        table.add_row(name, size(row["peak_reserved_bytes"]), size(row["peak_allocated_bytes"]), calls, retries)
    out.print(indented(table))
    if "min_cap_bytes" in outcome:
        out.print(indented(f"smallest cap that serves every request: {format_bytes(outcome['min_cap_bytes'])}"))
    out.print(indented(Text(certainty_words(outcome), style="dim")))
    out.print()
    _print_waste(out, outcome)


def certainty_words(outcome: dict[str, Any]) -> str:
    """Say how sure an outcome is."""
    if outcome["certainty"] == "exact":
        return "exact: neither the order of addresses nor waits for streams change it"
    low, high = outcome["range_bytes"]
    span = f"{format_bytes(low)} to {format_bytes(high)}"
    if outcome["certainty"] == "window":
        return f"the window of an incomplete history only: {span}, and what came before it is not in it"
    return f"range: {span}, as ties in address order and waits for streams fall"


def _headline(outcome: dict[str, Any], recorded: dict[str, Any]) -> Text:
    now, before = outcome["peak_reserved_bytes"], recorded["peak_reserved_bytes"]
    cap = f" under a cap of {format_bytes(outcome['cap_bytes'])}" if outcome["cap_bytes"] is not None else ""
    if outcome["outcome"] == "oom":
        return Text.assemble((outcome["policy"], "bold"), f"{cap}: ", ("runs out of memory", "bold red"))
    change = now - before
    if change == 0:
        words = f"the same peak of reserved, {format_bytes(now)}"
    else:
        more = "more" if change > 0 else "less"
        words = (
            f"{format_bytes(abs(change))} {more} at the peak of reserved ({format_bytes(now)}, "
            f"{'+' if change > 0 else '-'}{format_share(abs(change), before)})"
        )
    return Text.assemble((outcome["policy"], "bold"), f"{cap}: {words}")


def _print_oom(out: Console, outcome: dict[str, Any]) -> None:
    oom = outcome["first_oom"]
    line = Text.assemble(
        f"first failed request: {format_bytes(oom['bytes'])}, with {format_bytes(oom['allocated_bytes'])} allocated and "
        f"{format_bytes(oom['reserved_bytes'])} reserved, by "
    )
    line.append_text(site_text(oom["site"], max_callers=1))
    out.print(indented(line))


def _print_waste(out: Console, outcome: dict[str, Any]) -> None:
    waste = outcome["waste"]
    whole = sum(waste.values())
    table = grid(">bytes", f"where {size(whole)} reserved went", "")
    for cause, label in _CAUSES.items():
        if waste.get(cause):
            style = "green" if cause == "requested" else "red"
            table.add_row(size(waste[cause]), label, bar(waste[cause], whole, style))
    out.print(indented(table))


def print_tuning(tuning: dict[str, Any], *, top: int) -> None:
    """Print a search over settings.

    Args:
        tuning: What `Tuning.to_json` returns.
        top: The number of candidates to list.
    """
    out = console()
    best, baseline = tuning["best"], tuning["baseline"]
    out.print(Text(tuning["verdict"], style="bold"))
    if tuning["line"]:
        out.print()
        out.print(indented(Text(tuning["line"], style="green"), 4), soft_wrap=True)
        out.print()
    for note in tuning["notes"]:
        out.print(indented(f"• {note}"))
    out.print(indented(Text(certainty_words(best), style="dim")))
    out.print()
    table = grid(">reserved", ">against", ">driver calls", ">retries", "", "settings")
    rows = [baseline, *[row for row in tuning["candidates"] if row["policy"] != baseline["policy"]][:top]]
    for row in rows:
        change = row["peak_reserved_bytes"] - baseline["peak_reserved_bytes"]
        against = (
            ""
            if row is baseline
            else f"{'+' if change > 0 else '-' if change < 0 else ''}"
            + (format_share(abs(change), baseline["peak_reserved_bytes"]) if change else "same")
        )
        table.add_row(
            size(row["peak_reserved_bytes"]),
            against,
            f"{row['num_device_alloc'] + row['num_device_free']:,}",
            f"{row['num_retries']:,}",
            Text("oom", style="red") if row["outcome"] == "oom" else "",
            row["policy"] + (" (recorded)" if row is baseline else ""),
        )
    out.print(indented(table))
    out.print(indented(Text(f"{len(tuning['candidates'])} settings tried", style="dim")))
