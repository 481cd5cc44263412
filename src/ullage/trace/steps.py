"""Steps: the iterations of the user's loop, from annotations or from the period of the request stream."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ullage.trace.annotations import annotation_starts
from ullage.trace.tables import Action

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ullage.trace.device import DeviceTrace

MIN_STEPS = 4

_MAX_CANDIDATES = 24
_MAX_CELLS = 5_000_000
_MAX_JUDGED = 200_000
_MIN_REGULARITY = 0.5
_TIE = 0.003
_OPTIMIZER_RANK = 2


@dataclass(frozen=True, kw_only=True)
class Steps:
    """Where the steps begin.

    `starts` holds event indices, ascending: a mark in each step. Where a step begins with its mark, step k (from 1) is
    [starts[k - 1], starts[k]). An optimizer's step comes late in an iteration: there `marks_end` is set, and step k is what
    leads up to mark k, the first with the set-up before it. `source` says in words what made the marks.
    """

    starts: NDArray[np.int64]
    source: str
    marks_end: bool = False

    def __len__(self) -> int:
        return len(self.starts)

    def step_of(self, events: NDArray[np.int32]) -> NDArray[np.int64]:
        """Return the step that each event falls into; 0 is before the first."""
        passed = np.searchsorted(self.starts, events, side="right")
        return np.minimum(passed + 1, len(self.starts)) if self.marks_end else passed

    def bounds(self, num_events: int) -> NDArray[np.int64]:
        """Return one event index more than there are steps: step k (from 1) is [bounds[k - 1], bounds[k]).

        Args:
            num_events: The number of the device's events, where the last step ends.
        """
        if not len(self.starts):
            return np.empty(0, np.int64)
        begins = np.append(0, self.starts[:-1]) if self.marks_end else self.starts
        return np.append(begins, num_events).astype(np.int64)


def find_steps(device: DeviceTrace) -> Steps:
    """Find the steps of a device's recording; an empty `Steps` where there is no loop to be seen."""
    return _from_annotations(device) or _from_period(device) or Steps(starts=np.empty(0, np.int64), source="")


def _from_annotations(device: DeviceTrace) -> Steps | None:
    best: tuple[int, int, str, list[int]] | None = None
    # One process can drive several devices from a loop that is annotated on one of them.
    annotations = annotation_starts(device) or annotation_starts(device, any_device=True)
    for name, times in annotations.items():
        rank = _rank_of_name(name)
        if rank and (best is None or (rank, len(times)) > (best[0], best[1])):
            best = (rank, len(times), name, times)
    if best is None:
        return None
    rank, _, name, times = best
    starts = np.unique(np.searchsorted(device.events.time_us, np.asarray(times, dtype=np.int64), side="left"))
    starts = starts[(starts > 0) & (starts < device.num_events)]
    if len(starts) < MIN_STEPS:
        return None
    return Steps(starts=starts, source=f"annotation {name!r}", marks_end=rank == _OPTIMIZER_RANK)


def _rank_of_name(name: str) -> int:
    """Rank an annotation's name by how surely it marks a step; 0 is not at all."""
    if name.startswith("ProfilerStep"):
        return 3
    if name.startswith("Optimizer.step#"):
        return _OPTIMIZER_RANK
    return 1 if re.search(r"(?i)(?<![a-z])(train|training|step|iter|iteration|batch)(?![a-z])", name) else 0


def _from_period(device: DeviceTrace) -> Steps | None:
    """Find a site that is met once in each round of a loop: the other sites then come equally often in every round."""
    events = device.events
    allocs = np.flatnonzero(events.action == Action.ALLOC)
    if len(allocs) < 2 * MIN_STEPS:
        return None
    # Token 0 stands for requests without a stack. A long recording is judged by its middle.
    tokens = events.site[allocs] + 1
    margin = max(len(tokens) - _MAX_JUDGED, 0) // 2
    judged = tokens[margin : len(tokens) - margin]
    best: tuple[float, int, int] | None = None
    for token in _candidates(judged):
        score, rounds = _regularity(judged, token)
        # A layer repeats too, but what comes once a step is irregular to it; the tie goes to the shorter round.
        if score >= _MIN_REGULARITY and (
            best is None or score > best[0] + _TIE or (score > best[0] - _TIE and rounds > best[1])
        ):
            best = (max(score, best[0]) if best else score, rounds, token)
    if best is None:
        return None
    return Steps(starts=allocs[tokens == best[2]].astype(np.int64), source="the period of the request stream")


def _candidates(tokens: NDArray[np.int32]) -> list[int]:
    """Pick sites to try as a loop's mark: for each count that sites share, the one that is spread the widest.

    Set-up can meet a site as often as the loop does, but all at once.
    """
    counts = np.bincount(tokens)
    places = np.arange(len(tokens))
    first, last = np.zeros(len(counts), np.int64), np.zeros(len(counts), np.int64)
    last[tokens] = places  # the last assignment wins
    first[tokens[::-1]] = places[::-1]
    spread = (last - first).tolist()
    weights: dict[int, int] = {}
    widest: dict[int, int] = {}
    for token, count in enumerate(counts.tolist()):
        if count < MIN_STEPS or token == 0:
            continue
        weights[count] = weights.get(count, 0) + count
        if count not in widest or spread[token] > spread[widest[count]]:
            widest[count] = token
    heaviest = sorted(weights, key=lambda count: -weights[count])[:_MAX_CANDIDATES]
    return [widest[count] for count in heaviest]


def _regularity(tokens: NDArray[np.int32], mark: int) -> tuple[float, int]:
    """Return the share of requests whose site comes equally often in nearly every round that `mark` begins, and the rounds.

    Requests without a stack do not count: they are many sites in one.
    """
    is_mark = tokens == mark
    num_rounds = int(is_mark.sum()) - 1
    num_tokens = int(tokens.max()) + 1
    if num_rounds < MIN_STEPS - 1 or num_rounds * num_tokens > _MAX_CELLS:
        return 0.0, num_rounds
    rounds = np.cumsum(is_mark) - 1
    whole = (rounds >= 0) & (rounds < num_rounds)
    cells = np.bincount(rounds[whole] * num_tokens + tokens[whole], minlength=num_rounds * num_tokens)
    table = cells.reshape(num_rounds, num_tokens)
    usual = np.median(table, axis=0)
    regular = ((table == usual).mean(axis=0) >= 0.9) & (usual > 0)
    regular[0] = False
    num_known = int((tokens != 0).sum())
    return float(table[:, regular].sum() / max(num_known, 1)), num_rounds
