"""Rebuilds a caching allocator's history from a memory snapshot, slowly and plainly, to check the fast implementation.

The events say where each block went and when it was freed; the rules of best fit say, independently, where it should
have gone. `slow_state` defines the words; `slow_start` finds what was there before the first event.
"""

from __future__ import annotations

import pickle
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from tests.reference.slow_start import blocks_at_start, extend_tails, segments_at_start
from tests.reference.slow_state import (
    ADDRESS_SPACE_END,
    SMALL_LIMIT,
    Block,
    Counters,
    Event,
    Kind,
    Segment,
    Settings,
    add_range,
    cut_range,
    snapshot_layout,
)


class AddressCheck(NamedTuple):
    """Where the rules put an allocation (None: they find no place) and where it was."""

    event: int
    chosen: int | None
    recorded: int
    needed_segment: bool

    @property
    def matches(self) -> bool:
        return self.chosen == self.recorded


@dataclass
class Reference:
    """The history of one device."""

    history: str
    blocks: list[Block]
    initial: Counters
    counters: list[Counters]
    allocs: list[AddressCheck]
    final_layout: dict[int, tuple[int, list[tuple[int, int, str]]]]
    num_device_alloc: int
    num_device_free: int
    num_ooms: int
    conflicts: list[tuple[int, str]]
    undetermined_tails: list[tuple[int, int]]  # (address, greatest possible tail) of initial blocks freed in the trace

    @property
    def peak(self) -> dict[str, int]:
        columns = zip(self.initial, *self.counters, strict=True)
        return dict(zip(Counters._fields, map(max, columns), strict=True))

    @property
    def end(self) -> dict[str, int]:
        return (self.counters[-1] if self.counters else self.initial)._asdict()

    @property
    def address_matches(self) -> int:
        return sum(check.matches for check in self.allocs)


class Replay:
    """The allocator's state while the events are applied one after another."""

    def __init__(self, settings: Settings, segments: list[Segment], kinds: dict[int, Kind]) -> None:
        self.settings, self.segments, self.kinds = settings, segments, kinds
        self.live: dict[int, Block] = {}
        self.totals = dict.fromkeys(Counters._fields, 0)
        self.blocks: list[Block] = []
        self.allocs: list[AddressCheck] = []
        self.conflicts: list[tuple[int, str]] = []
        self.before_segment: dict[int, int | None] = {}  # alloc event -> free run found before its segment was added

    def segment_at(self, address: int) -> Segment | None:
        return next((s for s in self.segments if s.address <= address < s.end), None)

    def start(self, blocks: list[Block]) -> None:
        """Begin with these blocks live and everything else in the segments free."""
        for segment in self.segments:
            segment.free = {segment.address: segment.size}
            self.totals["reserved"] += segment.size
        for block in blocks:
            self.place(block)

    def place(self, block: Block) -> None:
        """Take a block out of the free runs and count it."""
        segment = self.segment_at(block.address)
        if segment is None or not segment.take(block.address, block.end):
            self.conflicts.append((block.birth_event, f"{block.size} bytes at {block.address:#x} were not free"))
        block.segment_address = segment.address if segment else -1
        block.is_pending = block.pending_at_start
        self.live[block.address] = block
        self.blocks.append(block)
        self.totals["requested"] += block.requested_size
        self.totals["active"] += block.size
        self.totals["allocated"] += 0 if block.is_pending else block.size

    def best_fit(self, rounded: int, kind: Kind) -> int | None:
        """Return the free run that serves a request; `kind` gives its stream and pool."""
        settings, is_small = self.settings, rounded <= SMALL_LIMIT
        runs = sorted(
            (size, start, segment)
            for segment in self.segments
            if (segment.kind.stream, segment.kind.pool, segment.kind.is_small) == (kind.stream, kind.pool, is_small)
            for start, size in segment.free.items()
            if size >= rounded
        )
        if not runs:
            return None
        at = 0
        if runs[0][2].kind.is_expandable and not settings.expandable:
            at = next((i for i, run in enumerate(runs) if i and not run[2].kind.is_expandable), len(runs))
        elif settings.expandable:
            room = [size + self.unmapped_after(segment, start + size) for size, start, segment in runs]
            while at + 1 < len(runs) and runs[at][2].kind.is_expandable and room[at + 1] < room[at]:
                at += 1
        if at == len(runs):
            return None
        size, start, _ = runs[at]
        limit = settings.max_split_size
        too_big = size >= limit if rounded < limit else size >= rounded + settings.max_non_split_rounding
        return None if too_big else start

    def unmapped_after(self, segment: Segment, address: int) -> int:
        """Return the size of the unmapped range at `address`, 0 if it is mapped."""
        if not segment.kind.is_expandable or address != segment.end:
            return 0
        later = [s.address for s in self.segments if s.kind == segment.kind and s.address > address]
        return min(later, default=ADDRESS_SPACE_END) - address

    def note_own_segment(self, events: list[Event], index: int) -> None:
        """Search for the request that the new segment at `index` serves, in the state before that segment."""
        target = index
        while target < len(events) and events[target]["action"] in ("segment_alloc", "segment_map"):
            target += 1
        if target == len(events) or events[target]["action"] != "alloc" or target in self.before_segment:
            return
        added, request = events[index], events[target]
        same_address = added["action"] == "segment_map" or added["addr"] == request["addr"]
        if same_address and added["stream"] == request["stream"]:
            found = self.best_fit(self.settings.round_size(request["size"]), self.kinds[index])
            self.before_segment[target] = found

    def alloc(self, index: int, event: Event) -> None:
        address, rounded = event["addr"], self.settings.round_size(event["size"])
        segment = self.segment_at(address)
        if segment is None:
            self.conflicts.append((index, f"no segment at {address:#x}"))
            return
        kind = segment.kind._replace(stream=event["stream"])
        needed_segment = index in self.before_segment
        run = next((start for start, size in segment.free.items() if start <= address < start + size), None)
        chosen = self.best_fit(rounded, kind)
        if needed_segment:
            found = self.before_segment[index]
            chosen = run if found is None else found
        self.allocs.append(AddressCheck(index, chosen, address, needed_segment))
        available = run + segment.free[run] - address if run is not None else 0
        splits = self.settings.splits(segment.kind, rounded, available - rounded)
        size = rounded if splits else max(available, rounded)
        self.place(Block(index, address, size, event["size"], event["stream"]))

    def free(self, index: int, event: Event) -> None:
        block = self.live.get(event["addr"])
        if block is None:
            self.conflicts.append((index, f"{event['action']} of no block at {event['addr']:#x}"))
        elif event["action"] == "free_requested":
            block.free_requested_event, block.is_pending = index, True
            self.totals["allocated"] -= block.size
        else:
            block.death_event = index
            self.totals["active"] -= block.size
            self.totals["requested"] -= block.requested_size
            segment = self.segment_at(block.address)
            assert segment is not None
            segment.release(block.address, block.size)
            del self.live[block.address]

    def apply(self, events: list[Event], index: int) -> Counters:
        """Apply one event and return the counters after it."""
        event, action = events[index], events[index]["action"]
        if action == "alloc":
            self.alloc(index, event)
        elif action in ("free_requested", "free_completed"):
            self.free(index, event)
        elif action in ("segment_alloc", "segment_map"):
            self.note_own_segment(events, index)
            add_range(self.segments, event["addr"], event["size"], self.kinds[index])
            self.totals["reserved"] += event["size"]
        elif action in ("segment_free", "segment_unmap"):
            if not cut_range(self.segments, event["addr"], event["addr"] + event["size"]):
                self.conflicts.append((index, f"{action} of a range in use at {event['addr']:#x}"))
            self.totals["reserved"] -= event["size"]
        return Counters(**self.totals)

    def layout(self) -> dict[int, tuple[int, list[tuple[int, int, str]]]]:
        """Return all segments with their blocks and free runs, as `Reference.final_layout`."""
        layout = {}
        for segment in sorted(self.segments, key=lambda s: s.address):
            parts = [(start, size, "inactive") for start, size in segment.free.items()]
            for block in self.live.values():
                if segment.address <= block.address < segment.end:
                    state = "active_pending_free" if block.is_pending else "active_allocated"
                    parts.append((block.address, block.size, state))
            layout[segment.address] = (segment.size, sorted(parts))
        return layout


