"""Segments, blocks and settings of a caching allocator, as slow plain objects for the reference reconstruction.

One segment, the words used below, and what the counters see::

    segment address                                              segment address + total_size
    |<-- live block ------------------>|<-- free run ---->|<-- pending block ->|<- free ->|
    |<-- requested -->|<- rounding ... tail ->|

    requested  the bytes asked for, of live and pending blocks   allocated  block sizes, of live blocks
    active     block sizes, of live and pending blocks           reserved   segment (or mapped) sizes

A block is live from `alloc` to `free_requested`, pending until `free_completed`, and part of a maximal free run after.
The tail is what the allocator did not split off: in large pools of ordinary segments a remainder of at most 1 MiB.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

MIB = 1 << 20
MIN_BLOCK, SMALL_LIMIT, SMALL_SEGMENT = 512, MIB, 2 * MIB
ACTIVE_STATES = {"active_allocated": True, "active_pending_free": False, "active_awaiting_free": False}
ADDRESS_SPACE_END = 1 << 62  # stands in for the unknown end of an expandable segment's reservation

Event = dict[str, Any]


class Kind(NamedTuple):
    """What decides which requests a segment may serve."""

    stream: int
    pool: tuple[int, int]
    is_small: bool
    is_expandable: bool


class Counters(NamedTuple):
    """The allocator's four totals, in bytes."""

    requested: int
    allocated: int
    active: int
    reserved: int


@dataclass
class Block:
    """One lifetime; event indices are -1 for what happened before the first event or not at all."""

    birth_event: int
    address: int
    size: int
    requested_size: int
    stream: int
    segment_address: int = -1
    free_requested_event: int = -1
    death_event: int = -1
    pending_at_start: bool = False
    is_pending: bool = False

    @property
    def end(self) -> int:
        return self.address + self.size


@dataclass
class Segment:
    """One segment (or contiguous mapped range) with its free runs, start address -> size."""

    address: int
    size: int
    kind: Kind
    free: dict[int, int] = field(default_factory=dict)

    @property
    def end(self) -> int:
        return self.address + self.size

    def release(self, start: int, size: int) -> None:
        """Add a free run and merge it with its neighbours."""
        size += self.free.pop(start + size, 0)
        for before, before_size in self.free.items():
            if before + before_size == start:
                self.free[before] += size
                return
        self.free[start] = size

    def take(self, start: int, end: int) -> bool:
        """Cut [start, end) out of the free runs; False if some of it was not free."""
        num_bytes_cut = 0
        for run, size in list(self.free.items()):
            low, high = max(run, start), min(run + size, end)
            if low < high:
                del self.free[run]
                num_bytes_cut += high - low
                if run < low:
                    self.free[run] = low - run
                if high < run + size:
                    self.free[high] = run + size - high
        return num_bytes_cut == end - start


class Settings:
    """The settings that decide sizes, splits and best fit."""

    def __init__(self, settings: dict[str, Any]) -> None:
        text = settings.get("PYTORCH_CUDA_ALLOC_CONF") or ""
        pairs = dict(part.split(":", 1) for part in text.replace(" ", "").split(",") if part.count(":") == 1)
        max_split = settings.get("max_split_size", -1)
        self.max_split_size = max_split if max_split >= 0 else ADDRESS_SPACE_END
        self.max_non_split_rounding = int(pairs.get("max_non_split_rounding_mb", 20)) * MIB
        self.expandable = bool(settings.get("expandable_segments", False))
        divisions = settings.get("roundup_power2_divisions") or {}
        self.divisions = [int(divisions.get(str(1 << bucket), 0)) for bucket in range(16)]

    def round_size(self, size: int) -> int:
        """Return the block size that serves a request of `size` bytes."""
        if size < MIN_BLOCK:
            return MIN_BLOCK
        power = size.bit_length() - 1
        divisions = self.divisions[min(max(power - 20, 0), 15)]
        if divisions <= 1 or size <= MIN_BLOCK * divisions:
            return -(-size // MIN_BLOCK) * MIN_BLOCK
        if size == 1 << power:
            return size
        step = (1 << power) >> (divisions.bit_length() - 1)
        return -(-size // step) * step if step else 2 << power

    def splits(self, kind: Kind, rounded: int, remainder: int) -> bool:
        """Say whether the rest of a free run is split off after `rounded` bytes."""
        if kind.is_small or self.expandable:
            return remainder >= MIN_BLOCK
        return rounded < self.max_split_size and remainder > SMALL_LIMIT


def add_range(segments: list[Segment], start: int, size: int, kind: Kind) -> Segment:
    """Add a segment; a mapped range joins the expandable ranges that it touches. The new part is free."""
    added = Segment(start, size, kind, {start: size})
    if kind.is_expandable:
        for other in [s for s in segments if s.kind == kind and (s.end == start or s.address == added.end)]:
            segments.remove(other)
            added = Segment(min(added.address, other.address), added.size + other.size, kind, added.free)
            for run, run_size in other.free.items():
                added.release(run, run_size)
    segments.append(added)
    return added


def cut_range(segments: list[Segment], start: int, end: int) -> bool:
    """Remove [start, end) from the segment that holds it; False if some of it was in use."""
    whole = next(s for s in segments if s.address <= start < s.end)
    was_free = whole.take(start, end)
    segments.remove(whole)
    for low, high in ((whole.address, start), (end, whole.end)):
        if low < high:
            free = {run: size for run, size in whole.free.items() if low <= run < high}
            segments.append(Segment(low, high - low, whole.kind, free))
    return was_free


def snapshot_segments(snapshot: dict[str, Any], device: int) -> list[dict[str, Any]]:
    """Return a device's segments as the snapshot lists them."""
    return [segment for segment in snapshot["segments"] if segment.get("device", 0) == device]


def snapshot_layout(snapshot: dict[str, Any], device: int) -> dict[int, tuple[int, list[tuple[int, int, str]]]]:
    """Return the segments in the form of `Reference.final_layout`."""
    layout = {}
    for segment in snapshot_segments(snapshot, device):
        address, blocks = segment["address"], []
        for block in segment["blocks"]:
            state = "active_pending_free" if block["state"] == "active_awaiting_free" else block["state"]
            blocks.append((block.get("address", address), block["size"], state))
            address = blocks[-1][0] + block["size"]
        layout[segment["address"]] = (segment["total_size"], blocks)
    return layout
