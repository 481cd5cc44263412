"""What changed on a machine between two probes of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ullage.units import format_rate

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ullage.runtime.probe.result import ProbeResult

_GPU, _L2 = "the GPU's own memory", "the GPU's L2"
_USUAL = {
    _GPU: 0.05,
    _L2: 0.05,
    "pinned": 0.1,
    "mapped": 0.1,
    "managed_prefetched": 0.2,
    "pageable": 1 / 3,
    "pageable_in_place": 1 / 3,
    "managed_by_fault": 1 / 3,
}
"""By which share two probes differ where nothing changed but what else host and link have to do.

More than any of twenty pairs on nine hosts did: 0.3 %, 8 %, prefetched 12 %, and 31 % (`benchmarks/results/probe_pairs.json`).
"""
_NAMED = 4


@dataclass(frozen=True, kw_only=True)
class SpeedChange:
    """A speed that is not what it was.

    Attributes:
        name: The speed's.
        was_bytes_per_s: What it was.
        bytes_per_s: What it is.
    """

    name: str
    was_bytes_per_s: int
    bytes_per_s: int

    @property
    def share(self) -> float:
        """By which share of what it was it grew; below 0: it fell."""
        return self.bytes_per_s / self.was_bytes_per_s - 1


@dataclass(frozen=True, kw_only=True)
class Changes:
    """What differs from an earlier probe of the same GPU; printed, sentences, or nothing where all is as it was.

    Attributes:
        since: When the earlier one was made, ISO 8601, UTC.
        num_speeds: How many speeds both measured.
        changed: Those that differ by more than is usual for them, the largest change first.
        missing: The names of those that only the earlier one measured.
    """

    since: str
    num_speeds: int
    changed: tuple[SpeedChange, ...]
    missing: tuple[str, ...] = ()

    def __str__(self) -> str:
        since, said = f"the probe of {self.since[:16].replace('T', ' ')} UTC", []
        if self.changed:
            same = self.num_speeds - len(self.changed)
            named = _listed([_described(one) for one in _one_for_each_cause(self.changed)])
            said.append(f"Not as in {since}: {named}. {same} of {self.num_speeds} speeds are as they were.")
        if self.missing:
            lost = dict.fromkeys(_kind(name).replace("_", " ") for name in self.missing)
            said.append(f"Measured in {since}, and not now: {', '.join(lost)}.")
        return " ".join(said)


def changes_between(before: ProbeResult, now: ProbeResult) -> Changes | None:
    """Compare two probes of one GPU.

    Args:
        before: The earlier.
        now: The later.

    Returns:
        None where they are not of one GPU, or do not say of which.
    """
    if not now.machine.uuid or now.machine.uuid != before.machine.uuid:
        return None
    was, is_now = dict(speeds(before)), dict(speeds(now))
    both = [
        SpeedChange(name=name, was_bytes_per_s=was[name], bytes_per_s=value)
        for name, value in is_now.items()
        if name in was
    ]
    changed = [one for one in both if abs(one.share) > _USUAL[_memory(one.name)]]
    return Changes(
        since=before.machine.date,
        num_speeds=len(both),
        changed=tuple(sorted(changed, key=lambda one: -abs(one.share))),
        missing=tuple(name for name in was if name not in is_now),
    )


def speeds(result: ProbeResult) -> Iterator[tuple[str, int]]:
    """Yield the name and the bytes a second of what probes of a machine can be compared by: of blocks larger than any cache.

    Not of them are the first reads of the GPU's own memory, which happen once.

    Args:
        result: A probe.
    """
    for sample in result.device:
        if sample.bytes_per_s:
            yield sample.name, sample.bytes_per_s
    for sample in result.strides:
        if sample.bytes_per_s:
            yield f"stride {sample.name}", sample.bytes_per_s
    for curve in result.copies:
        if curve.top_bytes_per_s:
            yield f"copy {curve.kind} {curve.direction}", curve.top_bytes_per_s
    for figures in result.kinds:
        for one in figures.samples:
            is_first_of_all = one is figures.first_read and figures.kind in ("device", "stream_ordered")
            if one is not None and one.bytes_per_s and not is_first_of_all:
                yield f"{figures.kind} {one.name}", one.bytes_per_s


def _memory(name: str) -> str:
    """Return which memory a speed is of; what was moved to the GPU is read again at the speed of its own."""
    kind = _kind(name)
    if kind not in _USUAL or (kind.startswith("managed") and name.endswith(" read")):
        return _GPU
    return kind


def _kind(name: str) -> str:
    """Return which kind of memory a speed was measured on."""
    first, *rest = name.removeprefix("copy ").split()
    if first == "l2_read":
        return _L2
    return first if rest and first != "stride" else _GPU


def _one_for_each_cause(changed: Sequence[SpeedChange]) -> list[SpeedChange]:
    """Keep one change of each memory, direction and sign: a link that became slow shows in several speeds."""
    causes: dict[tuple[str, bool, bool], list[SpeedChange]] = {}
    for one in changed:
        memory = _memory(one.name)
        is_back = memory != _GPU and one.name.endswith(("write", "to_host"))
        causes.setdefault((memory, is_back, one.share > 0), []).append(one)
    return [min(ones, key=lambda one: one.name.startswith("stride")) for ones in causes.values()]


def _described(one: SpeedChange) -> str:
    memory, way = _memory(one.name), one.name.split()[-1]
    how = {"to_gpu": "copied to the GPU", "to_host": "copied to the host", "l2_read": "read"}.get(way, way)
    if one.name.startswith("stride"):
        how = f"4 bytes in each {way} bytes"
    rates = f"{format_rate(one.was_bytes_per_s)}, now {format_rate(one.bytes_per_s)}"
    return f"{memory.replace('_', ' ')}, {how.replace('_', ' ')}: {rates} ({100 * one.share:+.1f} %)"


def _listed(items: Sequence[str]) -> str:
    more = len(items) - _NAMED
    return "; ".join(items[:_NAMED]) + (f"; and {more} more" if more > 0 else "")
