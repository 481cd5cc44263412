"""The Perfetto trace, read back through Perfetto's published schema, holds what the tables hold."""

from __future__ import annotations

import io
from collections import defaultdict
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pytest
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace as PerfettoTrace
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TracePacket, TrackDescriptor, TrackEvent

import ullage
from tests.recordings import EXAMPLE, path_of
from tests.unit.conftest import Load
from tests.unit.snapshot_builder import MIB, START_US, SimulatedOutOfMemoryError, SnapshotBuilder, merged
from ullage.report import perfetto
from ullage.report.perfetto import write_perfetto
from ullage.trace import Action, annotation_spans

WORDS = ("allocated", "active", "reserved", "requested")
NAMES = ["graph_chain", "late_start", "metadata", "retries", "survivors", "wrapped", "context_state", "train_leak"]


class Event(NamedTuple):
    """An event of a track, with its texts looked up."""

    time_ns: int
    type: int
    name: str
    value: int
    args: dict[str, Any]


class Written:
    """A Perfetto trace as a reader sees it."""

    def __init__(self, trace: ullage.Trace) -> None:
        out = io.BytesIO()
        num_packets = write_perfetto(out, trace.devices, ullage.explain(trace))
        packets = PerfettoTrace.FromString(out.getvalue()).packet
        assert len(packets) == num_packets
        assert {packet.trusted_packet_sequence_id for packet in packets} == {1}
        self.size = len(out.getvalue())
        self.first = packets[0]
        interned = self.first.interned_data
        self._names = {one.iid: one.name for one in interned.event_names}
        self._arg_names = {one.iid: one.name for one in interned.debug_annotation_names}
        self._texts = {one.iid: one.str.decode() for one in interned.debug_annotation_string_values}
        self.tracks: dict[int, TrackDescriptor] = {}
        self.events: dict[int, list[Event]] = defaultdict(list)
        for packet in packets[1:]:
            if packet.HasField("track_descriptor"):
                self.tracks[packet.track_descriptor.uuid] = packet.track_descriptor
            else:
                assert packet.track_event.track_uuid in self.tracks  # it is described before it is used
                self.events[packet.track_event.track_uuid].append(self._event(packet))

    def _event(self, packet: TracePacket) -> Event:
        event = packet.track_event
        if event.name_iid or event.debug_annotations:
            assert packet.sequence_flags == TracePacket.SEQ_NEEDS_INCREMENTAL_STATE
        args = {self._arg_names[one.name_iid]: self._value(one) for one in event.debug_annotations}
        name = self._names[event.name_iid] if event.name_iid else ""
        return Event(packet.timestamp, event.type, name, event.counter_value, args)

    def _value(self, annotation: Any) -> Any:
        kind = annotation.WhichOneof("value")
        value = getattr(annotation, kind)
        return self._texts[value] if kind == "string_value_iid" else value

    def named(self, name: str, number: int = 0) -> list[int]:
        """Return the tracks of a name under a device's."""
        (group,) = [one.uuid for one in self.tracks.values() if one.process.process_name == f"GPU {number}"]
        mine = {group}
        for uuid, track in self.tracks.items():
            if track.parent_uuid in mine:
                mine.add(uuid)
        return [uuid for uuid in mine if self.tracks[uuid].name == name]

    def slices(self, name: str) -> list[tuple[Event, Event]]:
        """Return the begins and ends of slices; each track's are in order of time and nest."""
        found = []
        for uuid in self.named(name):
            open_begins: list[Event] = []
            last_ns = 0
            for event in self.events[uuid]:
                assert event.time_ns >= last_ns
                last_ns = event.time_ns
                if event.type == TrackEvent.TYPE_SLICE_BEGIN:
                    open_begins.append(event)
                else:
                    assert event.type == TrackEvent.TYPE_SLICE_END
                    found.append((open_begins.pop(), event))
            assert open_begins == []
        return found

    def instants(self, name: str) -> list[Event]:
        """Return the events of the tracks of a name, which are all instants."""
        found = [event for uuid in self.named(name) for event in self.events[uuid]]
        assert {event.type for event in found} <= {TrackEvent.TYPE_INSTANT}
        return found


