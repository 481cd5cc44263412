"""Reads what `columns.pack` writes, as `assets/unpack.js` does: in plain steps, and with a browser's numbers alone."""

from __future__ import annotations

import json
import struct
import zlib
from typing import Any

FORMATS = {"u1": "B", "u2": "H", "u4": "I", "f8": "d"}


def unpack(packed: bytes) -> tuple[dict[str, Any], dict[str, list[int]]]:
    """Return the plain data, and the columns by name."""
    raw = zlib.decompress(packed)
    length = int.from_bytes(raw[:4], "little")
    head = json.loads(raw[4 : 4 + length].decode("ascii"))
    offset = 4 + length
    assert offset % 8 == 0
    columns = {}
    for entry in head.pop("columns"):
        num_bytes = entry["length"] * struct.calcsize(FORMATS[entry["type"]])
        columns[entry["name"]] = _column(entry, raw[offset : offset + num_bytes])
        offset += num_bytes
    assert offset == len(raw)
    return head, columns


def _column(entry: dict[str, Any], raw: bytes) -> list[int]:
    length = entry["length"]
    numbers = []
    for i in range(length):
        grouped = raw[i::length]  # the lowest byte of each number lies first
        (stored,) = struct.unpack("<" + FORMATS[entry["type"]], grouped)
        numbers.append(float(stored))
    if entry["order"] == "deltas":
        value, values = 0.0, []
        for coded in numbers:
            value += -(coded + 1) / 2 if coded % 2 else coded / 2
            values.append(value)
    else:
        assert entry["order"] == "plain"
        values = [stored + float(entry["base"]) for stored in numbers]
    return [int(value * float(entry["scale"])) for value in values]
