"""Who owns bytes: blocks summed by the line that asked for them, by age, and by step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ullage.explain.finding import frame_json
from ullage.trace import BEFORE, BEFORE_ID, NO_STACK, NONE, Frame

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ullage.trace import DeviceTrace

_SECOND = 1_000_000
_AGES = ((_SECOND, "under 1 s"), (10 * _SECOND, "1 to 10 s"), (60 * _SECOND, "10 to 60 s"))
_STEPS_BACK = ((1, "this step"), (2, "the step before"), (6, "2 to 5 steps before"))


@dataclass(frozen=True, kw_only=True)
class SiteShare:
    """What one line of code accounts for.

    Attributes:
        lead: The leading frame; `NO_STACK` where none was recorded.
        stack: The leading frame and the user's frames that called it, for the largest part.
        via: The library frames inside it that allocated, with the bytes of each, largest first.
        bytes: The sum of the weights.
        num_blocks: The number of blocks.
        oldest_us: The age of the oldest block; None if it was there before the recording.
        newest_us: The age of the newest block; likewise.
    """

    lead: Frame
    stack: tuple[Frame, ...]
    via: tuple[tuple[Frame, int], ...]
    bytes: int
    num_blocks: int
    oldest_us: int | None
    newest_us: int | None

    def to_json(self) -> dict[str, Any]:
        """Return the share as plain data."""
        return {
            "site": [frame_json(frame) for frame in self.stack],
            "via": [frame_json(frame) | {"bytes": size} for frame, size in self.via],
            "bytes": self.bytes,
            "num_blocks": self.num_blocks,
            "oldest_us": self.oldest_us,
            "newest_us": self.newest_us,
        }


def share_by_site(
    device: DeviceTrace, rows: NDArray[np.int64], event: int, weights: NDArray[np.int64] | None = None
) -> list[SiteShare]:
    """Sum blocks by their leading frame, largest first.

    Args:
        device: The device.
        rows: Rows of `device.blocks`.
        event: The instant from which ages count.
        weights: What to sum, in bytes, one for each row; None: the blocks' sizes.
    """
    if not len(rows):
        return []
    blocks = device.blocks
    if weights is None:
        weights = blocks.size_bytes[rows]
    sites = blocks.site[rows]
    leads, group = np.unique(leads_of(device, rows), return_inverse=True)
    sums = _exact_sums(group, weights, len(leads))
    counts = np.bincount(group, minlength=len(leads))
    shares = []
    births = blocks.birth[rows]
    for index in np.argsort(-sums, kind="stable"):
        inside = np.flatnonzero(group == index)
        by_weight = _by_weight(sites[inside], weights[inside])
        shares.append(
            SiteShare(
                lead=device.trace.sites.frame(int(leads[index])),
                stack=device.trace.sites.user_stack(by_weight[0][0]),
                via=_via(device, by_weight),
                bytes=int(sums[index]),
                num_blocks=int(counts[index]),
                oldest_us=age_us(device, int(births[inside].min()), event),
                newest_us=age_us(device, int(births[inside].max()), event),
            )
        )
    return shares


def _exact_sums(group: NDArray[np.int64], weights: NDArray[np.int64], num_groups: int) -> NDArray[np.int64]:
    sums = np.zeros(num_groups, dtype=np.int64)
    np.add.at(sums, group, weights)
    return sums


def _by_weight(sites: NDArray[np.int32], weights: NDArray[np.int64]) -> list[tuple[int, int]]:
    distinct, group = np.unique(sites, return_inverse=True)
    sums = _exact_sums(group, weights, len(distinct))
    order = np.argsort(-sums, kind="stable")
    return [(int(distinct[i]), int(sums[i])) for i in order]


def _via(device: DeviceTrace, by_weight: list[tuple[int, int]]) -> tuple[tuple[Frame, int], ...]:
    inside: dict[Frame, int] = {}
    for site, size in by_weight:
        leaf = device.trace.sites.leaf(site)
        if leaf is not None:
            inside[leaf] = inside.get(leaf, 0) + size
    return tuple(sorted(inside.items(), key=lambda pair: -pair[1])[:5])


def leads_of(device: DeviceTrace, rows: NDArray[np.int64]) -> NDArray[np.int32]:
    """Return the leading frame's id for rows of `device.blocks`; `BEFORE_ID` where a block is older than the recording."""
    blocks = device.blocks
    sites = blocks.site[rows]
    leads = device.trace.sites.lead_of(sites)
    return np.where((sites == NONE) & (blocks.birth[rows] == NONE), BEFORE_ID, leads).astype(np.int32)


def age_us(device: DeviceTrace, birth: int, event: int) -> int | None:
    """Return how long before `event` the event `birth` was; None where `birth` is before the recording."""
    if birth == NONE or event == NONE:
        return None
    times = device.events.time_us
    return int(times[event]) - int(times[birth])


def share_by_age(
    device: DeviceTrace, rows: NDArray[np.int64], event: int, weights: NDArray[np.int64] | None = None
) -> list[dict[str, Any]]:
    """Sum blocks by their age at an instant, youngest first; empty classes are left out."""
    blocks = device.blocks
    weights = blocks.size_bytes[rows] if weights is None else weights
    births = blocks.birth[rows]
    recorded = births != NONE
    out = []
    if event != NONE and recorded.any():
        times = device.events.time_us
        ages = times[event] - times[births[recorded]]
        edges = [edge for edge, _ in _AGES]
        labels = [label for _, label in _AGES] + ["over 60 s"]
        out = _classes(np.searchsorted(edges, ages, side="right"), weights[recorded], labels)
    return out + _unrecorded(weights[~recorded])


def share_by_step(
    device: DeviceTrace, rows: NDArray[np.int64], event: int, weights: NDArray[np.int64] | None = None
) -> list[dict[str, Any]]:
    """Sum blocks by how many steps before an instant they were made; empty without steps."""
    steps = device.steps
    if not len(steps) or event == NONE:
        return []
    blocks = device.blocks
    weights = blocks.size_bytes[rows] if weights is None else weights
    births = blocks.birth[rows]
    recorded = births != NONE
    born_in = steps.step_of(births[recorded])
    now = int(steps.step_of(np.asarray([event]))[0])
    back = now - born_in
    classes = np.searchsorted([edge for edge, _ in _STEPS_BACK], back, side="right")
    classes[born_in == 0] = len(_STEPS_BACK) + 1
    labels = [label for _, label in _STEPS_BACK] + ["over 5 steps before", "before the first step"]
    return _classes(classes, weights[recorded], labels) + _unrecorded(weights[~recorded])


def _classes(classes: NDArray[np.int64], weights: NDArray[np.int64], labels: list[str]) -> list[dict[str, Any]]:
    sums = _exact_sums(classes, weights, len(labels))
    counts = np.bincount(classes, minlength=len(labels))
    return [
        {"label": label, "bytes": int(total), "num_blocks": int(count)}
        for label, total, count in zip(labels, sums, counts, strict=True)
        if count
    ]


def _unrecorded(weights: NDArray[np.int64]) -> list[dict[str, Any]]:
    if not len(weights):
        return []
    return [{"label": "before the recording", "bytes": int(weights.sum()), "num_blocks": len(weights)}]


def describe(frame: Frame) -> str:
    """Name a leading frame in a sentence."""
    if frame == NO_STACK:
        return "requests without a Python stack (in training, mostly autograd's backward)"
    return "blocks from before the recording" if frame == BEFORE else str(frame)
