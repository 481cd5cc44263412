"""Steps come from annotations, else from a site that is met once in each round of the loop."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from tests.unit.conftest import Load
from tests.unit.snapshot_builder import MIB, SnapshotBuilder, merged
from ullage.trace.steps import Steps


def loop(num_steps: int, annotation: str = "", num_inner: int = 3) -> SnapshotBuilder:
    """Return a loop of `num_steps`: an input, and `num_inner` layers of one line each."""
    one = SnapshotBuilder()
    one.alloc(3 * MIB, "train.py:1 main")
    for step in range(num_steps):
        if annotation:
            one.annotate(f"{annotation}{step}" if annotation.endswith("#") else annotation)
        held = [one.alloc(700, "train.py:5 step < train.py:2 main")]
        held += [one.alloc(900 + layer, f"train.py:{6 + layer} step < train.py:2 main") for layer in range(num_inner)]
        one.free(*held)
    return one


@pytest.mark.parametrize(
    "name", ["ProfilerStep#", "Optimizer.step#AdamW.step", "train_step", "training step", "iteration"]
)
def test_annotations_that_mark_steps_are_taken(name: str, load: Load) -> None:
    steps = load(loop(6, name)).device().steps
    assert len(steps) == 6
    assert steps.source.startswith("annotation")


@pytest.mark.parametrize("name", ["forward", "constrain", "literature", "_compile.compile_inner (dynamo_timed)"])
def test_other_annotations_are_not(name: str, load: Load) -> None:
    steps = load(loop(6, name)).device().steps
    assert (len(steps), steps.source) == (6, "the period of the request stream")


def test_without_annotations_the_period_of_the_requests_gives_the_steps(load: Load) -> None:
    device = load(loop(9)).device()
    assert len(device.steps) == 9
    assert device.steps.source == "the period of the request stream"
    leads = device.trace.sites.lead_of(device.events.site[device.steps.starts])
    assert {str(device.trace.sites.frame(lead)) for lead in leads.tolist()} == {"train.py:5 step"}


@pytest.mark.parametrize("num_steps", [0, 1, 3])
def test_fewer_than_four_rounds_are_no_loop(num_steps: int, load: Load) -> None:
    assert len(load(loop(num_steps, "ProfilerStep#")).device().steps) == 0


def test_requests_in_no_order_are_no_loop(load: Load) -> None:
    one = SnapshotBuilder()
    for number in range(40):
        one.alloc(700, f"script.py:{number} main")
    assert len(load(one).device().steps) == 0


def test_events_fall_into_the_step_that_began_before_them(load: Load) -> None:
    device = load(loop(5, "ProfilerStep#")).device()
    starts = device.steps.starts
    assert device.steps.step_of(starts).tolist() == [1, 2, 3, 4, 5]
    assert device.steps.step_of(starts[:1] - 1).tolist() == [0]


def test_a_device_without_annotations_of_its_own_uses_the_others(load: Load) -> None:
    annotated, plain = loop(6, "ProfilerStep#"), SnapshotBuilder(device=1)
    for _ in range(6):
        plain.free(plain.alloc(700, "train.py:5 step"))
        plain.wait(60)
    trace = load(merged(annotated.snapshot(), plain.snapshot()))
    assert trace.device(1).steps.source == "annotation 'ProfilerStep'"


@pytest.mark.parametrize("marks_end", [False, True])
def test_the_bounds_of_steps_are_where_events_fall_into_the_next(marks_end: bool) -> None:
    steps = Steps(starts=np.asarray([3, 5, 9]), source="", marks_end=marks_end)
    bounds = steps.bounds(12).tolist()
    assert bounds == ([0, 3, 5, 12] if marks_end else [3, 5, 9, 12])
    for step, (first, end) in enumerate(pairwise(bounds), 1):
        assert set(steps.step_of(np.arange(first, end, dtype=np.int32)).tolist()) == {step}
    assert len(Steps(starts=np.empty(0, np.int64), source="").bounds(12)) == 0
