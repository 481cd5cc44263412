"""What holds for every allocator model on every history: bytes add up, caps are kept, and a run is the same each time."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.random_histories import histories, trace_of
from tests.unit.snapshot_builder import SnapshotBuilder
from ullage.replay import MODELS, GrowingPool, Policy, Simulation, parse_conf

bounded = settings(max_examples=40, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])

CONFS = (
    "",
    "expandable_segments:True",
    "max_split_size_mb:32",
    "roundup_power2_divisions:4",
    "roundup_power2_divisions:[1:4,>:2]",
    "large_segment_size_mb:64",
    "max_split_size_mb:64,max_non_split_rounding_mb:32,roundup_power2_divisions:8",
    "expandable_segments:True,roundup_power2_divisions:2",
    "garbage_collection_threshold:0.6",
)
POLICIES: dict[str, Policy | GrowingPool] = {conf or "default": parse_conf(conf) for conf in CONFS} | MODELS

policies = pytest.mark.parametrize("name", POLICIES)


def simulation_of(builder: SnapshotBuilder) -> Simulation:
    return Simulation.of(trace_of(builder))


def largest_live_bytes(builder: SnapshotBuilder) -> int:
    """Return the most that was asked for and not yet freed, from the builder's own list of lives."""
    changes = sorted(
        (at, change)
        for life in builder.lives
        for at, change in ((life.birth, life.requested), (life.free_requested, -life.requested))
        if at >= 0
    )
    live = largest = 0
    for _, change in changes:
        live += change
        largest = max(largest, live)
    return largest


@policies
@bounded
@given(histories())
def test_the_bytes_at_the_peak_add_up(name: str, builder: SnapshotBuilder) -> None:
    outcome = simulation_of(builder).outcome(POLICIES[name])
    assert sum(outcome.waste.values()) == outcome.peak_reserved_bytes
    assert min(outcome.waste.values()) >= 0
    assert largest_live_bytes(builder) <= outcome.peak_allocated_bytes <= outcome.peak_reserved_bytes
    assert not outcome.is_oom


@policies
@bounded
@given(histories())
def test_the_smallest_cap_is_kept_and_serves_all(name: str, builder: SnapshotBuilder) -> None:
    simulation = simulation_of(builder)
    cap = simulation.min_cap(POLICIES[name])
    outcome = simulation.outcome(POLICIES[name], cap)
    assert not outcome.is_oom
    assert outcome.peak_reserved_bytes <= cap


@policies
@bounded
@given(histories(), st.integers(1, 40))
def test_no_cap_is_ever_exceeded(name: str, builder: SnapshotBuilder, megabytes: int) -> None:
    cap = megabytes << 20
    simulation = simulation_of(builder)
    outcome = simulation.outcome(POLICIES[name], cap)
    assert outcome.peak_reserved_bytes <= cap
    if outcome.first_oom is not None:
        assert outcome.first_oom.reserved_bytes <= cap
    assert simulation.outcome(POLICIES[name], cap) == outcome


@bounded
@given(histories(limits=(None,)))
def test_the_recorded_settings_give_the_recorded_run(builder: SnapshotBuilder) -> None:
    simulation = simulation_of(builder)
    outcome, recorded = simulation.outcome(), simulation.recorded_outcome()
    assert outcome.peak_reserved_bytes == recorded.peak_reserved_bytes
    assert outcome.peak_allocated_bytes == recorded.peak_allocated_bytes
    assert outcome.num_device_alloc == recorded.num_device_alloc
    assert outcome.num_device_free == recorded.num_device_free