@cache
def written(name: str) -> tuple[ullage.DeviceTrace, Written]:
    trace = ullage.load(EXAMPLE if name == "train_leak" else path_of(name))
    return trace.device(), Written(trace)


@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize("name", NAMES)
def test_each_counter_is_the_sum_after_every_event(name: str, word: str) -> None:
    device, found = written(name)
    (track,) = found.named(word, device.number)
    expected = getattr(device.counters, f"{word}_bytes").tolist()
    changes = [i for i in range(len(expected)) if i == 0 or expected[i] != expected[i - 1]]
    times_ns = (device.events.time_us * 1000).tolist()
    assert [(event.time_ns, event.value) for event in found.events[track]] == [
        (times_ns[i], expected[i]) for i in changes
    ]
    assert {event.type for event in found.events[track]} == {TrackEvent.TYPE_COUNTER}
    assert found.tracks[track].counter.unit == 3  # UNIT_SIZE_BYTES


def test_what_is_interned_comes_first_and_begins_the_sequence() -> None:
    first = written("survivors")[1].first
    assert first.sequence_flags == TracePacket.SEQ_INCREMENTAL_STATE_CLEARED
    assert len(first.interned_data.event_names) > 1


def test_steps_are_slices_from_one_to_the_next() -> None:
    device, found = written("train_leak")
    slices = found.slices("steps")
    assert [begin.name for begin, _ in slices] == [f"step {k}" for k in range(1, len(device.steps) + 1)]
    assert [end.time_ns for _, end in slices[:-1]] == [begin.time_ns for begin, _ in slices[1:]]
    first, last = device.span_us
    assert device.steps.marks_end
    assert (slices[0][0].time_ns, slices[-1][1].time_ns) == (first * 1000, last * 1000)


def test_annotations_are_slices_that_nest() -> None:
    device, found = written("metadata")
    expected = sorted((span.name, span.begin_us * 1000, (span.end_us or 0) * 1000) for span in annotation_spans(device))
    slices = found.slices("annotations")
    assert sorted((begin.name, begin.time_ns, end.time_ns) for begin, end in slices) == expected
    assert len(expected) > 20
    assert len(found.named("annotations")) == 1


