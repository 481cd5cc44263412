"""The wire format: what is written is what protobuf's own library reads, and no number takes a byte too many."""

from __future__ import annotations

import numpy as np
import pytest
from google.protobuf.internal import decoder
from hypothesis import given
from hypothesis import strategies as st
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TrackEvent

from ullage.report.protobuf import constant_cells, field, message_cells, number_cells, packed, varint, varint_cells

INT64 = st.integers(-(2**63), 2**63 - 1)


@given(st.lists(INT64, min_size=1, max_size=20))
def test_a_column_of_numbers_is_their_shortest_encodings_one_after_the_other(numbers: list[int]) -> None:
    column = varint_cells(np.asarray(numbers, dtype=np.int64))
    assert packed([column]) == b"".join(varint(number) for number in numbers)


@pytest.mark.parametrize(
    ("number", "size"), [(0, 1), (127, 1), (128, 2), (2**14 - 1, 2), (2**14, 3), (2**63 - 1, 9), (-1, 10)]
)
def test_a_number_takes_seven_bits_a_byte(number: int, size: int) -> None:
    encoded = varint(number)
    assert len(encoded) == size
    assert decoder._DecodeSignedVarint(encoded, 0) == (number, size)  # type: ignore[attr-defined]


@given(st.lists(INT64, min_size=1, max_size=9), st.data())
def test_messages_with_and_without_a_field_are_read_back(values: list[int], data: st.DataObject) -> None:
    is_there = np.asarray(data.draw(st.lists(st.booleans(), min_size=len(values), max_size=len(values))))
    column = np.asarray(values, dtype=np.int64)
    events = message_cells(
        1,
        [
            constant_cells(field(22, "memory"), len(values)),
            *(part.only_where(is_there) for part in number_cells(30, column)),
        ],
    )
    rest, found = packed(events), []
    while rest:
        assert rest[:1] == b"\x0a"
        size, start = decoder._DecodeVarint(rest, 1)  # type: ignore[attr-defined]
        event = TrackEvent.FromString(rest[start : start + size])
        assert list(event.categories) == ["memory"]
        found.append(event.counter_value if event.HasField("counter_value") else None)
        rest = rest[start + size :]
    assert found == [value if there else None for value, there in zip(values, is_there, strict=True)]


def test_text_that_utf8_cannot_hold_is_written_with_question_marks() -> None:
    assert TrackEvent.FromString(field(23, "a\udc80b")).name == "a?b"


def test_a_long_text_has_a_long_length() -> None:
    assert TrackEvent.FromString(field(23, "x" * 300)).name == "x" * 300