def reconstruct(snapshot: dict[str, Any], device: int) -> Reference:
    """Rebuild one device's history from its events and its final segments."""
    events: list[Event] = snapshot["device_traces"][device]
    settings = Settings(snapshot.get("allocator_settings") or {})
    segments, kinds = segments_at_start(snapshot, device, events, settings)
    initial, guessed = blocks_at_start(snapshot, device, events, settings)
    undetermined: list[tuple[int, int]] = []
    for segment in segments:
        if not segment.kind.is_small and not segment.kind.is_expandable:
            inside = [block for block in initial if segment.address <= block.address < segment.end]
            undetermined += extend_tails(segment, inside, guessed, events, settings)
    replay = Replay(settings, segments, kinds)
    is_partial = bool(segments or initial)
    replay.start(initial)
    at_start = Counters(**replay.totals)
    counters = [replay.apply(events, index) for index in range(len(events))]
    actions = [event["action"] for event in events]
    return Reference(
        history="partial" if is_partial else "complete",
        blocks=replay.blocks,
        initial=at_start,
        counters=counters,
        allocs=replay.allocs,
        final_layout=replay.layout(),
        num_device_alloc=actions.count("segment_alloc") + actions.count("segment_map"),
        num_device_free=actions.count("segment_free") + actions.count("segment_unmap"),
        num_ooms=actions.count("oom"),
        conflicts=replay.conflicts,
        undetermined_tails=undetermined,
    )


def main(paths: list[str]) -> None:
    """Print, for each recording and device with events, how much of it the rules reproduce, and the peaks."""
    for path in paths:
        snapshot = pickle.loads(Path(path).read_bytes())
        for device, events in enumerate(snapshot["device_traces"]):
            if not events:
                continue
            result = reconstruct(snapshot, device)
            wanted = snapshot_layout(snapshot, device)
            num_same = sum(result.final_layout.get(address) == segment for address, segment in wanted.items())
            print(
                f"{Path(path).name} device {device}: {result.history}, {len(events)} events,"
                f" addresses {result.address_matches}/{len(result.allocs)},"
                f" final segments {num_same}/{len(wanted)} (rebuilt {len(result.final_layout)}),"
                f" conflicts {len(result.conflicts)}, undetermined tails {len(result.undetermined_tails)},"
                f" driver calls +{result.num_device_alloc} -{result.num_device_free}, ooms {result.num_ooms}\n"
                f"    initial {tuple(result.initial)}\n    peak    {tuple(result.peak.values())}\n"
                f"    end     {tuple(result.end.values())}"
            )


if __name__ == "__main__":
    main(sys.argv[1:])
