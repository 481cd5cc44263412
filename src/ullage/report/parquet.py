"""Tables as Parquet files, one each, through pyarrow."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from ullage.errors import UllageError

if TYPE_CHECKING:
    from ullage.report.export_tables import Column, Table


def require_pyarrow() -> None:
    """Say how to install what writes Parquet, where it is missing.

    Raises:
        UllageError: pyarrow is not installed.
    """
    if find_spec("pyarrow") is None:
        raise UllageError("Parquet files are written by pyarrow, which is not installed: pip install 'ullage[fleet]'")


def write_parquet(path: str, table: Table) -> None:
    """Write one table to a file; columns of a few words are dictionary-encoded, and times and indices as differences.

    Args:
        path: The file.
        table: The table.
    """
    import pyarrow as pa
    from pyarrow import parquet

    arrow = pa.table({name: _arrow_column(pa, column) for name, column in table.items()})
    numbers = [name for name in arrow.column_names if pa.types.is_integer(arrow.schema.field(name).type)]
    parquet.write_table(
        arrow,
        path,
        compression="zstd",
        use_dictionary=[name for name in arrow.column_names if name not in numbers],
        column_encoding=dict.fromkeys(numbers, "DELTA_BINARY_PACKED"),
    )


def _arrow_column(pa: Any, column: Column) -> Any:
    if isinstance(column.values, list):
        return pa.array(column.values, pa.string())
    values = pa.array(column.values, mask=column.is_null)
    if column.words is None:
        return values
    return pa.DictionaryArray.from_arrays(values.cast(pa.int32()), pa.array(column.words, pa.string()))
