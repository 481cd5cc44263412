"""`ullage export` for people: what was written, and what opens it."""

from __future__ import annotations

from typing import TYPE_CHECKING, TextIO

from ullage.units import format_bytes, plural

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ullage.report.export import Written

_NOUNS = {"perfetto": "packet", "parquet": "row", "flamegraph": "stack"}
_OPENED_WITH = {
    "perfetto": "open it at https://ui.perfetto.dev",
    "parquet": "read it with DuckDB, Polars or pandas",
    "flamegraph": "open it at https://www.speedscope.app, or: flamegraph.pl --countname bytes",
}


def print_written(written: Sequence[Written], out: TextIO) -> None:
    """Print a line for each file.

    Args:
        written: What `write_outputs` returns.
        out: Where to.
    """
    for one in written:
        what = f"{format_bytes(one.bytes)}, {plural(one.rows, _NOUNS[one.format])}"
        print(f"{one.path}: {what}; {_OPENED_WITH[one.format]}", file=out)
