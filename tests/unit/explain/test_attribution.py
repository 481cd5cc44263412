"""Bytes are summed by leading line, by age and by step, and nothing is lost on the way."""

from __future__ import annotations

import numpy as np

import ullage
from tests.unit.conftest import Load
from tests.unit.snapshot_builder import MIB, SnapshotBuilder
from ullage.explain.attribution import describe, share_by_age, share_by_site, share_by_step
from ullage.trace import BEFORE, NO_STACK, Frame

LIBRARY = "site-packages/torch/nn/linear.py:9 forward"


def at_end(one: SnapshotBuilder, load: Load) -> tuple[ullage.DeviceTrace, np.ndarray, int]:
    device = load(one).device()
    event = device.num_events - 1
    return device, device.live_after(event), event


def test_blocks_of_one_line_are_one_share_the_largest_first(load: Load) -> None:
    one = SnapshotBuilder()
    one.alloc(12 * MIB, "train.py:3 step < train.py:9 main")
    one.alloc(14 * MIB, f"{LIBRARY} < model.py:5 forward < train.py:9 main")
    one.alloc(10 * MIB, "train.py:3 step < train.py:8 main")
    first, second = share_by_site(*at_end(one, load))
    assert (first.bytes, first.num_blocks, str(first.lead)) == (22 * MIB, 2, "train.py:3 step")
    assert [str(frame) for frame in first.stack] == ["train.py:3 step", "train.py:9 main"]
    assert (second.bytes, str(second.lead)) == (14 * MIB, "model.py:5 forward")
    assert [(frame.function, size) for frame, size in second.via] == [("forward", 14 * MIB)]
    assert (second.oldest_us, second.newest_us) == (20, 20)


def test_shares_can_be_weighed_by_other_bytes(load: Load) -> None:
    one = SnapshotBuilder()
    one.alloc(12 * MIB, "a.py:1 f")
    one.alloc(14 * MIB, "b.py:1 f")
    device, rows, event = at_end(one, load)
    shares = share_by_site(device, rows, event, np.asarray([7, 5]))
    assert [(str(share.lead), share.bytes) for share in shares] == [("a.py:1 f", 7), ("b.py:1 f", 5)]


def test_no_blocks_have_no_shares(load: Load) -> None:
    one = SnapshotBuilder()
    one.free(one.alloc(700))
    device, rows, event = at_end(one, load)
    assert (
        share_by_site(device, rows, event)
        == share_by_age(device, rows, event)
        == share_by_step(device, rows, event)
        == []
    )


def test_ages_are_split_at_one_ten_and_sixty_seconds(load: Load) -> None:
    one = SnapshotBuilder()
    for size_mib, then_wait_us in ((10, 50_000_000), (12, 9_000_000), (12, 5_000_000), (14, 500_000)):
        one.alloc(size_mib * MIB)
        one.wait(then_wait_us)
    one.alloc(14 * MIB)
    rows = share_by_age(*at_end(one, load))
    assert [(row["label"], row["bytes"]) for row in rows] == [
        ("under 1 s", 28 * MIB),
        ("1 to 10 s", 12 * MIB),
        ("10 to 60 s", 12 * MIB),
        ("over 60 s", 10 * MIB),
    ]


def test_steps_are_counted_back_from_the_instant(load: Load) -> None:
    one = SnapshotBuilder()
    one.alloc(30 * MIB, "train.py:1 main")
    for step in range(8):
        one.annotate(f"ProfilerStep#{step}")
        one.alloc((10 + step) * MIB)
    rows = share_by_step(*at_end(one, load))
    assert [(row["label"], row["bytes"], row["num_blocks"]) for row in rows] == [
        ("this step", 18 * MIB, 1),  # 17 MiB in a segment of 18
        ("the step before", 16 * MIB, 1),
        ("2 to 5 steps before", 56 * MIB, 4),
        ("over 5 steps before", 22 * MIB, 2),
        ("before the first step", 30 * MIB, 1),
    ]


def test_blocks_from_before_the_recording_stand_apart(load: Load) -> None:
    one = SnapshotBuilder()
    one.alloc(12 * MIB)
    old = one.alloc(20 * MIB, "")
    one.alloc(30 * MIB)
    one.free(old)
    snapshot = one.snapshot()
    device = load(snapshot | {"device_traces": [snapshot["device_traces"][0][4:]]}).device()
    event = 1  # the third block is made; the second, whose stack nobody kept, still lives
    rows = share_by_age(device, device.live_after(event), event)
    assert [(row["label"], row["bytes"]) for row in rows] == [
        ("under 1 s", 30 * MIB),
        ("before the recording", 32 * MIB),
    ]
    unknown = [share for share in share_by_site(device, device.live_after(event), event) if share.lead == BEFORE]
    assert [(share.bytes, share.oldest_us) for share in unknown] == [(20 * MIB, None)]


def test_frames_that_stand_for_something_are_described() -> None:
    assert describe(Frame("train.py", 3, "step")) == "train.py:3 step"
    assert describe(NO_STACK).startswith("requests without a Python stack")
    assert describe(BEFORE) == "blocks from before the recording"


def test_a_share_as_json_is_plain_data(load: Load) -> None:
    one = SnapshotBuilder()
    one.alloc(12 * MIB, "train.py:3 step")
    (share,) = share_by_site(*at_end(one, load))
    assert share.to_json() == {
        "site": [{"file": "train.py", "line": 3, "function": "step"}],
        "via": [],
        "bytes": 12 * MIB,
        "num_blocks": 1,
        "oldest_us": 0,
        "newest_us": 0,
    }
