"""Curves of reserved memory under other settings: they agree with `replay`, and keep what matters when thinned."""

from __future__ import annotations

import json
from importlib import import_module

import numpy as np
import pytest

import ullage
from tests.recordings import EXAMPLE, device_of
from tests.unit.conftest import Load
from tests.unit.snapshot_builder import GIB, MIB, SnapshotBuilder
from ullage.errors import UllageError
from ullage.replay import MODELS, Policy, Simulation, WhatIf, parse_conf, replay, what_if
from ullage.replay.models import GrowingPool
from ullage.trace import NONE

MODULE = import_module("ullage.replay.what_if")  # the function has the module's name
RECORDINGS = ("survivors", "late_start", "wrapped", "stranded_weights", "graph_per_length", "record_stream_backlog")


def policy_of(one: WhatIf) -> Policy | GrowingPool:
    name = one.outcome.policy
    return MODELS[name] if name in MODELS else parse_conf("" if name == "default" else name)


@pytest.mark.parametrize("name", RECORDINGS)
def test_a_curve_starts_before_the_recording_and_its_highest_is_what_replay_says(name: str) -> None:
    trace = device_of(name).trace
    found = what_if(trace)
    assert found
    for one in found:
        simulated = replay(trace, policy_of(one))
        assert one.outcome.peak_reserved_bytes == simulated.peak_reserved_bytes == one.reserved_bytes.max()
        assert one.outcome.num_device_alloc == simulated.num_device_alloc
        assert one.events[0] == NONE
        assert (np.diff(one.events) > 0).all()
        assert one.events[-1] < device_of(name).num_events
        assert (np.diff(one.reserved_bytes) != 0).all()
        assert not one.is_thinned


@pytest.mark.parametrize(("name", "is_complete"), [("survivors", True), ("late_start", False), ("wrapped", False)])
def test_the_state_before_is_what_the_blocks_of_before_take(name: str, is_complete: bool) -> None:
    before = device_of(name).history.before[2]
    assert (before == 0) == is_complete
    for one in what_if(device_of(name).trace):
        first = int(one.reserved_bytes[0])
        assert first == 0 if is_complete else first >= before


def test_a_curve_holds_what_was_reserved_after_every_event() -> None:
    trace = ullage.load(EXAMPLE)
    (one,) = [one for one in what_if(trace) if one.outcome.policy == "expandable_segments:True"]
    simulation = Simulation.of(trace)
    core = simulation.core_policy(Policy(expandable_segments=True), None)
    run = ullage._core.run_model(simulation.stream, core, keep_reserved=True)
    shown = one.reserved_bytes[np.searchsorted(one.events, simulation.stream.op_event, side="right") - 1]
    assert (shown == run.reserved_after).all()


def test_the_least_comes_first_without_twins_and_without_the_recorded_settings() -> None:
    for name in RECORDINGS:
        found = what_if(device_of(name).trace)
        peaks = [one.outcome.peak_reserved_bytes for one in found]
        assert peaks == sorted(peaks)
        curves = {(one.events.tobytes(), one.reserved_bytes.tobytes()) for one in found}
        assert len(curves) == len(found)
        recorded = Simulation.of(device_of(name).trace).recorded
        assert (recorded.conf() or "default") not in {one.outcome.policy for one in found}


def test_what_was_recorded_under_expandable_segments_is_not_tried_under_them_again() -> None:
    policies = {one.outcome.policy for one in what_if(device_of("stranded_weights.exp").trace)}
    assert "expandable_segments:True" not in policies
    assert "default" in policies or "cudaMallocAsync" in policies


def test_under_a_cap_those_that_fail_come_last_and_end_where_they_failed() -> None:
    trace = device_of("survivors").trace
    found = what_if(trace, cap_bytes=12 * GIB)
    fails = [one.outcome.is_oom for one in found]
    assert True in fails
    assert False in fails
    assert fails == sorted(fails)
    for one in found:
        assert one.reserved_bytes.max() <= 12 * GIB
        if one.outcome.first_oom:
            assert one.events[-1] <= one.outcome.first_oom.event


