"""The numbers in the tables mean what torch's words mean."""

from __future__ import annotations

import pytest

from tests.unit.conftest import Load
from tests.unit.snapshot_builder import MIB, SnapshotBuilder
from ullage.trace import Action, BlockState, PoolSize

WORDS = {
    "alloc": Action.ALLOC,
    "free_requested": Action.FREE_REQUESTED,
    "free_completed": Action.FREE_COMPLETED,
    "segment_alloc": Action.SEGMENT_ALLOC,
    "segment_free": Action.SEGMENT_FREE,
    "segment_map": Action.SEGMENT_MAP,
    "segment_unmap": Action.SEGMENT_UNMAP,
    "snapshot": Action.SNAPSHOT,
    "oom": Action.OOM,
    "annotate": Action.ANNOTATE,
    "free": Action.FREE,
    "something new": Action.OTHER,
}


@pytest.mark.parametrize("word", WORDS)
def test_every_action_has_its_number(word: str, load: Load) -> None:
    event = {"action": word, "addr": 0, "size": 512, "stream": 0, "device_free": 0}
    trace = load({"segments": [], "device_traces": [[event]]})
    assert trace.device().events.action.tolist() == [WORDS[word]]


def test_every_action_is_tried() -> None:
    assert set(WORDS.values()) == set(Action)


def test_states_and_pool_sizes_of_a_layout_have_their_numbers(load: Load) -> None:
    one = SnapshotBuilder()
    one.alloc(700)
    one.free(one.alloc(3 * MIB))
    one.request_free(one.alloc(3 * MIB))
    device = load(one).device()
    layout = device.layout_at("end")
    assert layout.state.tolist() == [
        BlockState.ACTIVE_ALLOCATED,
        BlockState.INACTIVE,
        BlockState.ACTIVE_PENDING_FREE,
        BlockState.INACTIVE,
    ]
    assert device.segments.pool_size.tolist() == [PoolSize.SMALL, PoolSize.LARGE]


def test_columns_are_views_that_cannot_be_written(load: Load) -> None:
    one = SnapshotBuilder()
    one.alloc(700)
    device = load(one).device()
    for column in (device.events.size_bytes, device.blocks.address, device.counters.reserved_bytes):
        with pytest.raises(ValueError, match="read-only"):
            column[0] = 0
