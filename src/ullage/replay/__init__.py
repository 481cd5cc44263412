"""Replay: what another allocator policy would have done with a recording's requests."""

from ullage.callable_room import make_callable
from ullage.replay.models import MODELS, GrowingPool, model_named, policy_from
from ullage.replay.outcome import Certainty, FailedRequest, Outcome
from ullage.replay.policy import Policy, parse_conf, recorded_policy
from ullage.replay.simulate import Simulation, replay
from ullage.replay.tuning import Tuning, tune

__all__ = [
    "MODELS",
    "Certainty",
    "FailedRequest",
    "GrowingPool",
    "Outcome",
    "Policy",
    "Simulation",
    "Tuning",
    "model_named",
    "parse_conf",
    "policy_from",
    "recorded_policy",
    "replay",
    "tune",
]

make_callable(__name__, replay)
