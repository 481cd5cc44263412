"""What is live, stack by stack."""

from __future__ import annotations

from tests.unit.conftest import Load
from tests.unit.snapshot_builder import MIB, SnapshotBuilder
from ullage.trace import NO_STACK, NONE, Frame
from ullage.trace.live_stacks import live_stacks


def test_blocks_are_summed_by_stack_largest_first(load: Load) -> None:
    one = SnapshotBuilder()
    for _ in range(2):
        one.alloc(2 * MIB, "model.py:7 forward < train.py:3 main")
    one.alloc(3 * MIB, "")
    device = load(one).device()
    first, second = live_stacks(device, device.num_events - 1)
    assert first.frames == (Frame("train.py", 3, "main"), Frame("model.py", 7, "forward"))
    assert (first.bytes, first.num_blocks) == (4 * MIB, 2)
    assert (second.frames, second.bytes, second.num_blocks) == ((NO_STACK,), 3 * MIB, 1)


def test_what_is_freed_is_gone_and_before_the_first_event_there_is_nothing(load: Load) -> None:
    one = SnapshotBuilder()
    one.free(one.alloc(2 * MIB))
    device = load(one).device()
    assert [stack.bytes for stack in live_stacks(device, 1)] == [2 * MIB]
    assert live_stacks(device, 2) == []
    assert live_stacks(device, NONE) == []


def test_native_frames_are_shown_only_where_there_are_no_others(load: Load) -> None:
    one = SnapshotBuilder()
    one.alloc(2 * MIB, "b.cpp:0 at::mm < train.py:3 main")
    one.alloc(3 * MIB, "a.cpp:0 c10::malloc < b.cpp:0 at::mm < c.cpp:0 worker")
    one.alloc(4 * MIB, "a.cpp:0 c10::malloc")
    device = load(one).device()
    names = [[frame.function for frame in stack.frames] for stack in live_stacks(device, device.num_events - 1)]
    assert names == [[""], ["worker", "at::mm"], ["main"]]
