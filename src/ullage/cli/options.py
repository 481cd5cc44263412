"""The options that several commands share, and what they turn into."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from enum import StrEnum
from typing import Annotated, Any

import typer

from ullage.errors import UllageError
from ullage.units import parse_size

STANDARD_INPUT = "/dev/stdin"
"""The path under which the system gives standard input, a pipe or a redirected file."""


def standard_input_path(path: str | None) -> str | None:
    """Turn "-" into the path of standard input, and leave others."""
    return STANDARD_INPUT if path == "-" else path


File = Annotated[
    str,
    typer.Argument(metavar="FILE", help="A memory snapshot; - is standard input.", callback=standard_input_path),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON: bytes and microseconds as integers.")]
Top = Annotated[int, typer.Option("--top", min=1, metavar="N", help="Rows of each table.")]
DeviceNumber = Annotated[int | None, typer.Option("--device", min=0, metavar="N", help="One GPU only.")]
Mine = Annotated[
    str | None,
    typer.Option("--mine", metavar="PATTERN", help="Which files are yours: a regular expression."),
]
Debug = Annotated[bool, typer.Option("--debug", help="Show tracebacks.")]

Cap = Annotated[str | None, typer.Option("--cap", metavar="SIZE", help="The most that may be reserved, as in 24GiB.")]


class Severity(StrEnum):
    """How bad a finding or a piece of advice is, from the least."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


FailOn = Annotated[Severity | None, typer.Option("--fail-on", help="Exit with 1 on a finding this severe or worse.")]

_TIME = re.compile(r"(\d+(?:\.\d+)?)\s*(us|µs|ms|s|min)?")
_UNITS_US = {"us": 1, "µs": 1, "ms": 1_000, "s": 1_000_000, "min": 60_000_000, None: 1}


def parse_instant(text: str, option: str = "--at") -> str | int:
    """Turn an instant given on the command line into what `DeviceTrace.event_at` takes.

    Args:
        text: "peak", "reserved_peak", "end", "oom", or a time: 1.5s, 300ms, or a number of microseconds.
        option: The option that gave it.

    Raises:
        UllageError: It is none of these.

    Example:
        >>> parse_instant("peak"), parse_instant("1.5s"), parse_instant("300ms"), parse_instant("1700000000000000")
        ('peak', 1500000, 300000, 1700000000000000)
    """
    if text in ("peak", "reserved_peak", "end", "oom"):
        return text
    match = _TIME.fullmatch(text.strip())
    if match is None:
        raise UllageError(f"{option} {text!r} is no instant: use peak, end, oom, or a time such as 1.5s or 300ms")
    return round(float(match[1]) * _UNITS_US[match[2]]) if match[2] else int(float(match[1]))


def parse_cap(text: str | None) -> int | None:
    """Turn --cap into bytes.

    Raises:
        UllageError: It is no size.
    """
    if text is None:
        return None
    try:
        return parse_size(text)
    except ValueError as error:
        raise UllageError(f"--cap {error}") from None


def exit_on(fail_on: Severity | None, found: Iterable[str]) -> None:
    """End the command with exit code 1 if one of the severities found is as bad as --fail-on, or worse."""
    order = list(Severity)
    if fail_on is not None and any(order.index(Severity(one)) >= order.index(fail_on) for one in found):
        raise typer.Exit(1)


def print_json(value: Any) -> None:
    """Print plain data as JSON on standard output."""
    print(json.dumps(value, indent=1, ensure_ascii=False))
