"""Writes snapshots as pickle protocol 4, piece by piece, so that a list of millions of records needs little memory.

The pieces of one list can be kept as patterns and written again with some of their numbers moved on:

    data                       ... 8a 07 <time> ...  6a <reference> ...
    time_positions                       ^                            of each `time_us`
    reference_positions                                ^              of each reference to what this repetition defined
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

PROTO, STOP, FRAME, MARK = b"\x80\x04", b".", b"\x95", b"("
EMPTY_DICT, SETITEMS, EMPTY_LIST, APPENDS = b"}", b"u", b"]", b"e"
NONE, TRUE, FALSE, FLOAT = b"N", b"\x88", b"\x89", b"G"
INT1, INT2, INT4, LONG1 = b"K", b"M", b"J", b"\x8a"
SHORT_TEXT, TEXT = b"\x8c", b"X"
MEMOIZE, GET1, GET4 = b"\x94", b"h", b"j"
TUPLES = {0: b")", 1: b"\x85", 2: b"\x86", 3: b"\x87"}

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Pattern:
    """The bytes of one appended batch and where in them the numbers that change are."""

    data: npt.NDArray[np.uint8]
    time_positions: Integers
    times_us: Integers
    reference_positions: Integers
    references: Integers
    first_index: int  # references count on from here
    num_memoized: int


def width_of(number: int) -> int:
    """Return how many bytes a positive number takes as LONG1, with its sign."""
    return number.bit_length() // 8 + 1


def write_numbers(data: npt.NDArray[np.uint8], positions: Integers, values: Integers, width: int) -> None:
    """Overwrite little-endian numbers of `width` bytes."""
    as_bytes = values.astype("<i8").view(np.uint8).reshape(-1, 8)[:, :width]
    data[positions[:, None] + np.arange(width)] = as_bytes


class SnapshotPickler:
    """Writes dicts, lists, tuples, text and numbers; remembers each object as pickle does, by identity."""

    def __init__(self, file: BinaryIO, latest_time_us: int) -> None:
        """Write to `file`; no `time_us` is above `latest_time_us`, all are written as wide as that one."""
        self.file = file
        self.time_width = width_of(latest_time_us)
        self.num_memoized = 0
        self._memo: dict[int, tuple[int, Any]] = {}
        self._out = bytearray()
        self._times: list[tuple[int, int]] = []
        self._references: list[tuple[int, int]] = []
        self._own_index: int | None = None  # references to indices from here on are noted
        file.write(PROTO)

    def begin_dict(self) -> None:
        """Begin a dict; its keys and values follow, then `end_dict`."""
        self._out += EMPTY_DICT
        self._memoize(object())
        self._out += MARK

    def end_dict(self) -> None:
        """End the dict begun last."""
        self._out += SETITEMS

    def begin_list(self) -> None:
        """Begin a list that grows by `append_batch` and `append_again`."""
        self._out += EMPTY_LIST
        self._memoize(object())

    def begin_list_of_lists(self) -> None:
        """Begin a list that is ended by `end_list`."""
        self.begin_list()
        self._out += MARK

    def end_list(self) -> None:
        """End the list begun by `begin_list_of_lists`."""
        self._out += APPENDS

    def append_batch(self, records: list[dict[str, Any]], own_index: int) -> Pattern:
        """Append records to the list begun last; what was memoized from `own_index` on belongs to this repetition."""
        self._flush()
        self._own_index, self._times, self._references = own_index, [], []
        num_before = self.num_memoized
        self._out += MARK
        for record in records:
            self.save(record)
        self._out += APPENDS
        self._own_index = None
        data = np.frombuffer(bytes(self._out), np.uint8)
        times = np.array(self._times, np.int64).reshape(-1, 2)
        references = np.array(self._references, np.int64).reshape(-1, 2)
        self._flush()
        return Pattern(
            data=data,
            time_positions=times[:, 0],
            times_us=times[:, 1],
            reference_positions=references[:, 0],
            references=references[:, 1],
            first_index=own_index,
            num_memoized=self.num_memoized - num_before,
        )

    def append_again(self, pattern: Pattern, by_us: int, own_index: int) -> None:
        """Append a batch again, later, with references to its own objects counted from `own_index`."""
        data = pattern.data.copy()
        by_index = own_index - pattern.first_index
        write_numbers(data, pattern.time_positions, pattern.times_us + by_us, self.time_width)
        write_numbers(data, pattern.reference_positions, pattern.references + by_index, 4)
        self._write_frame(data.tobytes())
        self.num_memoized += pattern.num_memoized

    def forget(self, ids: Iterable[int]) -> None:
        """Write the objects with these identities out in full when they come next."""
        for identity in ids:
            self._memo.pop(identity, None)

    def finish(self) -> None:
        """End the pickle."""
        self._out += STOP
        self._flush()

    def save(self, value: Any) -> None:
        """Write one value."""
        known = self._memo.get(id(value))
        if known is not None:
            self._refer(known[0])
        elif value is None or value is True or value is False:
            self._out += NONE if value is None else TRUE if value else FALSE
        elif isinstance(value, int):
            self._save_int(value)
        elif isinstance(value, float):
            self._out += FLOAT + struct.pack(">d", value)
        elif isinstance(value, str):
            text = value.encode("utf-8", "surrogatepass")
            is_short = len(text) < 256
            self._out += SHORT_TEXT + bytes([len(text)]) if is_short else TEXT + struct.pack("<I", len(text))
            self._out += text
            self._memoize(value)
        else:
            self._save_container(value)

    def _save_container(self, value: Any) -> None:
        if isinstance(value, dict):
            self._out += EMPTY_DICT
            self._memoize(value)
            self._out += MARK
            for key, item in value.items():
                self.save(key)
                if key == "time_us":
                    self._save_time(item)
                else:
                    self.save(item)
            self._out += SETITEMS
        elif isinstance(value, list):
            self._out += EMPTY_LIST
            self._memoize(value)
            if value:
                self._out += MARK
                for item in value:
                    self.save(item)
                self._out += APPENDS
        elif isinstance(value, tuple) and len(value) in TUPLES:
            for item in value:
                self.save(item)
            self._out += TUPLES[len(value)]
            if value:
                self._memoize(value)
        else:
            raise TypeError(f"a snapshot holds no {type(value).__name__}: {value!r}")

    def _save_int(self, value: int) -> None:
        if 0 <= value < 1 << 8:
            self._out += INT1 + struct.pack("<B", value)
        elif 0 <= value < 1 << 16:
            self._out += INT2 + struct.pack("<H", value)
        elif -(1 << 31) <= value < 1 << 31:
            self._out += INT4 + struct.pack("<i", value)
        else:
            width = width_of(abs(value))
            self._out += LONG1 + bytes([width]) + value.to_bytes(width, "little", signed=True)

    def _save_time(self, time_us: int) -> None:
        self._out += LONG1 + bytes([self.time_width])
        self._times.append((len(self._out), time_us))
        self._out += time_us.to_bytes(self.time_width, "little", signed=True)

    def _refer(self, index: int) -> None:
        if self._own_index is not None and index >= self._own_index:
            self._references.append((len(self._out) + 1, index))
            self._out += GET4 + struct.pack("<I", index)
        elif index < 256:
            self._out += GET1 + bytes([index])
        else:
            self._out += GET4 + struct.pack("<I", index)

    def _memoize(self, value: Any) -> None:
        self._memo[id(value)] = (self.num_memoized, value)  # holding the object keeps its identity its own
        self.num_memoized += 1
        self._out += MEMOIZE

    def _flush(self) -> None:
        if self._out:
            self._write_frame(bytes(self._out))
            self._out.clear()

    def _write_frame(self, data: bytes) -> None:
        self.file.write(FRAME + struct.pack("<Q", len(data)))
        self.file.write(data)
