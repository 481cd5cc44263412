"""`ullage replay` and `ullage tune` for people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.text import Text

from ullage.report.grid import Grid
from ullage.report.text import bar, bullet, console, indented, site_text, size
from ullage.units import format_bytes, format_share, plural

if TYPE_CHECKING:
    from rich.console import Console

# The causes of ullage.explain in the same words; replay counts tails as rounding.
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


def print_replay(outcome: dict[str, Any], *, num_devices: int = 1) -> None:
    """Print one policy's outcome beside the recorded one.

    Args:
        outcome: What `Outcome.to_json` returns, with the recorded one under "recorded".
        num_devices: How many devices the recording has; the one replayed is named where there are several.
    """
    out = console()
    recorded = outcome["recorded"]
    _print_device(out, outcome["device"], num_devices)
    out.print(_headline(outcome, recorded))
    if outcome["first_oom"]:
        _print_oom(out, outcome)
    table = Grid("", ">reserved", ">allocated", ">driver calls", ">retries", gap=3)
    for name, row in (("recorded", recorded), ("replayed", outcome)):
        calls = f"{row['num_device_alloc']:,} + {row['num_device_free']:,}"
        retries = f"{row['num_retries']:,}" if row["num_retries"] is not None else ""
        table.add_row(name, size(row["peak_reserved_bytes"]), size(row["peak_allocated_bytes"]), calls, retries)
    out.print(indented(table))
    if "min_cap_bytes" in outcome:
        out.print(indented(f"smallest cap that serves every request: {format_bytes(outcome['min_cap_bytes'])}"))
    out.print(indented(Text(certainty_words(outcome), style="dim")))
    if "min_caps" in outcome:
        out.print()
        caps = Grid(">smallest cap", "under")
        for name, cap in outcome["min_caps"].items():
            caps.add_row(size(cap), f"{name} (recorded)" if name == recorded["policy"] else name)
        out.print(indented(caps))
    out.print()
    _print_waste(out, outcome)


def print_placement(placement: dict[str, Any]) -> None:
    """Print how low one arena can be that holds everything.

    Args:
        placement: What `Placement.to_json` returns, with the recorded outcome under "recorded" where there is one.
    """
    out = console()
    height, live = placement["height_bytes"], placement["largest_live_bytes"]
    above = f"{format_share(height - live, live)} above the bound" if height > live else "as low as can be"
    out.print(Text.assemble(("placement", "bold"), f": an arena of {format_bytes(height)} holds it all, {above}"))
    if "window" in placement:
        out.print(indented(_window_words(placement["window"])))
    out.print(indented(f"most that is live at once: {format_bytes(live)} ({live:,} of {height:,} bytes)"))
    if "recorded" in placement:
        out.print(indented(f"recorded peak of reserved: {format_bytes(placement['recorded']['peak_reserved_bytes'])}"))
    if placement["cap_bytes"] is not None:
        fits = "fits into" if placement["outcome"] == "ok" else "does not fit into"
        out.print(indented(f"it {fits} {format_bytes(placement['cap_bytes'])} ({placement['cap_bytes']:,} bytes)"))
    if placement.get("certainty") == "window":
        out.print(indented(Text("of the window of an incomplete history only", style="dim")))
    if "plan" in placement:
        out.print(indented(f"the plan of {plural(placement['num_requests'], 'request')} is in {placement['plan']}"))


def _window_words(window: dict[str, Any]) -> str:
    answer = "the next step asks for the same" if window["repeats"] else "the next step does not ask for just the same"
    held = plural(window["num_before"], "block")
    return f"step {window['step']} of {window['num_steps']}, with {held} that are there before it: {answer}"


def _print_device(out: Console, device: int, num_devices: int) -> None:
    if num_devices > 1:
        out.print(Text.assemble((f"GPU {device}", "bold"), f" of {num_devices} (--device N asks for another)"))


def certainty_words(outcome: dict[str, Any]) -> str:
    """Say how sure an outcome is."""
    if outcome["certainty"] == "exact":
        return "exact: neither the order of addresses nor waits for streams change it"
    low, high = outcome["range_bytes"]
    span = f"{format_bytes(low)} to {format_bytes(high)}"
    if outcome["certainty"] == "window":
        answer = "" if low == high else f": {span}"
        return f"holds for the recorded window only{answer}; the history before it is not in the file"
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
            f"{format_bytes(abs(change))} {more} at the peak of reserved ({format_bytes(now)}, {_against(now, before)})"
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
    table = Grid(">bytes", f"where {size(whole)} reserved went", "")
    for cause, label in _CAUSES.items():
        if waste.get(cause):
            style = "green" if cause == "requested" else "red"
            table.add_row(size(waste[cause]), label, bar(waste[cause], whole, style))
    out.print(indented(table))


def print_tuning(tuning: dict[str, Any], *, top: int, num_devices: int = 1) -> None:
    """Print a search over settings. Settings are never folded, so that they can be copied.

    Args:
        tuning: What `Tuning.to_json` returns.
        top: The number of candidates to list.
        num_devices: How many devices the recording has; the one replayed is named where there are several.
    """
    out = console()
    best, baseline = tuning["best"], tuning["baseline"]
    _print_device(out, tuning["device"], num_devices)
    out.print(Text(tuning["verdict"], style="bold"))
    if tuning["line"]:
        out.print()
        out.print(Text(f"    {tuning['line']}", style="green"), soft_wrap=True)
        out.print()
    for note in tuning["notes"]:
        out.print(bullet(note))
    out.print(indented(Text(certainty_words(best), style="dim")))
    out.print()
    rows = [baseline, *[row for row in tuning["candidates"] if row["policy"] != baseline["policy"]][:top]]
    _print_candidates(out, rows, baseline)
    out.print(indented(Text(f"{plural(len(tuning['candidates']), 'setting')} tried", style="dim")))


def _print_candidates(out: Console, rows: list[dict[str, Any]], baseline: dict[str, Any]) -> None:
    """Print each candidate's figures, and its settings below them."""
    figures = [
        ("reserved", "against", "driver calls", "retries"),
        *(
            (
                size(row["peak_reserved_bytes"]),
                "" if row is baseline else _against(row["peak_reserved_bytes"], baseline["peak_reserved_bytes"]),
                f"{row['num_device_alloc'] + row['num_device_free']:,}",
                f"{row['num_retries']:,}",
            )
            for row in rows
        ),
    ]
    widths = [max(map(len, column)) for column in zip(*figures, strict=True)]
    heading, *lines = ("  ".join(map(str.rjust, cells, widths)) for cells in figures)
    out.print(Text(f"  {heading}", style="dim"), soft_wrap=True)
    for line, row in zip(lines, rows, strict=True):
        settings = Text.assemble("    ", (row["policy"], "bold"), " (recorded)" if row is baseline else "")
        if row["outcome"] == "oom":
            settings.append(" (runs out of memory)", style="red")
        out.print(Text(f"  {line}"), soft_wrap=True)
        out.print(settings, soft_wrap=True)


def _against(now: int, before: int) -> str:
    if now == before:
        return "same"
    return f"{'+' if now > before else '-'}{format_share(abs(now - before), before)}"
