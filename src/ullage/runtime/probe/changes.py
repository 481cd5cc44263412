"""What changed on a machine between two probes of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ullage.units import format_rate

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ullage.runtime.probe.result import ProbeResult

SAME_WITHIN = 0.05
"""By so much two probes of a machine may differ, and its speeds are called the same."""

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
    """What differs from an earlier probe of the same machine; printed, a sentence, or nothing where all is as it was.

    Attributes:
        since: When the earlier one was made, ISO 8601.
        num_speeds: How many speeds both measured.
        changed: Those that differ by more than 5 %, the largest change first.
    """

    since: str
    num_speeds: int
    changed: tuple[SpeedChange, ...]

    def __str__(self) -> str:
        if not self.changed:
            return ""
        alone = _one_for_each_way(self.changed)
        named = [
            f"{one.name.replace('_', ' ')} {format_rate(one.was_bytes_per_s)}, now {format_rate(one.bytes_per_s)} "
            f"({100 * one.share:+.0f} %)"
            for one in alone[:_NAMED]
        ]
        more = len(alone) - len(named)
        rest = f"; and {more} more" if more else ""
        same = self.num_speeds - len(self.changed)
        since = self.since[:16].replace("T", " ")
        return f"Not as in the probe of {since}: {'; '.join(named)}{rest}. {same} of {self.num_speeds} are within 5 %."


def _one_for_each_way(changed: Iterable[SpeedChange]) -> list[SpeedChange]:
    """Keep the first change of each memory in each direction: a link that became slow shows in several speeds."""
    kept: dict[tuple[str, bool], SpeedChange] = {}
    for one in changed:
        memory, *rest = one.name.removeprefix("copy ").split()
        kept.setdefault((memory, rest[-1:] in (["write"], ["to_host"])), one)
    return list(kept.values())


def changes_between(before: ProbeResult, now: ProbeResult) -> Changes:
    """Compare two probes of one machine.

    Args:
        before: The earlier.
        now: The later.
    """
    was = dict(speeds(before))
    both = [
        SpeedChange(name=name, was_bytes_per_s=was[name], bytes_per_s=value)
        for name, value in speeds(now)
        if name in was
    ]
    changed = sorted((one for one in both if abs(one.share) > SAME_WITHIN), key=lambda one: -abs(one.share))
    return Changes(since=before.machine.date, num_speeds=len(both), changed=tuple(changed))


def speeds(result: ProbeResult) -> Iterator[tuple[str, int]]:
    """Yield the name and the bytes a second of what two probes of a machine agree on: of blocks larger than any cache.

    Not of them are the first reads of the GPU's own memory, which happen once.

    Args:
        result: A probe.
    """
    for sample in result.device:
        if sample.bytes_per_s is not None:
            yield sample.name, sample.bytes_per_s
    for sample in result.strides:
        if sample.bytes_per_s is not None:
            yield f"stride {sample.name}", sample.bytes_per_s
    for curve in result.copies:
        if curve.top_bytes_per_s is not None:
            yield f"copy {curve.kind} {curve.direction}", curve.top_bytes_per_s
    for figures in result.kinds:
        for one in figures.samples:
            is_first_of_all = one is figures.first_read and figures.kind in ("device", "stream_ordered")
            if one is not None and one.bytes_per_s is not None and not is_first_of_all:
                yield f"{figures.kind} {one.name}", one.bytes_per_s
