"""Packs columns of integers for the page: as few bytes as hold them, in an order that deflate likes.

A pack is one deflate stream (zlib) of

    u32 length | JSON of that length, blanks up to a multiple of 8 | column | column | ...

where the JSON lists each column, and a column's bytes are grouped by their place in the number: all the lowest bytes, then
all the next ones. `assets/unpack.js` reads it.
"""

from __future__ import annotations

import json
import zlib
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

_LEVEL = 3  # 6 takes three times as long for 10 % less
_WIDTHS = (("u1", 1 << 8), ("u2", 1 << 16), ("u4", 1 << 32))
_EXACT = 1 << 53  # larger integers are not exact in a browser's numbers
_ALIGN = 512  # most sizes and offsets are multiples of it

DELTAS = "deltas"
PLAIN = "plain"


def pack(head: Mapping[str, Any], columns: Mapping[str, tuple[NDArray[Any], str]]) -> bytes:
    """Pack plain data and columns.

    Args:
        head: What goes into the JSON beside the list of columns.
        columns: By name, integers, and whether to store the differences between neighbours. Magnitudes up to 2**52 are
            exact, and larger ones where they are multiples of 512.

    Returns:
        The deflate stream.
    """
    listed, parts = [], []
    for name, (values, order) in columns.items():
        entry, raw = _column(name, np.asarray(values).astype(np.int64), order)
        listed.append(entry)
        parts.append(raw)
    text = json.dumps({**head, "columns": listed}, ensure_ascii=True, separators=(",", ":")).encode("ascii")
    text += b" " * (-(len(text) + 4) % 8)
    return zlib.compress(b"".join([len(text).to_bytes(4, "little"), text, *parts]), _LEVEL)


def _column(name: str, values: NDArray[np.int64], order: str) -> tuple[dict[str, Any], bytes]:
    scale = _ALIGN if len(values) and not (values % _ALIGN).any() else 1
    scaled = values // scale if scale > 1 else values
    if order == DELTAS:
        scaled = np.diff(scaled, prepend=0)
        if len(scaled) and int(np.abs(scaled).max()) >= _EXACT // 2:
            return _column(name, values, PLAIN)
        # The sign goes into the lowest bit, so that small differences of either sign are small numbers.
        scaled = (scaled << 1) ^ (scaled >> 63)
        base = 0
    else:
        base = int(scaled.min()) if len(scaled) else 0
        scaled = scaled - base
    top = int(scaled.max()) if len(scaled) else 0
    width = next((width for width, limit in _WIDTHS if top < limit), "f8")
    stored = np.clip(scaled, -_EXACT, _EXACT) if width == "f8" else scaled
    raw = np.ascontiguousarray(stored, dtype="<" + width).view(np.uint8).reshape(len(values), int(width[1]))
    entry = {"name": name, "type": width, "length": len(values), "order": order, "base": base, "scale": scale}
    return entry, np.ascontiguousarray(raw.T).tobytes()
