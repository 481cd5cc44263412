from __future__ import annotations

import pytest

import ullage
from tests.recordings import EXAMPLE, device_of
from ullage.replay import Policy, Simulation, tune
from ullage.replay.tuning import candidate_policies, is_known


def test_the_settings_tried_are_many_and_none_twice() -> None:
    confs = [policy.conf() for policy in candidate_policies(None)]
    assert len(confs) == len(set(confs)) >= 60
    assert not any("max_split" in conf and "expandable" in conf for conf in confs)


def test_garbage_collection_is_tried_only_under_a_cap() -> None:
    assert not any(policy.garbage_collection_threshold for policy in candidate_policies(None))
    assert any(policy.garbage_collection_threshold for policy in candidate_policies(1 << 30))


def test_the_best_setting_comes_first_with_the_line_to_set() -> None:
    tuning = tune(ullage.load(EXAMPLE))
    assert tuning.line == "PYTORCH_ALLOC_CONF=expandable_segments:True"  # recorded with torch 2.11
    assert any("PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True" in note for note in tuning.notes)
    assert tuning.best.peak_reserved_bytes == min(one.peak_reserved_bytes for one in tuning.candidates)
    assert tuning.best.peak_reserved_bytes < 0.7 * tuning.baseline.peak_reserved_bytes


def test_where_nothing_helps_it_says_so_and_sets_nothing() -> None:
    tuning = tune(device_of("stranded_weights_first").trace)
    assert tuning.line == ""
    assert tuning.verdict.startswith("No setting helps")
    assert tuning.best == tuning.baseline


def test_where_nothing_helps_the_lines_in_the_way_and_the_bound_are_named() -> None:
    trace = ullage.load("examples/train_varlen.pickle.xz")
    tuning = tune(trace)
    assert tuning.line == ""
    assert tuning.bound_bytes == ullage.place(trace, seconds=0.2).height_bytes <= tuning.best.peak_reserved_bytes
    assert any("beside blocks of these lines" in note and "workloads.py:34" in note for note in tuning.notes)
    assert any("the bound:" in note or "no more to win" in note for note in tuning.notes)


def test_where_nothing_fits_it_is_said_whether_a_plan_would() -> None:
    trace = device_of("survivors").trace
    bound = tune(trace).bound_bytes
    for cap, answer in ((bound, "would fit"), (bound - 1, "does not fit either")):
        tuning = tune(trace, cap_bytes=cap)
        assert tuning.line == ""
        assert tuning.notes[-1].endswith(answer)


@pytest.mark.parametrize(
    ("torch", "is_kept"), [("2.5 to 2.7", False), ("2.10 or 2.11", True), ("2.12 or newer", True), ("", True)]
)
def test_a_setting_that_the_torch_does_not_know_is_not_tried(torch: str, is_kept: bool) -> None:
    assert is_known(Policy(large_segment_size_bytes=64 << 20), torch) == is_kept
    assert is_known(Policy(expandable_segments=True), torch)


def test_a_setting_that_fits_beats_a_smaller_peak_that_does_not() -> None:
    tuning = tune(device_of("survivors").trace, cap_bytes=16 << 30)
    assert tuning.baseline.is_oom
    assert not tuning.best.is_oom
    assert "fits" in tuning.verdict


def test_progress_counts_up_to_all() -> None:
    seen: list[tuple[int, int]] = []
    tune(device_of("stranded_weights").trace, progress=lambda done, whole: seen.append((done, whole)))
    assert seen[-1][0] == seen[-1][1] == len(seen)


def test_a_run_is_the_same_each_time() -> None:
    simulation = Simulation.of(ullage.load(EXAMPLE))
    peaks = {simulation.run(Policy(expandable_segments=True), None).peak_reserved for _ in range(3)}
    assert len(peaks) == 1
