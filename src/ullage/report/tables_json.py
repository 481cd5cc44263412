"""Tables as JSON columns, written piece by piece: a million events take no more memory than their tables."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, TextIO

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ullage.report.export_tables import Column, Table

_CHUNK = 1 << 16


def write_json(out: TextIO, head: Mapping[str, Any], tables: Mapping[str, Table]) -> None:
    """Write one JSON object, in ASCII: the head's keys, and `tables`, which holds each table's columns by name.

    Args:
        out: Where to.
        head: Plain data.
        tables: What `export_tables` returns.
    """
    out.write("{")
    for key, value in head.items():
        out.write(f"{json.dumps(key)}: {json.dumps(value)},\n")
    out.write('"tables": {')
    for table_index, (name, table) in enumerate(tables.items()):
        out.write(f"{',' if table_index else ''}\n {json.dumps(name)}: {{")
        for column_index, (column_name, column) in enumerate(table.items()):
            out.write(f"{',' if column_index else ''}\n  {json.dumps(column_name)}: [")
            _write_values(out, column)
            out.write("]")
        out.write("}")
    out.write("\n}}\n")


def _write_values(out: TextIO, column: Column) -> None:
    for start in range(0, len(column.values), _CHUNK):
        out.write(", " if start else "")
        out.write(json.dumps(_plain(column, slice(start, start + _CHUNK)))[1:-1])


def _plain(column: Column, rows: slice) -> list[Any]:
    """Return some of a column's values as plain data."""
    if isinstance(column.values, list):
        return column.values[rows]
    values: list[Any] = column.values[rows].tolist()
    if column.words is not None:
        words = (*column.words, None)
        values = [words[max(value, -1)] for value in values]
    if column.is_null is not None:
        for row in np.flatnonzero(column.is_null[rows]).tolist():
            values[row] = None
    return values
