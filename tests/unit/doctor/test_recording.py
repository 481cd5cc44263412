"""What is read out of a recording: settings, rounding, stacks, pools, and that clean recordings have nothing to say."""

from __future__ import annotations

import numpy as np
import pytest

from tests.recordings import COMPLETE, device_of, trace_of
from tests.unit.conftest import Load
from tests.unit.snapshot_builder import MIB, SnapshotBuilder
from ullage.doctor import PoolFact, RoundupCost, examine, setup_of_recording
from ullage.doctor.recording import round_up

SPEAKS = {
    "cpp_stacks": ["native_stacks"],
    "expandable_toggle": ["changed_settings"],
    "gc_mix": ["collection_without_cap"],
    "roundup": ["roundup_cost"],
    "roundup.div4": ["roundup_cost"],
    "settings_change": ["changed_settings", "roundup_cost"],
}


def checks(name: str) -> list[str]:
    return [advice.check for advice in examine(setup_of_recording(trace_of(name)))]


@pytest.mark.parametrize("name", sorted({*COMPLETE, *SPEAKS}))
def test_a_recording_gets_the_advice_that_is_due_and_no_other(name: str) -> None:
    assert checks(name) == SPEAKS.get(name, [])


@pytest.mark.parametrize(
    ("requested", "divisions", "rounded"),
    [
        (1, 0, 512),
        (513, 1, 1024),
        (2048, 4, 2048),  # not above 512 bytes a division
        (2049, 4, 2560),
        (5 * MIB + 1, 4, 6 * MIB),
        (8 * MIB, 4, 8 * MIB),
        (8 * MIB + 1, 2, 12 * MIB),
        (1 << 40, 8, 1 << 40),
    ],
)
def test_requests_are_rounded_as_torch_rounds_them(requested: int, divisions: int, rounded: int) -> None:
    assert round_up(np.array([requested]), (divisions,) * 16).tolist() == [rounded]


@pytest.mark.parametrize("name", ["roundup", "roundup.div4"])
def test_the_rounding_is_that_of_the_recorded_blocks(name: str) -> None:
    recorded = setup_of_recording(trace_of(name)).recorded
    assert recorded is not None
    (cost,) = recorded.roundup
    tails = device_of(name).peak.allocated_bytes - cost.rounded_bytes
    assert 0 <= tails < 0.01 * cost.rounded_bytes
    assert cost.plain_bytes < cost.rounded_bytes


def test_the_cost_of_rounding_is_counted_at_the_peak(load: Load) -> None:
    one = SnapshotBuilder(settings={"roundup_power2_divisions": {"8": 2, "16": 1}})
    freed = one.alloc(9 * MIB)
    one.free(freed)
    one.alloc(9 * MIB)
    one.alloc(17 * MIB)
    recorded = setup_of_recording(load(one)).recorded
    assert recorded is not None
    assert recorded.roundup == (RoundupCost(device=0, rounded_bytes=(12 + 17) * MIB, plain_bytes=(9 + 17) * MIB),)


def test_without_divisions_no_cost_is_counted(load: Load) -> None:
    one = SnapshotBuilder(settings={"roundup_power2_divisions": {"8": 0, "16": 1}})
    one.alloc(9 * MIB)
    recorded = setup_of_recording(load(one)).recorded
    assert recorded is not None
    assert recorded.roundup == ()


@pytest.mark.parametrize(
    ("is_expandable", "pools"), [(True, (PoolFact(device=0, pool="(0, 1)", reserved_bytes=20 * MIB),)), (False, ())]
)
def test_segments_of_fixed_size_in_a_pool_are_seen_where_segments_expand(
    is_expandable: bool, pools: tuple[PoolFact, ...], load: Load
) -> None:
    one = SnapshotBuilder(settings={"expandable_segments": is_expandable}, records_pools=True)
    one.alloc(4 * MIB)
    one.alloc(4 * MIB, pool=(0, 1))
    recorded = setup_of_recording(load(one)).recorded
    assert recorded is not None
    assert recorded.fixed_pools == pools


def test_a_snapshot_without_events_is_read(load: Load) -> None:
    setup = setup_of_recording(load({"segments": [], "device_traces": []}))
    assert examine(setup) == []
