"""What is live at an instant, by the stack that asked for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ullage.trace.sites import BEFORE, NO_STACK, Frame
from ullage.trace.tables import NONE

if TYPE_CHECKING:
    from ullage.trace.device import DeviceTrace
    from ullage.trace.sites import Sites


@dataclass(frozen=True, kw_only=True)
class LiveStack:
    """The blocks of one stack that are allocated at an instant.

    Attributes:
        frames: Outermost first; `NO_STACK` or `BEFORE` alone where none was recorded.
        bytes: Their sizes' sum.
        num_blocks: Their number.
    """

    frames: tuple[Frame, ...]
    bytes: int
    num_blocks: int


def live_stacks(device: DeviceTrace, event: int) -> list[LiveStack]:
    """Return what is allocated after an event (`NONE`: before the first) by stack, largest first.

    Args:
        device: The device.
        event: The event.

    Returns:
        One for each site, whose frames can be equal where sites differ in the allocator's own frames alone.
    """
    blocks = device.blocks
    rows = device.live_after(event)
    keys = blocks.site[rows].astype(np.int64)
    keys[(keys == NONE) & (blocks.birth[rows] == NONE)] = NONE - 1
    distinct, group = np.unique(keys, return_inverse=True)
    sums = np.zeros(len(distinct), np.int64)
    np.add.at(sums, group, blocks.size_bytes[rows])
    counts = np.bincount(group, minlength=len(distinct))
    sites = device.trace.sites
    return [
        LiveStack(
            frames=(BEFORE,) if distinct[i] < NONE else whole_stack(sites, int(distinct[i])),
            bytes=int(sums[i]),
            num_blocks=int(counts[i]),
        )
        for i in np.argsort(-sums, kind="stable").tolist()
    ]


def whole_stack(sites: Sites, site: int) -> tuple[Frame, ...]:
    """Return a site's Python frames, outermost first; where it has none, its native ones, without the allocator's.

    Args:
        sites: The trace's sites.
        site: The site; `NONE` is that of requests without a stack.

    Returns:
        `NO_STACK` alone where there is no such frame.
    """
    frames = tuple(sites.frame(i) for i in sites.python_stack(site))
    return frames or tuple(sites.frame(i) for i in sites.native_stack(site)) or (NO_STACK,)
