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
from ullage.units import format_bytes, format_share

if TYPE_CHECKING:
    from collections.abc import Callable

    from ullage.trace import Trace

_MIB = 1 << 20
_WORTH = 0.01  # of the recorded peak: a smaller gain is no reason to change a setting

_SPLITS_MB = (None, 32, 64, 128, 256, 512, 1024)
_ROUNDUPS = (0, 2, 4, 8)
_LARGE_MB = (20, 64)
_COLLECT = (0.6, 0.8)


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
        notes: What it costs, and what is known of these settings.
    """

    device: int
    baseline: Outcome
    best: Outcome
    candidates: tuple[Outcome, ...]
    verdict: str
    line: str
    notes: tuple[str, ...]

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
    policies = [simulation.recorded, *(p for p in candidate_policies(cap_bytes) if p != simulation.recorded)]
    ranked = sorted(_run_all(simulation, policies, cap_bytes, progress), key=lambda pair: _rank(pair[1]))
    best_policy, best_run = ranked[0]
    baseline_run = next(run for policy, run in ranked if policy == simulation.recorded)
    gain = baseline_run.peak_reserved - best_run.peak_reserved
    saves = baseline_run.num_ooms > best_run.num_ooms or gain >= _WORTH * baseline_run.peak_reserved
    if not saves:
        best_policy = simulation.recorded
    baseline = simulation.outcome(simulation.recorded, cap_bytes)
    best = baseline if not saves else simulation.outcome(best_policy, cap_bytes)
    candidates = tuple(simulation.unranged(policy, cap_bytes, run) for policy, run in ranked)
    return Tuning(
        device=simulation.device.number,
        baseline=baseline,
        best=best,
        candidates=candidates,
        verdict=_verdict(simulation, baseline, best, saves, cap_bytes),
        line=f"{_variable(simulation)}={best.policy}" if saves and best.policy != "default" else "",
        notes=_notes(simulation, baseline, best, best_policy, saves),
    )


def _run_all(
    simulation: Simulation,
    policies: list[Policy],
    cap_bytes: int | None,
    progress: Callable[[int, int], None] | None,
) -> list[tuple[Policy, _core.Outcome]]:
    runs = []
    simulation.core_policy(simulation.recorded, cap_bytes)  # what is worked out once is worked out before the threads
    with ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as pool:
        for policy, run in zip(policies, pool.map(lambda p: simulation.run(p, cap_bytes), policies), strict=True):
            runs.append((policy, run))
            if progress is not None:
                progress(len(runs), len(policies))
    return runs


def _rank(run: _core.Outcome) -> tuple[bool, int, int]:
    return (run.num_ooms > 0, run.peak_reserved, run.num_device_alloc + run.num_device_free)


def _variable(simulation: Simulation) -> str:
    """Name the variable that this torch reads: the old name works everywhere, and 2.9.1 ignores the new one."""
    return "PYTORCH_CUDA_ALLOC_CONF"


def _verdict(simulation: Simulation, baseline: Outcome, best: Outcome, saves: bool, cap_bytes: int | None) -> str:
    before, after = baseline.peak_reserved_bytes, best.peak_reserved_bytes
    if cap_bytes is not None and baseline.is_oom and not best.is_oom:
        return f"It fits into {format_bytes(cap_bytes)} with one setting; as recorded, it runs out of memory."
    if cap_bytes is not None and best.is_oom:
        return f"No setting makes it fit into {format_bytes(cap_bytes)}."
    if saves:
        return (
            f"{format_bytes(before - after)} less reserved ({format_share(before - after, before)}) with one setting."
        )
    live = simulation.device.peak.active_bytes
    return (
        f"No setting helps: {format_bytes(before)} are reserved for {format_bytes(live)} that are live at once, "
        f"{format_share(live, before)} of it."
    )


def _notes(simulation: Simulation, baseline: Outcome, best: Outcome, policy: Policy, saves: bool) -> tuple[str, ...]:
    notes = []
    if not saves:
        notes.append(
            "what would help is in ullage explain: the lines that pin free memory, and what is live at the peak"
        )
        return tuple(notes)
    calls = best.num_device_alloc + best.num_device_free
    before = baseline.num_device_alloc + baseline.num_device_free
    if calls > 1.5 * before + 10:
        notes.append(f"it makes {calls:,} driver calls in place of {before:,}; each one waits for the GPU")
    if best.peak_allocated_bytes > baseline.peak_allocated_bytes:
        more = best.peak_allocated_bytes - baseline.peak_allocated_bytes
        notes.append(f"rounding makes blocks larger: {format_bytes(more)} more allocated at the peak")
    if policy.expandable_segments:
        notes.append("expandable segments: no IPC of tensors before torch 2.7, and not with torch_memory_saver")
    if policy.large_segment_size_bytes != 20 * _MIB:
        notes.append("large_segment_size_mb needs torch 2.11 or newer")
    return tuple(notes)
