"""Steps: the iterations of the user's loop, from annotations or from the period of the request stream."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ullage.trace.tables import NONE, Action

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ullage.trace.model import DeviceTrace

MIN_STEPS = 4

_MAX_CANDIDATES = 24
_MAX_CELLS = 20_000_000
_MIN_REGULARITY = 0.5


@dataclass(frozen=True, kw_only=True)
class Steps:
    """Where the steps begin.

    `starts` holds event indices, ascending; step k (from 1) is [starts[k - 1], starts[k]). `source` says in words what
    marked them.
    """

    starts: NDArray[np.int64]
    source: str

    def __len__(self) -> int:
        return len(self.starts)

    def step_of(self, events: NDArray[np.int32]) -> NDArray[np.int64]:
        """Return the step that each event falls into; 0 is before the first."""
        return np.searchsorted(self.starts, events, side="right")


def find_steps(device: DeviceTrace) -> Steps:
    """Find the steps of a device's recording; an empty `Steps` where there is no loop to be seen."""
    return _from_annotations(device) or _from_period(device) or Steps(starts=np.empty(0, np.int64), source="")


def _from_annotations(device: DeviceTrace) -> Steps | None:
    best: tuple[int, int, str, list[int]] | None = None
    for name, times in device.annotation_starts().items():
        rank = _rank_of_name(name)
        if rank and (best is None or (rank, len(times)) > (best[0], best[1])):
            best = (rank, len(times), name, times)
    if best is None:
        return None
    _, _, name, times = best
    starts = np.unique(np.searchsorted(device.events.time_us, np.asarray(times, dtype=np.int64), side="left"))
    starts = starts[(starts > 0) & (starts < device.num_events)]
    if len(starts) < MIN_STEPS:
        return None
    return Steps(starts=starts, source=f"annotation {name!r}")


def _rank_of_name(name: str) -> int:
    """Rank an annotation's name by how surely it marks a step; 0 is not at all."""
    if name.startswith("ProfilerStep"):
        return 3
    if name.startswith("Optimizer.step#"):
        return 2
    return 1 if re.search(r"(?i)\b(train|training|step|iter|iteration|batch)\b", name) else 0


def _from_period(device: DeviceTrace) -> Steps | None:
    """Find a site that is met once in each round of a loop: the other sites then come equally often in every round."""
    events = device.events
    allocs = np.flatnonzero(events.action == Action.ALLOC)
    if len(allocs) < 2 * MIN_STEPS:
        return None
    sites = events.site[allocs]
    used, tokens = np.unique(sites, return_inverse=True)
    counts = np.bincount(tokens)
    best: tuple[float, int, NDArray[np.int64]] | None = None
    for token in _candidates(used, counts):
        places = np.flatnonzero(tokens == token)
        score = _regularity(tokens, places, len(used))
        if score < _MIN_REGULARITY:
            continue
        better = best is None or score > best[0] + 0.02 or (score > best[0] - 0.02 and len(places) > best[1])
        if better:
            best = (max(score, best[0]) if best else score, len(places), places)
    if best is None:
        return None
    return Steps(starts=allocs[best[2]].astype(np.int64), source="the period of the request stream")


def _candidates(used: NDArray[np.int32], counts: NDArray[np.int64]) -> list[int]:
    """Pick sites to try as a loop's mark: for each count that several requests share, the site met first."""
    weights: dict[int, int] = {}
    first: dict[int, int] = {}
    for token, count in enumerate(counts.tolist()):
        if count < MIN_STEPS or used[token] == NONE:
            continue
        weights[count] = weights.get(count, 0) + count
        first.setdefault(count, token)
    heaviest = sorted(weights, key=lambda count: -weights[count])[:_MAX_CANDIDATES]
    return [first[count] for count in heaviest]


def _regularity(tokens: NDArray[np.int64], places: NDArray[np.int64], num_tokens: int) -> float:
    """Return the share of requests whose site comes equally often in nearly every round that `places` marks."""
    num_rounds = len(places) - 1
    if num_rounds < MIN_STEPS - 1 or num_rounds * num_tokens > _MAX_CELLS:
        return 0.0
    inner = slice(int(places[0]), int(places[-1]))
    rounds = np.searchsorted(places, np.arange(inner.start, inner.stop), side="right") - 1
    cells = np.bincount(rounds * num_tokens + tokens[inner], minlength=num_rounds * num_tokens)
    table = cells.reshape(num_rounds, num_tokens)
    usual = np.median(table, axis=0)
    agreement = (table == usual).mean(axis=0)
    regular = (agreement >= 0.9) & (usual > 0)
    covered = table[:, regular].sum() / len(tokens)
    return float(covered)
