"""Makes a recording of millions of events by repeating a real one.

The source must begin with no memory held. Between two repetitions everything that is still live is freed and every
segment goes back to the driver, so the next repetition begins, as the first did, with nothing; the result is one
consistent history. Times move on by one period a repetition. The last repetition ends as the source does, so the
source's `segments` are the result's.

    python -m benchmarks.tile SOURCE OUTPUT --events 1000000

The output is written as torch's own dump would be: protocol 4, an `alloc` and its `segment_alloc` sharing one list of
frames, as do a block's two frees, and each frame of code one dict for all lists. Repetitions get lists of their own, as
contexts recorded later would. Only one repetition is ever in memory, as bytes in which a number is patched here and
there:

    repetition 1      strings and frames are written out      (defines them)
    repetition 2      refers to them                          (the pattern for all that follow)
    repetition 3...   repetition 2 with times and references to its own lists moved on
"""

from __future__ import annotations

import argparse
import gzip
import lzma
import pickle
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, BinaryIO

from benchmarks.snapshot_pickler import Pattern, SnapshotPickler

Event = dict[str, Any]

BATCH_LENGTH = 1000  # pickle appends at most so many items at once
BLOCK_ACTIONS = ("alloc", "free_requested", "free_completed")
PAUSE_US = 1000  # between two repetitions
OPENERS: dict[str, Callable[[Path, str], Any]] = {".xz": lzma.open, ".gz": gzip.open}


def read_recording(path: Path) -> dict[str, Any]:
    """Load a recording of our own; this runs what the pickle says, so never use it on a file of unknown origin."""
    with OPENERS.get(path.suffix, Path.open)(path, "rb") as file:
        snapshot: dict[str, Any] = pickle.load(file)
    return snapshot


def recorded_device(snapshot: dict[str, Any]) -> int:
    """Return the only device that has events."""
    devices = [device for device, events in enumerate(snapshot["device_traces"]) if events]
    if len(devices) != 1:
        raise ValueError(f"a recording to tile has events on one device, this one on {len(devices)}")
    return devices[0]


def live_at_end(events: list[Event]) -> dict[int, Event]:
    """Return the last event, `alloc` or `free_requested`, of each block that is still held, by address."""
    live: dict[int, Event] = {}
    for index, event in enumerate(events):
        if event["action"] not in BLOCK_ACTIONS:
            continue
        action, address = event["action"], event["addr"]
        if action == "alloc":
            live[address] = event
        else:
            if address not in live:
                raise ValueError(f"event {index} frees {address:#x}, held before the recording began: cannot be tiled")
            live[address] = event
            if action == "free_completed":
                del live[address]
    return live


def closing_events(events: list[Event], segments: list[dict[str, Any]]) -> list[Event]:
    """Return the events that free what `events` leave live and give `segments` back to the driver."""
    example, time_us = events[-1], events[-1].get("time_us")
    closing: list[Event] = []

    def add(**fields: Any) -> None:
        event = example | fields
        if time_us is not None:
            event["time_us"] = time_us + len(closing) + 1
        closing.append(event)

    for address, event in live_at_end(events).items():
        block = {"addr": address, "size": event["size"], "stream": event["stream"], "frames": event.get("frames", [])}
        if event["action"] == "alloc":
            add(action="free_requested", **block)
        add(action="free_completed", **block)
    no_frames: list[Any] = []
    for segment in segments:
        action = "segment_unmap" if segment.get("is_expandable") else "segment_free"
        size_bytes = segment["total_size"]
        add(action=action, addr=segment["address"], size=size_bytes, stream=segment["stream"], frames=no_frames)
    return closing


def batches(records: list[Event]) -> Iterable[list[Event]]:
    """Cut a list into the pieces that are appended at once."""
    return (records[start : start + BATCH_LENGTH] for start in range(0, len(records), BATCH_LENGTH))


def shifted(records: list[Event], by_us: int) -> list[Event]:
    """Return copies of the records with their times moved on."""
    return [
        record | {"time_us": record["time_us"] + by_us} if "time_us" in record else dict(record) for record in records
    ]


def period_of(body: list[Event], between: list[Event]) -> int:
    """Return how much later each repetition is than the one before."""
    times = [event["time_us"] for event in body + between if "time_us" in event]
    return max(times) - min(times) + PAUSE_US if times else 0


