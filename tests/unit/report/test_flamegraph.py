"""Folded stacks: a line for each stack, and their bytes are those that are allocated, to the byte."""

from __future__ import annotations

import re

import pytest

from tests.recordings import COMPLETE, PARTIAL, device_of
from tests.unit.conftest import Load
from tests.unit.snapshot_builder import MIB, SnapshotBuilder, merged
from ullage.errors import UllageError
from ullage.report.flamegraph import folded_stacks

LINE = re.compile(r"[^\n\r]* (\d+)")


def total(lines: list[str]) -> int:
    found = [LINE.fullmatch(line) for line in lines]
    return sum(int(match[1]) for match in found if match)


@pytest.mark.parametrize("name", [*COMPLETE, *sorted(PARTIAL)])
@pytest.mark.parametrize("at", ["peak", "end"])
def test_the_lines_of_a_recording_add_up_to_what_is_allocated(name: str, at: str) -> None:
    device = device_of(name)
    lines = folded_stacks([device], at)
    assert all(LINE.fullmatch(line) for line in lines)
    assert total(lines) == device.counters_at(at).allocated_bytes
    stacks = [line.rpartition(" ")[0] for line in lines]
    assert len(set(stacks)) == len(stacks)


def test_a_line_is_the_stack_from_outside_in_and_equal_stacks_are_one(load: Load) -> None:
    one = SnapshotBuilder()
    one.alloc(2 * MIB, "model.py:7 forward < train.py:3 main")
    one.alloc(3 * MIB, "model.py:7 forward < train.py:3 main")
    one.alloc(1 * MIB, "")
    assert folded_stacks([load(one).device()], "end") == [
        f"main (train.py:3);forward (model.py:7) {5 * MIB}",
        f"(no Python stack) {1 * MIB}",
    ]


def test_blocks_from_before_the_recording_say_so(load: Load) -> None:
    one = SnapshotBuilder()
    one.alloc(12 * MIB)
    snapshot = one.snapshot()
    snapshot["device_traces"] = [[]]
    for segment in snapshot["segments"]:
        segment["blocks"][0]["frames"] = []
    assert folded_stacks([load(snapshot).device()], "end") == [f"(before the recording) {12 * MIB}"]


def test_native_frames_stand_in_for_python_ones_without_the_allocators_own(load: Load) -> None:
    one = SnapshotBuilder()
    one.alloc(2 * MIB, "a.cpp:0 c10::CachingAllocator::malloc < b.cpp:0 at::mm < c.cpp:0 worker")
    assert folded_stacks([load(one).device()], "end") == [f"worker (c.cpp);at::mm (b.cpp) {2 * MIB}"]


@pytest.mark.parametrize("function", ["a;b", "a\nb", "a\r\x1b[0m", "f 12", "x" * 1_000_000, "\u2028", ""])
def test_a_hostile_name_stays_in_its_frame_and_line(function: str, load: Load) -> None:
    one = SnapshotBuilder()
    one.alloc(2 * MIB)
    for event in one.events:
        event["frames"] = [{"filename": "(;\n.py", "line": 0, "name": function}]
    (line,) = folded_stacks([load(one).device()], "end")
    stack, _, size = line.rpartition(" ")
    assert int(size) == 2 * MIB
    assert stack.endswith(")")
    assert ";" not in stack
    assert stack.isprintable()
    assert len(stack) < 1000


def test_of_several_devices_each_stack_begins_with_its_own(load: Load) -> None:
    devices = [SnapshotBuilder(device=number) for number in (0, 1)]
    for one in devices:
        one.alloc((2 + one.device) * MIB)
    lines = folded_stacks(load(merged(*(one.snapshot() for one in devices))).devices, "end")
    assert lines == [f"GPU 1;step (train.py:3) {3 * MIB}", f"GPU 0;step (train.py:3) {2 * MIB}"]


def test_a_device_without_the_instant_is_left_out_unless_none_has_it() -> None:
    with_oom, without = device_of("survivors"), device_of("stranded_weights")
    lines = folded_stacks([without, with_oom], "oom")
    assert total(lines) == with_oom.counters_at("oom").allocated_bytes
    with pytest.raises(UllageError, match="met no out-of-memory error"):
        folded_stacks([without], "oom")
