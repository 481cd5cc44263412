"""Replay: what another allocator policy would have done with a recording's requests."""

from ullage.callable_room import make_callable
from ullage.replay.minimalloc import Buffers, read_minimalloc
from ullage.replay.models import MODELS, GrowingPool, model_named, policy_from
from ullage.replay.outcome import Certainty, FailedRequest, Outcome
from ullage.replay.placement import Placement, load_plan, place, place_buffers, place_step, placement_outcome
from ullage.replay.policy import Policy, parse_conf, recorded_policy
from ullage.replay.simulate import Simulation, replay
from ullage.replay.step_placement import Window
from ullage.replay.tuning import Tuning, tune
from ullage.replay.what_if import WhatIf, what_if

__all__ = [
    "MODELS",
    "Buffers",
    "Certainty",
    "FailedRequest",
    "GrowingPool",
    "Outcome",
    "Placement",
    "Policy",
    "Simulation",
    "Tuning",
    "WhatIf",
    "Window",
    "load_plan",
    "model_named",
    "parse_conf",
    "place",
    "place_buffers",
    "place_step",
    "placement_outcome",
    "policy_from",
    "read_minimalloc",
    "recorded_policy",
    "replay",
    "tune",
    "what_if",
]

make_callable(__name__, replay)
