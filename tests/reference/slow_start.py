"""Rebuilds what a caching allocator held before the first recorded event, for the reference reconstruction.

Segments come from undoing the events from the last to the first. A block was there at the start if it is active at the
end without an `alloc` in the trace, or if the first event at its address frees it. Everything else was free.
"""

from __future__ import annotations

from typing import Any

from tests.reference.slow_state import (
    ACTIVE_STATES,
    MIN_BLOCK,
    SMALL_LIMIT,
    SMALL_SEGMENT,
    Block,
    Event,
    Kind,
    Segment,
    Settings,
    add_range,
    cut_range,
    snapshot_layout,
    snapshot_segments,
)


def segments_at_start(
    snapshot: dict[str, Any], device: int, events: list[Event], settings: Settings
) -> tuple[list[Segment], dict[int, Kind]]:
    """Undo the segment events from the last to the first.

    Returns the segments before the first event, and the kind of each segment or range that an event adds. A segment
    that is gone by the end has no pool in the snapshot; unless its event names one, it counts as the default pool's.
    """
    present: list[Segment] = []
    for segment in snapshot_segments(snapshot, device):
        pool = tuple(segment.get("segment_pool_id", (0, 0)))
        kind = Kind(segment["stream"], pool, segment["segment_type"] == "small", segment.get("is_expandable", False))
        present.append(Segment(segment["address"], segment["total_size"], kind))
    kinds: dict[int, Kind] = {}
    for index in range(len(events) - 1, -1, -1):
        event = events[index]
        if event["action"] in ("segment_alloc", "segment_map"):
            whole = next((s for s in present if s.address <= event["addr"] < s.end), None)
            kinds[index] = whole.kind if whole else kind_of_lost_range(event, events, present, settings)
            if whole:
                cut_range(present, event["addr"], event["addr"] + event["size"])
        elif event["action"] in ("segment_free", "segment_unmap"):
            add_range(present, event["addr"], event["size"], kind_of_lost_range(event, events, present, settings))
    return present, kinds


def kind_of_lost_range(event: Event, events: list[Event], present: list[Segment], settings: Settings) -> Kind:
    """Return the kind of a segment or range that the snapshot no longer lists, from its event, neighbours and use."""
    start, end = event["addr"], event["addr"] + event["size"]
    pool = tuple(event.get("pool_id", (0, 0)))
    if event["action"] in ("segment_alloc", "segment_free"):
        return Kind(event["stream"], pool, event["size"] == SMALL_SEGMENT, False)
    for segment in present:
        touches = segment.end == start or segment.address == end
        if touches and segment.kind.is_expandable and segment.kind.stream == event["stream"]:
            return segment.kind
    sizes = [e["size"] for e in events if e["action"] in ("alloc", "free_completed") and start <= e["addr"] < end]
    is_small = settings.round_size(sizes[0]) <= SMALL_LIMIT if sizes else event["size"] == SMALL_SEGMENT
    return Kind(event["stream"], pool, is_small, True)


def blocks_at_start(
    snapshot: dict[str, Any], device: int, events: list[Event], settings: Settings
) -> tuple[list[Block], set[int]]:
    """Return the blocks that were live or pending before the first event, and the addresses whose tail is not known."""
    blocks: dict[int, Block] = {}
    seen: set[int] = set()
    born: set[int] = set()  # live because of an alloc in the trace
    for event in events:
        if event["action"] not in ("alloc", "free_requested", "free_completed"):
            continue
        address, action = event["addr"], event["action"]
        if action == "alloc":
            born.add(address)
        elif address not in seen:
            rounded = settings.round_size(event["size"])
            blocks[address] = Block(-1, address, rounded, event["size"], event["stream"])
            blocks[address].pending_at_start = action == "free_completed"
        if action == "free_completed":
            born.discard(address)
        seen.add(address)
    guessed = set(blocks)
    layout = snapshot_layout(snapshot, device)
    for segment in snapshot_segments(snapshot, device):
        for (address, size, state), listed in zip(layout[segment["address"]][1], segment["blocks"], strict=True):
            if state not in ACTIVE_STATES or address in born:
                continue
            requested = listed.get("requested_size", size)
            pending = not ACTIVE_STATES[state] and address not in blocks
            blocks[address] = Block(-1, address, size, requested, segment["stream"], pending_at_start=pending)
            guessed.discard(address)
    return sorted(blocks.values(), key=lambda block: block.address), guessed


def extend_tails(
    segment: Segment, blocks: list[Block], guessed: set[int], events: list[Event], settings: Settings
) -> list[tuple[int, int]]:
    """Give a large segment's initial blocks their unsplit tails.

    Returns the address and the greatest possible tail of those that nothing in the trace decides; they get none.

    A free run of at most 1 MiB cannot exist there, so such a gap is the tail of the block before it. In front of a
    greater gap, the first allocation from that gap starts where the block ends.
    """
    undetermined = []
    gap_ends = [block.address for block in blocks[1:]] + [segment.end]
    for block, gap_end in zip(blocks, gap_ends[: len(blocks)], strict=True):
        gap = gap_end - block.end
        if block.address not in guessed or gap <= 0:
            continue
        if gap <= SMALL_LIMIT or block.size >= settings.max_split_size:
            block.size += gap
            continue
        for event in events:
            if event["action"] == "free_completed" and event["addr"] == block.address:
                undetermined.append((block.address, min(SMALL_LIMIT, gap - SMALL_LIMIT - MIN_BLOCK)))
                break
            if event["action"] == "alloc" and block.end <= event["addr"] < gap_end:
                block.size += event["addr"] - block.end
                break
    return undetermined
