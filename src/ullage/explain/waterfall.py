"""Where reserved memory goes at an instant: requested, and each cause of what lies between that and reserved."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ullage.trace import NONE, BlockState, PoolSize

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ullage.trace import DeviceTrace, Layout

_MIN_BLOCK = 512
_GRANULE_SMALL = 2 << 20
_GRANULE_LARGE = 20 << 20

CAUSES = {
    "requested": "asked for by live tensors",
    "rounding": "rounding of each request",
    "tail": "tails too small to split off",
    "pending": "freed, but waiting for a stream",
    "stranded": "free, beside live blocks (large pool)",
    "small_pool": "free, beside live blocks (small pool)",
    "other_stream": "free, but on another stream",
    "private_pool": "free inside private pools",
    "cached": "free whole segments (can go back)",
}
"""The causes in the order of the waterfall, and what each means."""


@dataclass(frozen=True, kw_only=True)
class FreeSpace:
    """The free blocks of a layout by cause.

    `stranded` and `small_pool` lie in segments with live blocks, so that the segment can neither be returned nor serve
    a request larger than the hole. All arrays have one entry for each block of the layout.
    """

    is_free: NDArray[np.bool_]
    cause: dict[str, NDArray[np.int64]]

    def bytes_of(self, cause: str) -> int:
        """Return the sum over one cause."""
        return int(self.cause[cause].sum())


def free_space(device: DeviceTrace, layout: Layout, stream: int) -> FreeSpace:
    """Split a layout's free bytes by cause.

    Args:
        device: The device.
        layout: The layout.
        stream: The stream whose requests count; free blocks of the default pool on others are "on another stream".
    """
    segments = device.segments
    is_free = layout.state == BlockState.INACTIVE
    size = np.where(is_free, layout.size_bytes, 0)
    pool = segments.pool[layout.segment]
    small = segments.pool_size[layout.segment] == PoolSize.SMALL
    expandable = segments.is_expandable[layout.segment] != 0
    live_in_segment = np.bincount(layout.segment_of_block, weights=~is_free, minlength=len(layout.segment_rows)) > 0
    pinned = live_in_segment[layout.segment_of_block] if len(is_free) else np.empty(0, bool)

    private = pool != NONE
    elsewhere = ~private & (segments.stream[layout.segment] != stream)
    ours = ~private & ~elsewhere
    granule = np.where(small, _GRANULE_SMALL, _GRANULE_LARGE).astype(np.int64)
    # Mapped ranges begin on a granule, so offsets in them say where whole granules lie.
    offset = (layout.address - layout.segment_address[layout.segment_of_block]).astype(np.int64)
    whole_granules = np.maximum((offset + size) // granule - -(-offset // granule), 0) * granule
    returnable = np.where(~pinned, size, np.where(expandable, np.minimum(whole_granules, size), 0))
    returnable = np.where(is_free, returnable, 0)
    stuck = size - returnable
    zero = np.zeros_like(size)
    return FreeSpace(
        is_free=is_free,
        cause={
            "stranded": np.where(ours & ~small, stuck, zero),
            "small_pool": np.where(ours & small, stuck, zero),
            "other_stream": np.where(elsewhere, size, zero),
            "private_pool": np.where(private, size, zero),
            "cached": np.where(ours, returnable, zero),
        },
    )


def main_stream(device: DeviceTrace) -> int:
    """Return the stream that holds most reserved memory over the recording: the one that the others are measured by."""
    segments = device.segments
    if not len(segments.stream):
        return 0
    streams, group = np.unique(segments.stream, return_inverse=True)
    held = np.bincount(group, weights=segments.size_bytes.astype(np.float64))
    return int(streams[np.argmax(held)])


def waterfall(device: DeviceTrace, layout: Layout, stream: int) -> list[dict[str, Any]]:
    """Return the causes of reserved memory at an instant. Their bytes add up to reserved."""
    allocated = layout.state == BlockState.ACTIVE_ALLOCATED
    pending = layout.state == BlockState.ACTIVE_PENDING_FREE
    requested = layout.requested_bytes[allocated]
    rounded = np.minimum(np.maximum(-(-requested // _MIN_BLOCK) * _MIN_BLOCK, _MIN_BLOCK), layout.size_bytes[allocated])
    surplus = int((layout.size_bytes[allocated] - requested).sum())
    rounding = int((rounded - requested).sum())
    if any(key.startswith("roundup_power2_divisions.") and value for key, value in device.trace.settings.items()):
        rounding = surplus  # the setting rounds further than to 512 bytes
    free = free_space(device, layout, stream)
    amounts = {
        "requested": int(requested.sum()),
        "rounding": rounding,
        "tail": surplus - rounding,
        "pending": int(layout.size_bytes[pending].sum()),
        **{cause: free.bytes_of(cause) for cause in free.cause},
    }
    return [{"cause": cause, "label": label, "bytes": amounts[cause]} for cause, label in CAUSES.items()]
