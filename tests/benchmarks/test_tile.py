"""A tiled recording is one consistent history, written as the dump of a real one is."""

from __future__ import annotations

import io
import pickle
import pickletools
from typing import Any

import pytest
from benchmarks.tile import BATCH_LENGTH, repeats_for, write_tiled

from tests.reference.slow_reconstruction import reconstruct

MIB = 1 << 20
BASE = 0x7F00_0000_0000
FRAME = {"name": "step", "filename": "train.py", "line": 3}
SEGMENT = {
    "device": 1,
    "address": BASE,
    "total_size": 20 * MIB,
    "allocated_size": 2 * MIB,
    "active_size": 2 * MIB,
    "requested_size": 2 * MIB,
    "stream": 0,
    "segment_type": "large",
    "segment_pool_id": (0, 0),
    "is_expandable": False,
    "frames": [],
    "blocks": [
        {"address": BASE, "size": 2 * MIB, "requested_size": 2 * MIB, "state": "active_allocated", "frames": []},
        {"address": BASE + 2 * MIB, "size": 18 * MIB, "requested_size": 0, "state": "inactive", "frames": []},
    ],
}


def recording(num_pairs: int = 1) -> dict[str, Any]:
    """Return a recording in which one block stays and `num_pairs` come and go."""
    events: list[dict[str, Any]] = []

    def add(action: str, offset: int, size: int, frames: list[dict[str, Any]]) -> None:
        time_us = 1_700_000_000_000_000 + 10 * len(events)
        address = BASE + offset
        event = {"action": action, "addr": address, "size": size, "stream": 0, "time_us": time_us, "frames": frames}
        events.append(event)

    first = [FRAME]
    add("segment_alloc", 0, 20 * MIB, first)
    add("alloc", 0, 2 * MIB, first)
    for _ in range(num_pairs):
        add("alloc", 2 * MIB, 4 * MIB, [FRAME])
        freed = [FRAME]
        add("free_requested", 2 * MIB, 4 * MIB, freed)
        add("free_completed", 2 * MIB, 4 * MIB, freed)
    times = {"time_us": events[2]["time_us"]}
    annotations = [{"stage": stage, "name": "step", "device": 0, **times} for stage in ("START", "END")]
    return {"segments": [SEGMENT], "device_traces": [[], events], "external_annotations": annotations}


def tiled(snapshot: dict[str, Any], repeats: int) -> tuple[dict[str, Any], int]:
    """Return the tiled recording, read back, and the number of events that was reported."""
    file = io.BytesIO()
    num_events = write_tiled(snapshot, repeats, file)
    pickletools.dis(file.getvalue(), out=io.StringIO())  # checks marks, memo and stack
    return pickle.loads(file.getvalue()), num_events


@pytest.mark.parametrize("repeats", [1, 2, 3, 5])
def test_a_tiled_recording_obeys_the_allocators_rules_and_ends_like_its_source(repeats: int) -> None:
    source = recording()
    result, num_events = tiled(source, repeats)
    rebuilt = reconstruct(result, 1)
    assert num_events == len(result["device_traces"][1]) == 5 * repeats + 3 * (repeats - 1)
    assert rebuilt.conflicts == []
    assert rebuilt.history == "complete"
    assert rebuilt.address_matches == len(rebuilt.allocs) == 2 * repeats
    assert rebuilt.peak["reserved"] == 20 * MIB
    assert rebuilt.final_layout[BASE][1] == [
        (BASE, 2 * MIB, "active_allocated"),
        (BASE + 2 * MIB, 18 * MIB, "inactive"),
    ]
    assert result["segments"] == source["segments"]


def test_each_repetition_is_the_source_moved_on_in_time() -> None:
    source = recording(num_pairs=BATCH_LENGTH)
    result, _ = tiled(source, 4)
    once, events = source["device_traces"][1], result["device_traces"][1]
    for repeat in range(4):
        part = events[repeat * (len(once) + 3) :][: len(once)]
        moved_us = part[0]["time_us"] - once[0]["time_us"]
        assert part == [event | {"time_us": event["time_us"] + moved_us} for event in once]
        annotations = result["external_annotations"][2 * repeat :][:2]
        assert [note["time_us"] for note in annotations] == [once[2]["time_us"] + moved_us] * 2
    times = [event["time_us"] for event in events]
    assert times == sorted(times)


def test_frames_are_shared_within_a_repetition_and_lists_are_its_own() -> None:
    result, _ = tiled(recording(), 4)
    events = result["device_traces"][1]
    for start in range(0, 32, 8):
        assert events[start]["frames"] is events[start + 1]["frames"]
        assert events[start + 3]["frames"] is events[start + 4]["frames"]
    assert len({id(events[start]["frames"]) for start in range(0, 32, 8)}) == 4
    assert len({id(frame) for event in events for frame in event["frames"]}) == 1


def test_the_fewest_repetitions_with_enough_events_are_made() -> None:
    assert [repeats_for(recording(), num_events) for num_events in (1, 5, 6, 13, 14)] == [1, 1, 2, 2, 3]


def test_a_recording_that_began_late_is_refused() -> None:
    snapshot = recording()
    for num_lost in (2, 3):  # then nothing tells of the block that stays, or of one that goes
        late = snapshot | {"device_traces": [[], snapshot["device_traces"][1][num_lost:]]}
        with pytest.raises(ValueError, match="cannot be tiled"):
            tiled(late, 2)


def test_a_recording_with_private_pools_is_refused() -> None:
    snapshot = recording() | {"segments": [SEGMENT | {"segment_pool_id": (0, 1)}]}
    with pytest.raises(ValueError, match="private pool"):
        tiled(snapshot, 2)
