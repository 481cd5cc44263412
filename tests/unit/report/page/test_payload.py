"""What the page gets of a recording is what the trace's own tables say."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pytest

import ullage
from tests.recordings import device_of, findings_of
from tests.unit.conftest import Load
from tests.unit.report.hostile_names import NAMES
from tests.unit.report.page.unpacking import unpack
from tests.unit.snapshot_builder import MIB, START_US, SnapshotBuilder, merged
from ullage.explain.moment import event_of, span_of
from ullage.report.page import rank_payload
from ullage.trace import BEFORE_FIRST, NO_STACK, NONE

LONGEST = 400
RECORDINGS = (
    "survivors",  # runs out of memory
    "late_start",  # blocks from before, steps that their marks end
    "pending_end",  # a free that waits at the end
    "context_state",  # one event
    "graph_per_length",  # private pools
    "expandable_toggle",
    "record_stream_backlog",
    "no_stacks",
    "cpp_stacks",
    "leak_no_annotations",
)

Payload = tuple[dict[str, Any], dict[str, list[int]]]


def payload_of(device: ullage.DeviceTrace) -> Payload:
    return unpack(rank_payload(device, ullage.explain(device.trace, device=device.number), [], name="rank 0"))


@pytest.mark.parametrize("name", RECORDINGS)
def test_blocks_are_those_of_the_trace(name: str) -> None:
    device, (head, columns) = device_of(name), payload_of(device_of(name))
    blocks, never = device.blocks, device.num_events
    assert head["num_events"] == never
    assert columns["block_birth"] == blocks.birth.tolist()
    for row in range(len(blocks.birth)):
        birth = int(blocks.birth[row])
        freed = columns["block_birth"][row] + columns["block_life"][row]
        died = freed + columns["block_wait"][row]
        asked = int(blocks.free_requested[row])
        assert freed == {NONE: never, BEFORE_FIRST: birth}.get(asked, asked)
        assert died == (never if blocks.death[row] == NONE else blocks.death[row])
        kind = columns["block_kind"][row]
        assert columns["kind_size"][kind] == blocks.size_bytes[row]
        assert columns["kind_requested"][kind] == blocks.requested_bytes[row]
        assert columns["kind_site"][kind] == blocks.site[row]
        assert columns["kind_category"][kind] == 0
        segment = columns["block_segment"][row]
        low, high = columns["segment_address_low"][segment], columns["segment_address_high"][segment]
        assert (high << 32) + low + columns["block_place"][row] == blocks.address[row]
    assert columns["block_drawn"] == device.drawing.offset.tolist()
    assert head["drawn_height"] == device.drawing.height


@pytest.mark.parametrize("name", RECORDINGS)
def test_segments_and_reserved_memory_are_those_of_the_trace(name: str) -> None:
    device, (head, columns) = device_of(name), payload_of(device_of(name))
    segments = device.segments
    assert columns["segment_birth"] == segments.birth.tolist()
    assert columns["segment_death"] == [device.num_events if one == NONE else one for one in segments.death.tolist()]
    assert columns["segment_size"] == segments.size_bytes.tolist()
    assert columns["segment_pool"] == segments.pool.tolist()
    assert columns["segment_pool_size"] == segments.pool_size.tolist()
    assert columns["segment_expandable"] == segments.is_expandable.tolist()
    assert [columns["streams"][stream] for stream in columns["segment_stream"]] == segments.stream.tolist()
    pools = [head["pools"][pool] if pool != NONE else "default" for pool in columns["segment_pool"]]
    assert pools == [device.pool_name(pool) for pool in segments.pool.tolist()]
    changes = dict(zip(columns["reserved_event"], columns["reserved_bytes"], strict=True))
    reserved = changes[NONE]
    assert reserved == device.history.before[3]
    for event, counted in enumerate(device.counters.reserved_bytes.tolist()):
        reserved = changes.get(event, reserved)
        assert reserved == counted


def shown_frame(frame: ullage.trace.Frame) -> tuple[str, int, str]:
    """Return a frame as the page has it: names of C++ functions can have thousands of characters."""
    cut = len(frame.function) - LONGEST
    return frame.file, frame.line, f"{frame.function[:LONGEST]}… ({cut} more characters)" if cut > 0 else frame.function


@pytest.mark.parametrize("name", RECORDINGS)
def test_sites_their_frames_and_the_lines_that_lead_them_are_those_of_the_trace(name: str) -> None:
    device, (head, columns) = device_of(name), payload_of(device_of(name))
    sites = device.trace.sites
    starts = columns["site_starts"]
    for site, line in enumerate(columns["site_line"]):
        frames = [
            (
                head["files"][columns["frame_file"][i]],
                columns["frame_line"][i],
                head["functions"][columns["frame_function"][i]],
            )
            for i in columns["site_frames"][starts[site] : starts[site + 1]]
        ]
        assert frames == [shown_frame(frame) for frame in sites.stack(site)]
        lead = head["lines"][line]
        shown = (head["files"][lead["file"]], lead["line"], lead["function"])
        assert shown == shown_frame((sites.user_stack(site) or (NO_STACK,))[0])
    assert len(columns["site_line"]) == len(starts) - 1 == len(sites.leads)
    assert columns["frame_rank"] == sites.frame_ranks
    assert len(set(head["files"])) == len(head["files"])


@pytest.mark.parametrize("name", RECORDINGS)
def test_findings_and_errors_have_their_event_and_their_line(name: str) -> None:
    device, (head, _) = device_of(name), payload_of(device_of(name))
    lines = [(head["files"][one["file"]], one["line"], one["function"]) for one in head["lines"]]
    findings = findings_of(name)
    assert len(head["findings"]) == len(findings) > 0
    for shown, finding in zip(head["findings"], findings, strict=True):
        assert shown["title"] == finding.title
        assert (shown["event"], shown["span"]) == (event_of(device, finding), _listed(span_of(device, finding)))
        if shown["on_line"] is not None:
            assert lines[shown["on_line"]] == tuple(finding.site[0])
    assert [one["event"] for one in head["ooms"]] == device.ooms().tolist()
    for one in head["ooms"]:
        assert one["bytes"] == device.events.size_bytes[one["event"]]
        assert one["device_free_bytes"] == device.device_free(one["event"])
        site = int(device.events.site[one["event"]])
        assert lines[one["on_line"]] == tuple(device.trace.sites.user_stack(site)[0])


def _listed(span: tuple[int, int] | None) -> list[int] | None:
    return list(span) if span else None


def test_times_count_from_the_first_event_and_the_whole_speaks_of_the_recording() -> None:
    device, (head, columns) = device_of("survivors"), payload_of(device_of("survivors"))
    first = int(device.events.time_us[0])
    assert columns["event_time"] == [time - first for time in device.events.time_us.tolist()]
    assert head["peak_event"] == device.event_at("peak")
    assert head["summary"]["peak"] == device.peak._asdict()
    assert head["name"] == "rank 0"
    assert len(head["ooms"]) == 1


@pytest.mark.parametrize("annotation", ["ProfilerStep#", "Optimizer.step#Adam.step"])
def test_steps_begin_where_the_trace_says(annotation: str, load: Load) -> None:
    one = SnapshotBuilder()
    one.free(one.alloc(3 * MIB))
    for step in range(5):
        one.annotate(f"{annotation}{step}" if annotation.endswith("#") else annotation)
        one.free(one.alloc(700))
    device = load(one).device()
    head, columns = payload_of(device)
    assert head["steps_from"] == device.steps.source
    assert columns["step_starts"] == device.steps.bounds(device.num_events)[:-1].tolist()
    assert columns["step_starts"] == ([0, 4, 8, 11, 14] if device.steps.marks_end else [4, 8, 11, 14, 17])


def test_spans_count_from_the_first_event_and_one_without_an_end_has_none(load: Load) -> None:
    one = SnapshotBuilder()
    one.alloc(700)
    snapshot = one.snapshot()
    for name, stage, time in (("a", "START", -5), ("b", "START", 1), ("a", "END", 8)):
        snapshot["external_annotations"].append({"name": name, "stage": stage, "device": 0, "time_us": START_US + time})
    assert payload_of(load(snapshot).device())[0]["spans"] == [["a", -5, 8], ["b", 1, None]]


def test_the_profilers_categories_are_named_by_block(load: Load) -> None:
    one = SnapshotBuilder()
    for _ in range(4):
        one.alloc(700)
    snapshot = one.snapshot()
    allocs = [event for event in snapshot["device_traces"][0] if event["action"] == "alloc"]
    for event, category in zip(allocs, ("PARAMETER", "ACTIVATION", None, "PARAMETER"), strict=True):
        if category:
            event["category"] = category
    head, columns = payload_of(load(json.dumps(snapshot).encode()).device())
    named = [None, *head["categories"]]
    shown = [named[columns["kind_category"][kind]] for kind in columns["block_kind"]]
    assert shown == ["PARAMETER", "ACTIVATION", None, "PARAMETER"]


def test_a_recording_without_events_shows_what_is_there_at_the_end(load: Load) -> None:
    one = SnapshotBuilder()
    one.alloc(3 * MIB)
    one.free(one.alloc(5 * MIB))
    device = load(one.snapshot() | {"device_traces": [[]]}).device()
    head, columns = payload_of(device)
    assert (head["num_events"], head["ooms"], head["peak_event"]) == (0, [], NONE)
    assert (columns["event_time"], columns["step_starts"]) == ([], [])
    assert (columns["block_birth"], columns["block_life"], columns["block_drawn"]) == ([NONE], [1], [0])
    assert [columns["kind_size"][kind] for kind in columns["block_kind"]] == [3 * MIB]
    assert (columns["reserved_event"], columns["reserved_bytes"]) == ([NONE], [20 * MIB])


def test_each_of_several_devices_has_its_own(load: Load) -> None:
    first, second = SnapshotBuilder(), SnapshotBuilder(device=1)
    first.alloc(3 * MIB, "first.py:1 main")
    second.alloc(5 * MIB, "second.py:1 main")
    second.alloc(700, "second.py:2 main")
    trace = load(merged(first.snapshot(), second.snapshot()))
    sizes = []
    for device in trace.devices:
        head, columns = payload_of(device)
        assert head["summary"]["device"] == device.number
        assert {one["device"] for one in head["findings"]} <= {device.number}
        sizes.append([columns["kind_size"][kind] for kind in columns["block_kind"]])
    assert sizes == [[3 * MIB], [5 * MIB, 1024]]


def texts_in(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [text for pair in value.items() for one in pair for text in texts_in(one)]
    return [text for one in value for text in texts_in(one)] if isinstance(value, list) else []


def hostile_snapshot() -> dict[str, Any]:
    one = SnapshotBuilder(settings={"PYTORCH_CUDA_ALLOC_CONF": NAMES[5], NAMES[5] + "key": 1})
    for _ in range(8):
        for number, name in enumerate(NAMES):
            one.alloc(3 * MIB)
            one.events[-1]["frames"] = [{"filename": f"{name}.py", "line": number, "name": name}]
    snapshot = one.snapshot()
    snapshot["external_annotations"] = [
        {"name": name, "stage": "START", "device": 0, "time_us": START_US + 1} for name in NAMES
    ]
    return snapshot


def test_no_text_is_longer_than_anybody_reads_and_each_says_what_is_gone(load: Load) -> None:
    device = load(hostile_snapshot()).device()
    packed = rank_payload(device, ullage.explain(device.trace), [], name=NAMES[5])
    head, columns = unpack(packed)
    assert max(len(text) for text in texts_in(head)) < LONGEST + 40
    assert head["name"] == f"{'x' * LONGEST}… (1,048,176 more characters)"
    assert len(packed) < 20_000
    assert {head["functions"][i] for i in columns["frame_function"]} >= {name for name in NAMES if name.isascii()} - {
        NAMES[5]
    }


def test_lines_that_look_the_same_when_shortened_are_still_two(load: Load) -> None:
    one = SnapshotBuilder()
    for ending in "ab":
        one.alloc(700, f"{NAMES[5]}{ending}.py:3 step")
    head, columns = payload_of(load(one).device())
    assert len(set(columns["site_line"])) == 2
    places = [head["lines"][line]["file"] for line in columns["site_line"]]
    assert len(set(places)) == 2
    assert len({head["files"][place] for place in places}) == 1


def test_half_a_character_is_no_obstacle(load: Load) -> None:
    one = SnapshotBuilder()
    one.alloc(700, "a\udcff.py:1 \ud800")
    device = load(pickle.dumps(one.snapshot(), protocol=4)).device()
    head, _ = unpack(rank_payload(device, [], [], name="\udcff"))
    assert head["name"] == "\udcff"
    assert head["lines"][0]["function"].encode()  # the reader has replaced it


@pytest.mark.parametrize(
    ("times", "shown"),
    [
        ((5, 3, 9), [0, 0, 4]),
        ((-(2**63), 0, 2**63 - 1), [0, 1 << 52, 1 << 52]),
        ((2**63 - 1, -(2**63), 0), [0, 0, 0]),
    ],
)
def test_times_that_go_back_or_have_64_bits_come_in_order(times: tuple[int, ...], shown: list[int], load: Load) -> None:
    one = SnapshotBuilder()
    one.alloc(700)
    one.alloc(700)
    snapshot = one.snapshot()
    for event, time in zip(snapshot["device_traces"][0], times, strict=True):
        event["time_us"] = time
    _, columns = payload_of(load(snapshot).device())
    assert columns["event_time"] == shown
