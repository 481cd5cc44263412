"""Reserved memory over time under other settings, for drawing beside the recorded."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ullage import _core
from ullage.replay.models import MODELS, GrowingPool
from ullage.replay.outcome import Outcome
from ullage.replay.policy import Policy
from ullage.replay.simulate import Simulation
from ullage.replay.tuning import candidate_policies, is_known, num_cores
from ullage.replay.tuning_advice import variable
from ullage.trace import NONE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ullage.trace import Trace

_MIB = 1 << 20
_WORK = 4_000_000  # events simulated in all; a longer recording is run through fewer settings
_FEWEST = 3
_MAX_POINTS = 4000
_NUM_KEPT = 6

# What is tried of a recording too long for all of tune's settings: one of each kind.
_FEW: tuple[Policy | GrowingPool, ...] = (
    Policy(expandable_segments=True),
    MODELS["cudaMallocAsync"],
    Policy(roundup_power2_divisions=(8,) * 16),
    Policy(max_split_size_bytes=128 * _MIB),
)


@dataclass(frozen=True, kw_only=True)
class WhatIf:
    """What reserved memory would have been over time under one policy.

    Attributes:
        outcome: What the run did.
        setting: What to set in the environment for it; "" for the default settings, and for what PyTorch has no setting for.
        events: Event indices, ascending: -1, which is before the first, and where it changes.
        reserved_bytes: What is reserved after each of them.
        is_thinned: Whether it changed too often for every change to be kept. Of neighbours the highest is, so the peak is.
            The state before the first event and the last one are kept.
    """

    outcome: Outcome
    setting: str
    events: NDArray[np.int64]
    reserved_bytes: NDArray[np.int64]
    is_thinned: bool

    def to_json(self) -> dict[str, Any]:
        """Return it as plain data with stable keys."""
        return {
            "outcome": self.outcome.to_json(),
            "setting": self.setting,
            "events": self.events.tolist(),
            "reserved_bytes": self.reserved_bytes.tolist(),
            "is_thinned": self.is_thinned,
        }


def what_if(trace: Trace, *, device: int | None = None, cap_bytes: int | None = None) -> list[WhatIf]:
    """Simulate a recording under several settings, the one that reserves least first.

    Args:
        trace: The recording.
        device: The device's number; None: the one with the most events.
        cap_bytes: A limit on reserved memory; None: none. Policies under which a request fails come last.

    Raises:
        UllageError: There is no such device, or it has no requests.

    Cost: some four million simulated events, or three runs where that is more, spread over the cores.
    """
    simulation = Simulation.of(trace, device)
    policies = _policies(simulation)
    runs = _run(simulation, policies, cap_bytes)
    found = [_what_if(simulation, policy, cap_bytes, run) for policy, run in zip(policies, runs, strict=True)]
    found.sort(key=lambda one: (one.outcome.is_oom, one.outcome.peak_reserved_bytes))
    few = {policy.conf() for policy in _FEW}
    kept = found[:_NUM_KEPT] + [one for one in found[_NUM_KEPT:] if one.outcome.policy in few]
    return [one for index, one in enumerate(kept) if not _is_twin(one, kept[:index])]


def _policies(simulation: Simulation) -> list[Policy | GrowingPool]:
    num_runs = _WORK // max(simulation.device.num_events, 1)
    all_settings = [policy for policy in candidate_policies(None) if policy != simulation.recorded]
    rest = [policy for policy in all_settings if policy not in _FEW] if num_runs >= len(all_settings) else []
    few = [policy for policy in _FEW if policy != simulation.recorded][: max(num_runs - 1, _FEWEST)]
    version = simulation.device.trace.torch_version
    return [policy for policy in [*few, *rest] if isinstance(policy, GrowingPool) or is_known(policy, version)]


def _run(simulation: Simulation, policies: list[Policy | GrowingPool], cap_bytes: int | None) -> list[_core.Outcome]:
    simulation.core_policy(simulation.recorded, cap_bytes)  # what is worked out once is worked out before the threads

    def run(policy: Policy | GrowingPool) -> _core.Outcome:
        return _core.run_model(simulation.stream, simulation.core_policy(policy, cap_bytes), keep_reserved=True)

    with ThreadPoolExecutor(max_workers=num_cores()) as pool:
        return list(pool.map(run, policies))


def _is_twin(one: WhatIf, others: list[WhatIf]) -> bool:
    """Tell whether a curve is one that is there already: many settings do nothing to a given program."""
    return any(
        np.array_equal(one.events, other.events) and np.array_equal(one.reserved_bytes, other.reserved_bytes)
        for other in others
    )


def _what_if(simulation: Simulation, policy: Policy | GrowingPool, cap_bytes: int | None, run: _core.Outcome) -> WhatIf:
    events, reserved = _highest_by_event(simulation.stream.op_event, run.reserved_after)
    kept = np.flatnonzero(np.diff(reserved, prepend=-1))
    is_thinned = len(kept) > _MAX_POINTS
    if is_thinned:
        between = kept[1:-1]
        kept = np.concatenate((kept[:1], between[_highest(reserved[between])], kept[-1:]))
    return WhatIf(
        outcome=simulation.unranged(policy, cap_bytes, run),
        setting=_setting(simulation, policy),
        events=events[kept],
        reserved_bytes=reserved[kept],
        is_thinned=is_thinned,
    )


def _highest_by_event(
    op_events: NDArray[np.int32], reserved_bytes: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the events of a run, from before the first on, and the most that was reserved at each."""
    # The oldest blocks are asked for before the first event too.
    events: NDArray[np.int64] = np.append(np.int64(NONE), op_events[: len(reserved_bytes)])
    states: NDArray[np.int64] = np.append(np.int64(0), reserved_bytes)
    first = np.flatnonzero(np.diff(events, prepend=NONE - 1))
    return events[first], np.maximum.reduceat(states, first)


def _setting(simulation: Simulation, policy: Policy | GrowingPool) -> str:
    conf = policy.conf()
    if isinstance(policy, GrowingPool):
        conf = f"backend:{conf}" if conf == "cudaMallocAsync" else ""
    return f"{variable(simulation)}={conf}" if conf else ""


def _highest(reserved_bytes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the row of the highest of each run of neighbours."""
    num_runs = _MAX_POINTS - 2
    runs = np.arange(len(reserved_bytes)) * num_runs // len(reserved_bytes)
    order = np.lexsort((reserved_bytes, runs))
    last = np.flatnonzero(np.diff(runs[order], append=num_runs))
    return np.sort(order[last])