def test_where_the_first_request_fails_there_is_still_a_state_before(load: Load) -> None:
    builder = SnapshotBuilder()
    builder.alloc(700 * MIB)
    for one in what_if(load(builder), cap_bytes=100 * MIB):
        assert one.outcome.is_oom
        assert (one.events.tolist(), one.reserved_bytes.tolist()) == ([NONE], [0])


def breathing(num_rounds: int) -> SnapshotBuilder:
    """Return a program that reserves and gives back in every round; the most of all in one of them."""
    builder = SnapshotBuilder()
    for number in range(num_rounds):
        builder.free(builder.alloc((900 if number == num_rounds // 3 else 100 + 2 * (number % 7)) * MIB))
        builder.empty_cache()
    builder.alloc(3 * MIB)
    return builder


def test_a_curve_with_too_many_changes_keeps_its_peak_its_start_and_its_end(
    load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = load(breathing(1000))
    whole = {one.outcome.policy: one for one in what_if(trace)}
    monkeypatch.setattr(MODULE, "_MAX_POINTS", 400)
    found = what_if(trace)
    assert any(one.is_thinned for one in found)
    for one in found:
        assert len(one.events) == len(one.reserved_bytes) <= 400
        assert (np.diff(one.events) > 0).all()
        assert one.reserved_bytes.max() == one.outcome.peak_reserved_bytes >= 900 * MIB
        assert (one.events[0], one.reserved_bytes[0]) == (NONE, 0)
        assert one.events[-1] == trace.device().num_events - 1
        assert one.reserved_bytes[-1] < 100 * MIB
        everything = whole[one.outcome.policy]
        assert not everything.is_thinned
        points = set(zip(everything.events.tolist(), everything.reserved_bytes.tolist(), strict=True))
        assert set(zip(one.events.tolist(), one.reserved_bytes.tolist(), strict=True)) <= points


def test_at_most_four_thousand_changes_are_kept(load: Load) -> None:
    found = what_if(load(breathing(2500)))
    thinned = [one for one in found if one.is_thinned]
    assert thinned
    assert {len(one.events) for one in thinned} == {4000}


def test_a_recording_that_asks_for_nothing_has_no_curves(load: Load) -> None:
    builder = SnapshotBuilder()
    builder.alloc(700)
    with pytest.raises(UllageError, match="no requests to replay"):
        what_if(load(builder.snapshot() | {"device_traces": [[]]}))
    with pytest.raises(UllageError, match="no requests to replay"):
        what_if(load({"device_traces": [builder.events[:1]], "segments": []}))  # a segment, and nobody who asked for it
    with pytest.raises(UllageError, match="no device 3"):
        what_if(device_of("survivors").trace, device=3)


def test_a_what_if_is_plain_data_with_stable_keys() -> None:
    plain = what_if(device_of("survivors").trace)[0].to_json()
    assert json.loads(json.dumps(plain)) == plain
    assert plain.keys() == {"outcome", "setting", "events", "reserved_bytes", "is_thinned"}
    assert plain["outcome"]["outcome"] == "ok"


def test_a_setting_is_given_as_what_to_set_and_a_model_without_one_as_nothing() -> None:
    settings = {one.outcome.policy: one.setting for one in what_if(device_of("survivors").trace)}
    assert settings["expandable_segments:True"].endswith("ALLOC_CONF=expandable_segments:True")
    assert settings["cudaMallocAsync"].endswith("ALLOC_CONF=backend:cudaMallocAsync")


def test_a_long_recording_is_run_through_one_setting_of_each_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    trace = device_of("stranded_weights").trace
    many = {one.outcome.policy for one in what_if(trace)}
    monkeypatch.setattr(MODULE, "_WORK", 4)
    few = {one.outcome.policy for one in what_if(trace)}
    assert few < many
    assert few <= {
        "expandable_segments:True",
        "cudaMallocAsync",
        "roundup_power2_divisions:8",
        "max_split_size_mb:128",
    }
