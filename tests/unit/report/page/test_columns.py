"""What is packed comes back to the last bit, in the numbers that a browser has."""

from __future__ import annotations

import json
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.report.page.unpacking import unpack
from ullage.report.page.columns import DELTAS, PLAIN, pack

LIMIT = 1 << 52
ORDERS = (DELTAS, PLAIN)


def roundtrip(values: list[int], order: str) -> list[int]:
    _, columns = unpack(pack({}, {"column": (np.asarray(values, dtype=np.int64), order)}))
    return columns["column"]


def width_of(values: list[int], order: str) -> str:
    raw = zlib.decompress(pack({}, {"column": (np.asarray(values, dtype=np.int64), order)}))
    (entry,) = json.loads(raw[4 : 4 + int.from_bytes(raw[:4], "little")])["columns"]
    return str(entry["type"])


numbers = st.one_of(
    st.integers(-LIMIT, LIMIT),
    st.integers(-300, 300),
    st.integers(-(1 << 33), 1 << 33),
    st.integers(-LIMIT // 512, LIMIT // 512).map(lambda value: value * 512),
)


@given(st.lists(numbers), st.sampled_from(ORDERS))
def test_any_integers_come_back(values: list[int], order: str) -> None:
    assert roundtrip(values, order) == values


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(
    "values",
    [
        [],
        [0],
        [-1],
        [512, 0, 1 << 20, 512 * 7],
        [-512, -1024, 1 << 51],
        [255, 256, 65535, 65536, (1 << 32) - 1, 1 << 32],
        [0, (1 << 32) + 1, 0, -(1 << 32) - 1],
        [-LIMIT, LIMIT, -LIMIT, LIMIT - 1],
        [LIMIT - 1, -LIMIT + 1],
        [1 << 59, (1 << 59) - 512, 0],  # sizes as large as a file may hold: multiples of 512
    ],
)
def test_the_edges_come_back(values: list[int], order: str) -> None:
    assert roundtrip(values, order) == values


@pytest.mark.parametrize("dtype", ["u1", "i4", "i8", bool])
def test_any_type_of_integer_is_taken(dtype: str | type) -> None:
    values = np.asarray([1, 0, 1, 1], dtype=dtype)
    for order in ORDERS:
        assert unpack(pack({}, {"column": (values, order)}))[1]["column"] == [1, 0, 1, 1]


def test_columns_and_plain_data_lie_side_by_side() -> None:
    head = {"name": "训练 \ud800 </script>", "sizes": [1, None], "columns": "replaced"}
    columns = {
        "a": (np.asarray([3, 1, 2]), PLAIN),
        "none": (np.empty(0, np.int64), DELTAS),
        "b": (np.asarray([-1, 70_000, 1 << 40, 7]), DELTAS),
        "c": (np.asarray([9]), PLAIN),
    }
    plain, unpacked = unpack(pack(head, columns))
    assert plain == {"name": "训练 \ud800 </script>", "sizes": [1, None]}
    assert unpacked == {name: values.tolist() for name, (values, _) in columns.items()}
    assert list(unpacked) == ["a", "none", "b", "c"]


@pytest.mark.parametrize(
    ("values", "order", "width"),
    [
        ([1000, 1255], PLAIN, "u1"),
        ([1000, 1256], PLAIN, "u2"),
        ([512 * 1000, 512 * 1255], PLAIN, "u1"),
        ([100, 200, 327], DELTAS, "u1"),
        ([100, 228], DELTAS, "u2"),
        ([0, 1 + (1 << 16)], PLAIN, "u4"),
        ([0, 1 + (1 << 32)], PLAIN, "f8"),
    ],
)
def test_a_column_takes_the_fewest_bytes_that_hold_it(values: list[int], order: str, width: str) -> None:
    assert width_of(values, order) == width


def test_differences_too_large_for_a_browser_are_not_taken() -> None:
    raw = zlib.decompress(pack({}, {"column": (np.asarray([-LIMIT + 1, LIMIT - 1]), DELTAS)}))
    assert b'"order":"plain"' in raw
