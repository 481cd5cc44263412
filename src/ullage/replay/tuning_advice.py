"""What a search over settings says in words: the verdict, the line to set, what it costs, and what else would help."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ullage.replay.placement import place
from ullage.units import format_bytes, format_share

if TYPE_CHECKING:
    from ullage.replay.outcome import Outcome
    from ullage.replay.policy import Policy
    from ullage.replay.simulate import Simulation

_MIB = 1 << 20

# From 2.10 on the old name is warned of as deprecated (2.10, 2.11) or documented as an alias; 2.9.1 does not take
# expandable_segments from the new one (pytorch#183387).
_WANTS_NEW_NAME = (2, 10)

_LINES = 3  # of those in the way that are named
_CLOSE = 0.01  # of reserved: nearer than this to the bound, nothing is left to win

_MOST_TO_PLACE = 150_000
"""Requests up to which the bound is a plan's height; a longer recording's is the most that is live at once."""


def variable(simulation: Simulation) -> str:
    """Name the environment variable that the recorded torch wants; the older name works with all."""
    from ullage.doctor import TorchRange

    torch = TorchRange.parse(simulation.device.trace.torch_version)
    return "PYTORCH_CUDA_ALLOC_CONF" if torch is None or torch.low < _WANTS_NEW_NAME else "PYTORCH_ALLOC_CONF"


@dataclass(frozen=True, kw_only=True)
class Bound:
    """How low reserved could be.

    Attributes:
        bytes: The height of a plan that knows all lifetimes beforehand; where the recording is too long to plan at once,
            the most that is live.
        is_planned: Which of the two it is.
    """

    bytes: int
    is_planned: bool


def bound(simulation: Simulation) -> Bound:
    """Work out how low reserved could be."""
    trace, number = simulation.device.trace, simulation.device.number
    if simulation.stream.num_requests <= _MOST_TO_PLACE:
        return Bound(bytes=place(trace, device=number, seconds=0.2).height_bytes, is_planned=True)
    return Bound(bytes=simulation.device.peak.active_bytes, is_planned=False)


def verdict(simulation: Simulation, baseline: Outcome, best: Outcome, saves: bool) -> str:
    """Say in one line what the search found."""
    before, after, cap = baseline.peak_reserved_bytes, best.peak_reserved_bytes, baseline.cap_bytes
    if cap is not None and baseline.is_oom and not best.is_oom:
        return f"It fits into {format_bytes(cap)} with one setting; as recorded, it runs out of memory."
    if cap is not None and best.is_oom:
        return f"No setting makes it fit into {format_bytes(cap)}."
    if saves:
        return (
            f"{format_bytes(before - after)} less reserved ({format_share(before - after, before)}) with one setting."
        )
    live = simulation.device.peak.active_bytes
    return (
        f"No setting helps: {format_bytes(before)} are reserved for {format_bytes(live)} that are live at once, "
        f"{format_share(live, before)} of it."
    )


def notes(
    simulation: Simulation, baseline: Outcome, best: Outcome, policy: Policy, saves: bool, lowest: Bound
) -> tuple[str, ...]:
    """Return what the best setting costs and what is known of it; where none helps, what would."""
    found = [*_costs(baseline, best), *_known(simulation, best, policy)] if saves else _pins(simulation)
    return (*found, _bound_note(best, lowest))


def _costs(baseline: Outcome, best: Outcome) -> list[str]:
    found: list[str] = []
    if baseline.is_oom:
        return found  # it ended early: there is nothing to compare with
    calls = best.num_device_alloc + best.num_device_free
    before = baseline.num_device_alloc + baseline.num_device_free
    if calls > 1.5 * before + 10:
        found.append(f"it makes {calls:,} driver calls in place of {before:,}; each one waits for the GPU")
    if best.peak_allocated_bytes > baseline.peak_allocated_bytes:
        more = best.peak_allocated_bytes - baseline.peak_allocated_bytes
        found.append(f"blocks come out larger: {format_bytes(more)} more allocated at the peak")
    return found


def _known(simulation: Simulation, best: Outcome, policy: Policy) -> list[str]:
    from ullage.doctor import Setup, TorchRange, examine

    torch = TorchRange.parse(simulation.device.trace.torch_version)
    name = variable(simulation)
    setup = Setup(conf=best.policy, variable=name, torch=torch) if best.policy != "default" else Setup()
    found = [f"{advice.title} ({advice.source})" for advice in examine(setup)]
    if policy.expandable_segments:
        if torch is None or torch.low < (2, 7):
            found.append("expandable segments: tensors cannot be sent to other processes before torch 2.7")
        found.append(
            "expandable segments do not work with torch_memory_saver, nor in pools with an allocator of their own"
        )
    if best.policy != "default":
        other = "PYTORCH_ALLOC_CONF" if name == "PYTORCH_CUDA_ALLOC_CONF" else "PYTORCH_CUDA_ALLOC_CONF"
        when = "torch 2.10 and newer also take" if name == "PYTORCH_CUDA_ALLOC_CONF" else "torch before 2.10 takes"
        found.append(f"{when} {other}={best.policy}")
    return found


def _pins(simulation: Simulation) -> list[str]:
    """Name the lines whose blocks lie in the way, as `ullage explain` does, and what a change of order would free."""
    from ullage.explain import explain

    held = [
        one
        for one in explain(simulation.device.trace, device=simulation.device.number)
        if one.kind == "fragmentation" and one.evidence.get("pinning")
    ]
    if not held:
        return []
    lines = []
    for pin in held[0].evidence["pinning"][:_LINES]:
        frame = pin["site"][0] if pin["site"] else {"file": "requests without a Python stack", "line": 0}
        file = str(frame["file"]).rpartition("/")[2]
        place_in_code = f"{file}:{frame['line']}" if frame["line"] else file
        lines.append(f"{place_in_code} ({format_bytes(pin['held_back_bytes'])})")
    return [
        f"what would: free memory beside blocks of these lines can serve nothing larger: {', '.join(lines)}; "
        "make what lives long before what comes and goes"
    ]


def _bound_note(best: Outcome, lowest: Bound) -> str:
    amount, left = format_bytes(lowest.bytes), best.peak_reserved_bytes - lowest.bytes
    needs = f"a plan that knows every lifetime takes {amount}" if lowest.is_planned else f"{amount} are live at once"
    how = " (ullage replay FILE --model placement)" if lowest.is_planned else ""
    if best.cap_bytes is not None and best.is_oom:
        return f"{needs}{how}: that {'would fit' if lowest.bytes <= best.cap_bytes else 'does not fit either'}"
    if left < _CLOSE * best.peak_reserved_bytes:
        return f"there is no more to win: {needs}{how}"
    return f"the bound: {needs}, {format_bytes(left)} less{how}"
