"""`ullage doctor` for people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.text import Text

from ullage.report.grid import Grid
from ullage.report.text import console, indented

if TYPE_CHECKING:
    from rich.console import Console

_STYLES = {"error": "bold red", "warning": "bold yellow", "info": "bold blue"}
_WORDS = {"error": "ERROR", "warning": "WARNING", "info": "note"}


def print_advice(report: dict[str, Any]) -> None:
    """Print what was checked, and what is to be said about it.

    Args:
        report: What `ullage doctor --json` prints.
    """
    out = console()
    out.print(_head(report), overflow="fold")
    if not report["advice"]:
        out.print(Text("Nothing to change.", style="green"))
    for advice in report["advice"]:
        _print_one(out, advice)


def _head(report: dict[str, Any]) -> Text:
    torch = f"torch {report['torch_version']}" if report["torch_version"] else "torch version unknown"
    if report["path"] is None and not report["torch_version"]:
        torch = "torch is not installed here"
    settings = report["conf"] or "default settings"
    if report["variable"]:
        settings = f"{report['variable']}={report['conf']}"
    return Text.assemble((settings, "bold"), f" ({torch})")


def _print_one(out: Console, advice: dict[str, Any]) -> None:
    out.print()
    title = Text.assemble((_WORDS[advice["severity"]], _STYLES[advice["severity"]]), " ", (advice["title"], "bold"))
    out.print(title, overflow="fold")
    table = Grid("", "", gap=1)
    table.add_row(Text("Why", style="dim"), advice["why"])
    table.add_row(Text("Do", style="dim"), advice["next_step"])
    table.add_row(Text("From", style="dim"), advice["source"])
    out.print(indented(table))
