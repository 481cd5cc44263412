"""Protocol buffers' wire format: single messages, and many alike at once as NumPy columns.

Many messages of one form are a matrix of bytes, a column for each message, and a mask of those that are used::

    tag      0A  0A  ..     one row for each place in a message,
    length   07  08         so that what is done to a place is done to a run of memory
    tag      08  08
    varint   D2  80
             09  80
             --  01         -- is a byte that this message does not use

The used bytes, read column by column, are the messages one after the other.

Source: Encoding, in Protocol Buffers' documentation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

_VARINT, _BYTES = 0, 2  # wire types


def varint(value: int) -> bytes:
    """Encode a number in the fewest bytes, seven bits each, the lowest first; a negative one as its 64 bits.

    Example:
        >>> varint(1).hex(), varint(300).hex(), len(varint(-1))
        ('01', 'ac02', 10)
    """
    rest = value & 0xFFFF_FFFF_FFFF_FFFF
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def field(number: int, value: int | str | bytes) -> bytes:
    """Encode one field: a number, text, or a message (bytes).

    Example:
        >>> field(1, 150).hex(), field(2, "testing").hex()
        ('089601', '120774657374696e67')
    """
    if isinstance(value, int):
        return varint(number << 3 | _VARINT) + varint(value)
    content = value.encode("utf-8", errors="replace") if isinstance(value, str) else value
    return varint(number << 3 | _BYTES) + varint(len(content)) + content


@dataclass(frozen=True, kw_only=True)
class Cells:
    """A part of many messages.

    Attributes:
        data: Its bytes, a column for each message.
        is_used: Which of them there are.
    """

    data: NDArray[np.uint8]
    is_used: NDArray[np.bool_]

    def only_where(self, is_there: NDArray[np.bool_]) -> Cells:
        """Return the same part, left out of some messages."""
        return Cells(data=self.data, is_used=self.is_used & is_there)


def packed(parts: Sequence[Cells]) -> bytes:
    """Return the messages that consist of some parts, one after the other."""
    data = np.concatenate([part.data for part in parts])
    is_used = np.concatenate([part.is_used for part in parts])
    messages: NDArray[np.uint8] = np.ascontiguousarray(data.T)[np.ascontiguousarray(is_used.T)]
    return messages.tobytes()


def constant_cells(content: bytes, num_messages: int) -> Cells:
    """Return the same bytes for every message."""
    shape = (len(content), num_messages)
    return Cells(
        data=np.broadcast_to(np.frombuffer(content, np.uint8)[:, None], shape),
        is_used=np.broadcast_to(np.True_, shape),
    )


def varint_cells(values: NDArray[np.int64]) -> Cells:
    """Encode a number of each message in the fewest bytes; negative ones as their 64 bits.

    Example:
        >>> packed([varint_cells(np.asarray([1, 300]))]).hex()
        '01ac02'
    """
    rest = np.ascontiguousarray(values, dtype=np.int64).view(np.uint64)
    width = max(-(-int(rest.max(initial=0)).bit_length() // 7), 1)
    data = np.empty((width, len(rest)), np.uint8)
    is_used = np.ones((width, len(rest)), np.bool_)
    for place in range(width):
        data[place] = rest  # its lowest eight bits, of which the highest is replaced below
        rest = rest >> np.uint64(7)
        if place + 1 < width:
            np.not_equal(rest, 0, out=is_used[place + 1])
    data &= 0x7F
    data[:-1] |= is_used[1:].view(np.uint8) << 7
    return Cells(data=data, is_used=is_used)


def number_cells(number: int, values: NDArray[np.int64]) -> list[Cells]:
    """Encode a field that is a number."""
    return [constant_cells(varint(number << 3 | _VARINT), len(values)), varint_cells(values)]


def message_cells(number: int, parts: Sequence[Cells]) -> list[Cells]:
    """Encode a field that is a message made of parts."""
    length = np.zeros(parts[0].data.shape[1], np.int64)
    for part in parts:
        length += part.is_used.sum(axis=0)
    return [constant_cells(varint(number << 3 | _BYTES), len(length)), varint_cells(length), *parts]
