"""Searches the allocator's settings for those that reserve least."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Any

from ullage import _core
from ullage.replay.outcome import Outcome
from ullage.replay.policy import Policy
from ullage.replay.simulate import Simulation
from ullage.replay.tuning_advice import bound, notes, variable, verdict

if TYPE_CHECKING:
    from collections.abc import Callable

    from ullage.trace import Trace

_MIB = 1 << 20
_WORTH = 0.01  # of the recorded peak: a smaller gain is no reason to change a setting

_SPLITS_MB = (None, 32, 64, 128, 256, 512, 1024)
_ROUNDUPS = (0, 2, 4, 8)
_LARGE_MB = (20, 64)
_COLLECT = (0.6, 0.8)
_KNOWS_LARGE_SEGMENT = (2, 11)


@dataclass(frozen=True, kw_only=True)
class Tuning:
    """What a search over settings found.

    Attributes:
        device: The device's number.
        baseline: The recorded settings.
        best: The best of all; the baseline where nothing is better.
        candidates: All that were tried, best first.
        verdict: The answer in one line.
        line: What to set in the environment; "" where nothing helps.
        notes: What it costs, what is known of these settings, and what else would help.
        bound_bytes: The height of a placement plan; of a long recording, the most that is live at once.
    """

    device: int
    baseline: Outcome
    best: Outcome
    candidates: tuple[Outcome, ...]
    verdict: str
    line: str
    notes: tuple[str, ...]
    bound_bytes: int

    def to_json(self) -> dict[str, Any]:
        """Return the search as plain data with stable keys."""
        return {
            "device": self.device,
            "baseline": self.baseline.to_json(),
            "best": self.best.to_json(),
            "candidates": [outcome.to_json() for outcome in self.candidates],
            "verdict": self.verdict,
            "line": self.line,
            "notes": list(self.notes),
            "bound_bytes": self.bound_bytes,
        }


def candidate_policies(cap_bytes: int | None) -> list[Policy]:
    """Return the settings worth trying: each alone, and the combinations that PyTorch supports.

    `max_split_size_mb` with `expandable_segments` is left out: it crashes or does nothing (pytorch#119452). Garbage
    collection does nothing without a cap.
    """
    plain = [
        Policy(
            max_split_size_bytes=split * _MIB if split else None,
            roundup_power2_divisions=(roundup,) * 16,
            large_segment_size_bytes=large * _MIB,
        )
        for split, roundup, large in product(_SPLITS_MB, _ROUNDUPS, _LARGE_MB)
    ]
    expandable = [
        Policy(
            expandable_segments=True, roundup_power2_divisions=(roundup,) * 16, large_segment_size_bytes=large * _MIB
        )
        for roundup, large in product(_ROUNDUPS, _LARGE_MB)
    ]
    policies = plain + expandable
    if cap_bytes is not None:
        policies += [
            replace(policy, garbage_collection_threshold=threshold)
            for policy, threshold in product(plain[: len(_ROUNDUPS) * len(_LARGE_MB)], _COLLECT)
        ]
    return policies


def is_known(policy: Policy, torch_version: str) -> bool:
    """Tell whether a torch takes the settings of a policy; one that it does not know would stop the program.

    Args:
        policy: The settings.
        torch_version: A version or a range, as `Trace.torch_version` says it; "" where nothing is known.
    """
    from ullage.doctor import TorchRange

    torch = TorchRange.parse(torch_version)
    return torch is None or policy.large_segment_size_bytes == 20 * _MIB or not torch.is_before(_KNOWS_LARGE_SEGMENT)


def tune(
    trace: Trace,
    *,
    cap_bytes: int | None = None,
    device: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Tuning:
    """Search the settings for the lowest peak of reserved memory.

    Args:
        trace: The recording.
        cap_bytes: A limit on reserved memory; None: none. Settings under which a request fails rank last.
        device: The device's number; None: the one with the most events.
        progress: Called with how many settings are done, and how many there are.

    Raises:
        UllageError: There is no such device, or it has no requests.

    Cost: one run for each setting (64 or 80), spread over the cores; certainty is worked out for the best ones only.
    """
    simulation = Simulation.of(trace, device)
    others = (policy for policy in candidate_policies(cap_bytes) if is_known(policy, trace.torch_version))
    policies = [simulation.recorded, *(policy for policy in others if policy != simulation.recorded)]
    ranked = sorted(_run_all(simulation, policies, cap_bytes, progress), key=lambda pair: _rank(pair[1]))
    best_policy, best_run = ranked[0]
    baseline_run = next(run for policy, run in ranked if policy == simulation.recorded)
    gain = baseline_run.peak_reserved - best_run.peak_reserved
    # Where a request fails, the run ended there, and its peak says nothing.
    saves = not best_run.num_ooms and (baseline_run.num_ooms > 0 or gain >= _WORTH * baseline_run.peak_reserved)
    if not saves:
        best_policy = simulation.recorded
    baseline = simulation.outcome(simulation.recorded, cap_bytes)
    best = baseline if not saves else simulation.outcome(best_policy, cap_bytes)
    lowest = bound(simulation)
    candidates = tuple(simulation.unranged(policy, cap_bytes, run) for policy, run in ranked)
    return Tuning(
        device=simulation.device.number,
        baseline=baseline,
        best=best,
        candidates=candidates,
        verdict=verdict(simulation, baseline, best, saves),
        line=f"{variable(simulation)}={best.policy}" if saves and best.policy != "default" else "",
        notes=notes(simulation, baseline, best, best_policy, saves, lowest),
        bound_bytes=lowest.bytes,
    )


def _run_all(
    simulation: Simulation,
    policies: list[Policy],
    cap_bytes: int | None,
    progress: Callable[[int, int], None] | None,
) -> list[tuple[Policy, _core.Outcome]]:
    runs = []
    simulation.core_policy(simulation.recorded, cap_bytes)  # what is worked out once is worked out before the threads
    with ThreadPoolExecutor(max_workers=num_cores()) as pool:
        for policy, run in zip(policies, pool.map(lambda p: simulation.run(p, cap_bytes), policies), strict=True):
            runs.append((policy, run))
            if progress is not None:
                progress(len(runs), len(policies))
    return runs


def num_cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _rank(run: _core.Outcome) -> tuple[bool, int, int]:
    return (run.num_ooms > 0, run.peak_reserved, run.num_device_alloc + run.num_device_free)