def test_annotations_that_cross_have_lanes_and_one_without_an_end_says_so(load: Load) -> None:
    one = SnapshotBuilder()
    one.alloc(12 * MIB)
    rows = [("a", "START", 0), ("b", "START", 3), ("a", "END", 5), ("b", "END", 8), ("c", "START", 9), ("d", "END", 2)]
    one.annotations = [
        {"name": name, "stage": stage, "device": 0, "time_us": START_US + time_us} for name, stage, time_us in rows
    ]
    found = Written(load(one))
    assert len(found.named("annotations")) == 2
    assert {begin.name: (begin.args, end.time_ns // 1000 - START_US) for begin, end in found.slices("annotations")} == {
        "a": ({}, 5),
        "b": ({}, 8),
        "c": ({"has_no_end": True}, 10),
    }


def test_driver_calls_and_errors_are_instants_with_their_sizes() -> None:
    device, found = written("survivors")
    events = device.events
    for track, actions in (("driver calls", (3, 4, 5, 6)), ("out of memory", (Action.OOM,))):
        rows = np.flatnonzero(np.isin(events.action, actions))
        assert len(rows)
        instants = found.instants(track)
        assert [one.time_ns for one in instants] == (events.time_us[rows] * 1000).tolist()
        assert [one.args["size_bytes"] for one in instants] == events.size_bytes[rows].tolist()
        assert all(":" in one.args["site"] for one in instants)
    names = {3: "segment_alloc", 4: "segment_free"}
    calls = np.flatnonzero(np.isin(events.action, list(names)))
    assert [one.name for one in found.instants("driver calls")] == [names[a] for a in events.action[calls].tolist()]
    assert [one.args["address"] for one in found.instants("driver calls")] == events.address[calls].tolist()


def test_findings_are_instants_that_say_why_and_what_to_do() -> None:
    device, found = written("survivors")
    (oom,) = [one for one in ullage.explain(device.trace) if one.kind == "oom"]
    (instant,) = [one for one in found.instants("findings") if one.name == oom.title]
    assert instant.time_ns == int(device.events.time_us[oom.evidence["event"]]) * 1000
    expected = {"title": oom.title, "why": oom.why, "next_step": oom.next_step, "severity": "error", "bytes": oom.bytes}
    assert expected.items() <= instant.args.items()


@pytest.mark.parametrize("name", ["graph_chain", "late_start", "survivors", "wrapped"])
def test_blocks_are_slices_as_long_as_they_lived(name: str) -> None:
    device, found = written(name)
    blocks, times = device.blocks, device.events.time_us
    slices = found.slices("blocks")
    assert len(slices) == min(len(blocks.birth), 2000)
    for begin, end in slices:
        row = begin.args["block"]
        birth, death = int(blocks.birth[row]), int(blocks.death[row])
        assert begin.time_ns == int(times[max(birth, 0)]) * 1000
        assert end.time_ns == int(times[death]) * 1000
        assert begin.args["size_bytes"] == blocks.size_bytes[row]
        assert begin.args["address"] == blocks.address[row]
        assert (birth < 0) == begin.args.get("before_the_recording", False)
        assert (death < 0) == begin.args.get("live_at_the_end", False)


def test_of_more_blocks_the_largest_are_drawn(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(perfetto, "MAX_BLOCKS", 2)
    one = SnapshotBuilder()
    brief = one.alloc(14 * MIB)
    one.free(brief)
    for size in (12, 14, 10):
        one.alloc(size * MIB, f"model.py:{size} load")
    found = Written(load(one))
    slices = found.slices("blocks")
    assert sorted(begin.name for begin, _ in slices) == ["model.py:14 load", "train.py:3 step"]
    one.alloc(14 * MIB, "later.py:1 load")
    for _ in range(4):
        one.alloc(1)
    slices = Written(load(one)).slices("blocks")
    assert sorted(begin.name for begin, _ in slices) == ["later.py:1 load", "model.py:14 load"]


def test_each_device_has_a_group_of_its_own(load: Load) -> None:
    devices = [SnapshotBuilder(device=number) for number in (0, 1)]
    for one in devices:
        one.alloc((12 + 2 * one.device) * MIB)
    found = Written(load(merged(*(one.snapshot() for one in devices))))
    for number in (0, 1):
        (track,) = found.named("reserved", number)
        assert [event.value for event in found.events[track]] == [(12 + 2 * number) * MIB]


def test_a_recording_without_events_has_tracks_and_no_counters(load: Load) -> None:
    one = SnapshotBuilder()
    one.alloc(12 * MIB)
    found = Written(load(one.snapshot() | {"device_traces": []}))
    assert len(found.named("allocated")) == 1
    assert found.events == {}


def test_long_names_are_cut_and_clocks_that_run_backwards_are_held(load: Load) -> None:
    one = SnapshotBuilder(limit_bytes=20 * MIB)
    one.alloc(12 * MIB)
    with pytest.raises(SimulatedOutOfMemoryError):
        one.alloc(400 * MIB)
    for event, time_us in zip(one.events, (50, -(2**63), 2**63 - 1), strict=True):
        event |= {"time_us": time_us, "frames": [{"filename": "a\x00.py", "line": 1, "name": "é" * 1_000_000}]}
    one.annotations = [
        {"name": "n" * 1_000_000, "stage": stage, "device": 0, "time_us": time_us}
        for stage, time_us in (("START", -5), ("END", 2**63 - 1))
    ]
    found = Written(load(one))
    assert found.size < 100_000
    (track,) = found.named("reserved")
    times = [event.time_ns for event in found.events[track]]
    assert times == sorted(times)
    assert len(found.slices("annotations")) == len(found.slices("blocks")) == 1
