"""cuBLAS workspaces: blocks that no tensor owns, and that look like a leak."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ullage.trace import NONE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ullage.trace import DeviceTrace

# What PyTorch requests for a (cuBLAS handle, stream) pair: 2 x 4 MiB + 8 x 16 KiB before Hopper, 32 MiB on Hopper and
# Blackwell (at::cuda::getChosenWorkspaceSize, torch 2.11); cuBLASLt asks for 1 MiB of its own (measured on an H200).
_WORKSPACE = (32 << 20, 8_519_680)
_LT_WORKSPACE = 1 << 20

# The forward and the backward thread have a handle each.
_HANDLES_PER_STREAM = 2


def find_workspaces(device: DeviceTrace) -> NDArray[np.int64]:
    """Return the rows of `device.blocks` that look like cuBLAS workspaces.

    They have a workspace's size, live for at least half of what is left of the recording, and are as few on each stream as
    there are handles. A loop that keeps tensors of just that size makes many more.
    """
    blocks = device.blocks
    left = device.num_events - np.maximum(blocks.birth, 0)
    lived = blocks.free_requested - np.maximum(blocks.birth, 0)
    lasting = (blocks.free_requested == NONE) | (2 * lived >= left)
    large = np.flatnonzero(lasting & np.isin(blocks.requested_bytes, _WORKSPACE))
    if not len(large):
        return large
    streams = device.segments.stream[blocks.segment]
    found = []
    for stream in np.unique(streams[large]):
        here = large[streams[large] == stream]
        if len(here) > _HANDLES_PER_STREAM:
            continue
        beside = np.flatnonzero(lasting & (blocks.requested_bytes == _LT_WORKSPACE) & (streams == stream))
        found.append(here)
        if len(beside) <= _HANDLES_PER_STREAM:
            found.append(beside)
    return np.sort(np.concatenate(found)) if found else large[:0]
