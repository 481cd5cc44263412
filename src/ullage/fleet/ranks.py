"""Ranks beside each other: what each one's memory did, and which one is not like the others."""

from __future__ import annotations

from dataclasses import dataclass, replace
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from ullage.units import format_bytes, format_share

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ullage.trace import DeviceTrace

_NUM_COLUMNS = 120
_ODD = 4.0  # deviations from the median; among equal ranks 1 % of it counts as one
_FLOOR = 0.01


@dataclass(frozen=True, kw_only=True)
class Rank:
    """One GPU of one recording, beside others.

    Attributes:
        name: What it is called.
        num_events: Its recorded events.
        num_ooms: How often a request failed.
        peak_allocated_bytes: The largest sum of blocks handed out.
        peak_reserved_bytes: The largest sum of segments.
        highs: The most that was allocated in each of 120 equal parts of its time, in bytes; empty where nobody asked.
        aside: What sets it apart from the others, in a line; "" for nothing.
    """

    name: str
    num_events: int
    num_ooms: int
    peak_allocated_bytes: int
    peak_reserved_bytes: int
    highs: tuple[int, ...]
    aside: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the rank as plain data with stable keys."""
        return {
            "name": self.name,
            "num_events": self.num_events,
            "num_ooms": self.num_ooms,
            "peak_allocated_bytes": self.peak_allocated_bytes,
            "peak_reserved_bytes": self.peak_reserved_bytes,
            "highs": list(self.highs),
            "aside": self.aside,
        }


def rank_of(device: DeviceTrace, name: str, *, with_highs: bool = True) -> Rank:
    """Sum up one GPU of a recording.

    Args:
        device: The GPU.
        name: What to call it.
        with_highs: Whether to work out `highs`, which needs another pass over the events.
    """
    return Rank(
        name=name,
        num_events=device.num_events,
        num_ooms=device.history.num_ooms,
        peak_allocated_bytes=device.peak.allocated_bytes,
        peak_reserved_bytes=device.peak.reserved_bytes,
        highs=_highs(device) if with_highs else (),
    )


def _highs(device: DeviceTrace) -> tuple[int, ...]:
    if not device.num_events:
        return (device.end.allocated_bytes,) * _NUM_COLUMNS
    since, after = device.since_start_us, device.counters.allocated_bytes
    edges = np.linspace(0, float(since[-1]), _NUM_COLUMNS + 1)[:-1]
    first = np.searchsorted(since, edges, side="left")  # the first event of each column
    # A column begins with the state that the one before it left.
    at_begin = np.append(np.int64(device.history.before[1]), after)[first]
    is_empty = np.diff(first, append=len(after)) == 0
    highs = np.where(is_empty, at_begin, np.maximum(at_begin, np.maximum.reduceat(after, first)))
    return tuple(highs.tolist())


def odd_first(ranks: Sequence[Rank]) -> list[tuple[int, Rank]]:
    """Say what sets ranks apart, and put the odd ones first.

    A rank is odd where it ran out of memory and others did not, or where a figure of it is far from the median: more than
    four times the median distance from it, and more than 4 % of it. Of two ranks, neither is far from the median.

    Args:
        ranks: All ranks.

    Returns:
        The place of each in `ranks`, and the rank with what sets it apart; the order of the others stays.

    Example:
        >>> def rank(name, size):
        ...     sizes = {"peak_allocated_bytes": size, "peak_reserved_bytes": size}
        ...     return Rank(name=name, num_events=1000, num_ooms=0, highs=(), **sizes)
        >>> found = odd_first([rank("0", 4 << 30), rank("1", 4 << 30), rank("2", 5 << 30), rank("3", 4 << 30)])
        >>> [one.name for _, one in found], found[0][1].aside
        (['2', '0', '1', '3'], '1 GiB more allocated at its peak than the median rank (25 %)')
    """
    judged = [_judge(rank, ranks) for rank in ranks]
    order = sorted(range(len(ranks)), key=lambda index: -judged[index][0])
    return [(index, replace(ranks[index], aside=judged[index][1])) for index in order]


def _judge(rank: Rank, ranks: Sequence[Rank]) -> tuple[float, str]:
    if len(ranks) < 2:
        return 0.0, ""
    if rank.num_ooms and any(not other.num_ooms for other in ranks):
        return float("inf"), "ran out of memory, others did not"
    if len(ranks) < 3:
        return 0.0, ""
    found = [
        _distance(rank, ranks, lambda one: one.peak_allocated_bytes, "allocated at its peak"),
        _distance(rank, ranks, lambda one: one.peak_reserved_bytes, "reserved at its peak"),
        _distance(rank, ranks, lambda one: one.num_events, ""),
    ]
    return max(found, key=lambda pair: pair[0])


def _distance(rank: Rank, ranks: Sequence[Rank], figure: Callable[[Rank], int], words: str) -> tuple[float, str]:
    middle = median(figure(one) for one in ranks)
    usual = median(abs(figure(one) - middle) for one in ranks)
    more = figure(rank) - middle
    score = abs(more) / max(usual, _FLOOR * middle, 1)
    if score <= _ODD:
        return 0.0, ""
    share = format_share(round(abs(more)), round(middle))
    if words:
        than = "more" if more > 0 else "less"
        return score, f"{format_bytes(round(abs(more)))} {than} {words} than the median rank ({share})"
    return score, f"{share} {'more' if more > 0 else 'fewer'} events than the median rank"
