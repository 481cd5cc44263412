"""Reads the instances of google/minimalloc: buffers with given lifetimes, to be placed below a capacity."""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ullage.errors import ReplayError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

_COLUMNS = ["id", "lower", "upper", "size"]
_LIMIT = 1 << 60
_NUMBER = re.compile(r"-?[0-9]{1,19}")


@dataclass(frozen=True, kw_only=True, eq=False)
class Buffers:
    """Buffers with given lifetimes.

    Attributes:
        sizes: Bytes of each.
        begins: When each begins.
        ends: When each has ended; exclusive.
        names: What each is called; () where they have only their rows.
        capacity_bytes: The height that a plan has to keep to; None: as low as can be.
    """

    sizes: NDArray[np.int64]
    begins: NDArray[np.int64]
    ends: NDArray[np.int64]
    names: tuple[str, ...] = ()
    capacity_bytes: int | None = None


def read_minimalloc(path: str | Path) -> Buffers:
    """Read an instance of google/minimalloc: a CSV file with the columns id, lower, upper, size; upper is exclusive.

    Args:
        path: The file; a capacity can stand in its name, as in `A.1048576.csv`.

    Raises:
        ReplayError: It cannot be read, or a row is malformed; the error names its line.
    """
    try:
        with open(path, encoding="utf-8", newline="") as file:
            names, numbers = _rows(str(path), csv.reader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ReplayError(f"{path}: cannot be read: {error}") from None
    table = np.array(numbers, dtype=np.int64).reshape(-1, 3)
    capacity = re.fullmatch(r".*\.([0-9]{1,18})", Path(path).stem)
    begins, ends, sizes = (np.ascontiguousarray(table[:, k]) for k in range(3))
    return Buffers(
        sizes=sizes,
        begins=begins,
        ends=ends,
        names=names,
        capacity_bytes=int(capacity[1]) if capacity else None,
    )


def _rows(path: str, reader: Iterator[list[str]]) -> tuple[tuple[str, ...], list[tuple[int, int, int]]]:
    heading = [name.strip() for name in next(reader, [])]
    if sorted(heading) != sorted(_COLUMNS):
        raise ReplayError(f"{path}: line 1: expected the columns id,lower,upper,size, found {','.join(heading)[:80]!r}")
    places = [heading.index(name) for name in _COLUMNS]
    names: list[str] = []
    numbers: list[tuple[int, int, int]] = []
    for line, cells in enumerate(reader, 2):
        if not cells:
            continue
        where = f"{path}: line {line}"
        if len(cells) != len(_COLUMNS):
            raise ReplayError(f"{where}: expected 4 values, found {len(cells)}")
        name, *values = (cells[place].strip() for place in places)
        lower, upper, size = (_number(value, column, where) for value, column in zip(values, _COLUMNS[1:], strict=True))
        if lower >= upper:
            raise ReplayError(f"{where}: lower has to be below upper, found {lower} and {upper}")
        if size < 0:
            raise ReplayError(f"{where}: size is negative: {size}")
        names.append(name)
        numbers.append((lower, upper, size))
    if not numbers:
        raise ReplayError(f"{path}: has no buffers")
    return tuple(names), numbers


def _number(text: str, column: str, where: str) -> int:
    if not _NUMBER.fullmatch(text) or abs(int(text)) >= _LIMIT:
        raise ReplayError(f"{where}: {column} is no whole number below 2^60: {text[:40]!r}")
    return int(text)
