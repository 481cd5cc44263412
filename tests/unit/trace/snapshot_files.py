"""Ways to write one small snapshot as a file: pickles by hand, compressed files, and files that must be refused."""

from __future__ import annotations

import gzip
import lzma
import struct
import sys
from collections.abc import Callable
from typing import Any

import ullage
from tests.unit.snapshot_builder import MIB, SnapshotBuilder

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

PACKERS: dict[str, Callable[[bytes], bytes]] = {"gz": gzip.compress, "xz": lzma.compress, "zst": zstd.compress}

COLUMNS = (
    *("event_action", "event_address", "event_size", "event_stream", "event_time", "event_site", "event_pool"),
    *("segment_device", "segment_address", "segment_total_size", "segment_stream", "segment_pool_size", "segment_pool"),
    *("block_address", "block_size", "block_requested_size", "block_state", "block_site"),
    *("annotation_name", "annotation_stage", "annotation_device", "annotation_time", "site_starts", "site_frames"),
)


def small_snapshot() -> SnapshotBuilder:
    """Return a recording with every kind of field: stacks, streams, a private pool, an annotation, a pending block."""
    one = SnapshotBuilder()
    one.alloc(3 * MIB, "train.py:3 step < train.py:9 main")
    waits = one.alloc(700, "train.py:4 step < train.py:9 main", stream=7)
    one.annotate("ProfilerStep#1")
    one.free(one.alloc(5 * MIB, pool=(0, 1)))
    one.request_free(waits)
    return one


def contents(trace: ullage.Trace) -> dict[str, Any]:
    """Return everything that the reader put into the tables, as plain data."""
    t = trace.tables
    out = {name: getattr(t, name).tolist() for name in COLUMNS}
    out["frames"] = [t.frame(i) for i in range(t.num_frames)]
    return out | {"settings": trace.settings, "pools": t.pools, "devices": t.devices}


class JitPickler:
    """Writes what `torch::jit::Pickler` writes: protocol 2, BINPUT after each string and container, long integers."""

    def __init__(self) -> None:
        self._num_memos = 0

    def dumps(self, value: Any) -> bytes:
        return b"\x80\x02" + self._encode(value) + b"."

    def _memo(self) -> bytes:
        number, self._num_memos = self._num_memos, self._num_memos + 1
        return b"q" + bytes([number]) if number < 256 else b"r" + struct.pack("<I", number)

    def _encode(self, value: Any) -> bytes:
        if isinstance(value, bool):
            return b"\x88" if value else b"\x89"
        if isinstance(value, int):
            fits = -(1 << 31) <= value < 1 << 31
            return b"J" + struct.pack("<i", value) if fits else b"\x8a\x08" + struct.pack("<q", value)
        if isinstance(value, float):
            return b"G" + struct.pack(">d", value)
        if isinstance(value, str):
            encoded = value.encode()
            return b"X" + struct.pack("<I", len(encoded)) + encoded + self._memo()
        if isinstance(value, tuple):
            return b"(" + b"".join(map(self._encode, value)) + b"t" + self._memo()
        opening, closing = (b"}", b"u") if isinstance(value, dict) else (b"]", b"e")
        items = [part for pair in value.items() for part in pair] if isinstance(value, dict) else value
        return opening + self._memo() + b"(" + b"".join(map(self._encode, items)) + closing