def write_repeated(pickler: SnapshotPickler, body: list[Event], between: list[Event], repeats: int, by_us: int) -> None:
    """Write one list: `body`, `repeats` times, with `between` in the gaps."""
    pickler.begin_list()
    lists_of_their_own = {id(record.get("frames")) for record in body + between}
    patterns: list[tuple[bool, Pattern]] = []
    own_index = 0
    for repeat in range(min(repeats, 2)):
        own_index = pickler.num_memoized
        records = [(True, batch) for batch in batches(shifted(body, repeat * by_us))]
        if repeat < repeats - 1:
            records += [(False, batch) for batch in batches(shifted(between, repeat * by_us))]
        patterns = [(is_body, pickler.append_batch(batch, own_index)) for is_body, batch in records]
        pickler.forget(lists_of_their_own)
        pickler.forget(id(record) for _, batch in records for record in batch)
    for repeat in range(2, repeats):
        own_index = pickler.num_memoized
        for is_body, pattern in patterns:
            if is_body or repeat < repeats - 1:
                pickler.append_again(pattern, (repeat - 1) * by_us, own_index)


def check_tileable(events: list[Event], segments: list[dict[str, Any]]) -> None:
    """Refuse a recording whose repetitions would not each begin with nothing held, or would lose what pools were."""
    if any(tuple(segment.get("segment_pool_id", (0, 0))) != (0, 0) for segment in segments):
        raise ValueError("a segment that is given back loses its private pool: this recording cannot be tiled")
    live = live_at_end(events)
    for segment in segments:
        for block in segment["blocks"]:
            if block["state"] != "inactive" and block["address"] not in live:
                raise ValueError("a block was held before the recording began: this recording cannot be tiled")


def device_parts(snapshot: dict[str, Any], device: int) -> tuple[list[Event], list[Event]]:
    """Return a device's events and the events that go between two repetitions of them."""
    events = snapshot["device_traces"][device]
    segments = [segment for segment in snapshot["segments"] if segment.get("device", device) == device]
    check_tileable(events, segments)
    return events, closing_events(events, segments)


def repeats_for(snapshot: dict[str, Any], num_events: int) -> int:
    """Return the fewest repetitions that make a recording of at least `num_events` events."""
    events, between = device_parts(snapshot, recorded_device(snapshot))
    return max(1, -(-(num_events + len(between)) // (len(events) + len(between))))


def write_tiled(snapshot: dict[str, Any], repeats: int, file: BinaryIO) -> int:
    """Write `snapshot` repeated and return its number of events. Memory: that of one repetition, as bytes."""
    device = recorded_device(snapshot)
    events, between = device_parts(snapshot, device)
    by_us = period_of(events, between)
    latest_us = max((event.get("time_us", 0) for event in events), default=0) + repeats * by_us
    pickler = SnapshotPickler(file, latest_us)
    pickler.begin_dict()
    for key, value in snapshot.items():
        pickler.save(key)
        if key == "device_traces":
            pickler.begin_list_of_lists()
            for index, trace in enumerate(value):
                if index == device:
                    write_repeated(pickler, trace, between, repeats, by_us)
                else:
                    pickler.save(trace)
            pickler.end_list()
        elif key == "external_annotations":
            write_repeated(pickler, value, [], repeats, by_us)
        else:
            pickler.save(value)
    pickler.end_dict()
    pickler.finish()
    return repeats * len(events) + (repeats - 1) * len(between)


def main() -> None:
    """Write a tiled recording."""
    parser = argparse.ArgumentParser(
        description="Make a long recording by repeating one that begins with nothing held."
    )
    parser.add_argument("source", type=Path, help="a snapshot (.pickle, .xz or .gz) of our own; it is unpickled")
    parser.add_argument("output", type=Path)
    size = parser.add_mutually_exclusive_group(required=True)
    size.add_argument("--events", type=int, help="at least so many; the repetitions are whole")
    size.add_argument("--repeats", type=int)
    arguments = parser.parse_args()
    snapshot = read_recording(arguments.source)
    repeats = arguments.repeats or repeats_for(snapshot, arguments.events)
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    with arguments.output.open("wb") as file:
        num_events = write_tiled(snapshot, repeats, file)
    size_mb = arguments.output.stat().st_size / 1e6
    print(f"{arguments.output}: {num_events:,} events, {repeats} repetitions, {size_mb:,.0f} MB")


if __name__ == "__main__":
    main()
