"""Reads the settings that a recording was made under, and what it shows of their effect."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import numpy as np

from ullage.doctor.setup import PoolFact, Recorded, RoundupCost, Setup
from ullage.doctor.torch_range import TorchRange
from ullage.trace import NONE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from ullage.trace import DeviceTrace, Trace

_MIN_BLOCK = 512
_NUM_BUCKETS = 16  # 1 MiB to 32 GiB


def setup_of_recording(trace: Trace) -> Setup:
    """Return a recording's settings and what it shows of them.

    Args:
        trace: The recording.

    Cost: linear in the events.
    """
    divisions = tuple(
        int(trace.settings.get(f"roundup_power2_divisions.{1 << i}", 0) or 0) for i in range(_NUM_BUCKETS)
    )
    is_rounded = any(number > 1 for number in divisions)
    return Setup(
        conf=str(trace.settings.get("PYTORCH_CUDA_ALLOC_CONF", "")),
        torch=TorchRange.parse(trace.torch_version),
        recorded=Recorded(
            settings=trace.settings,
            num_events=sum(device.num_events for device in trace.devices),
            num_conflicts=sum(device.history.num_conflicts for device in trace.devices),
            native_frames=_native_frames(trace),
            roundup=tuple(_roundup_cost(device, divisions) for device in trace.devices) if is_rounded else (),
            fixed_pools=tuple(_fixed_pools(trace)) if trace.settings.get("expandable_segments") else (),
        ),
    )


def round_up(requested_bytes: NDArray[np.int64], divisions: tuple[int, ...]) -> NDArray[np.int64]:
    """Return the block sizes that serve some requests.

    Args:
        requested_bytes: The requests, each above 0.
        divisions: `roundup_power2_divisions` for each power of two from 1 MiB; 0 and 1 are off.

    Source: `round_size` in CUDACachingAllocator.cpp, torch 2.11.

    Example:
        >>> five_mib = np.array([5 * 1024**2 + 1])
        >>> round_up(five_mib, (4,) * 16).tolist(), round_up(five_mib, (0,) * 16).tolist()
        ([6291456], [5243392])
    """
    plain = np.maximum(-(-requested_bytes // _MIN_BLOCK) * _MIN_BLOCK, _MIN_BLOCK)
    exponent = np.frexp(requested_bytes.astype(np.float64))[1].astype(np.int64) - 1
    bucket = np.clip(exponent - 20, 0, len(divisions) - 1)
    number = np.asarray(divisions, dtype=np.int64)[bucket]
    is_divided = (number > 1) & (requested_bytes > _MIN_BLOCK * number)
    step = np.maximum((np.int64(1) << exponent) // np.maximum(number, 1), 1)
    return np.where(is_divided, -(-requested_bytes // step) * step, plain)


def _roundup_cost(device: DeviceTrace, divisions: tuple[int, ...]) -> RoundupCost:
    requested = np.maximum(device.blocks.requested_bytes[device.live_at("peak")], 1).astype(np.int64)
    off = (0,) * len(divisions)
    return RoundupCost(
        device=device.number,
        rounded_bytes=int(round_up(requested, divisions).sum()),
        plain_bytes=int(round_up(requested, off).sum()),
    )


def _native_frames(trace: Trace) -> float:
    tables = trace.tables
    sites = tables.event_site[tables.event_site != NONE]
    if not len(sites):
        return 0.0
    is_native = np.array([_is_native(tables.frame(i)[0]) for i in range(tables.num_frames)], dtype=np.int64)
    before = np.concatenate([[0], np.cumsum(is_native[tables.site_frames])])
    starts = tables.site_starts
    return float((before[starts[1:]] - before[starts[:-1]])[sites].mean())


def _is_native(file: str) -> bool:
    return not (file.endswith((".py", ".ipynb")) or file.startswith("<") or "ipykernel" in file)


def _fixed_pools(trace: Trace) -> Iterator[PoolFact]:
    for device in trace.devices:
        segments = device.segments
        rows = (segments.is_expandable == 0) & (segments.pool != NONE)
        held: dict[int, int] = defaultdict(int)
        for pool, size_bytes in zip(segments.pool[rows].tolist(), segments.size_bytes[rows].tolist(), strict=True):
            held[pool] += size_bytes
        for pool, size_bytes in sorted(held.items()):
            yield PoolFact(device=device.number, pool=device.pool_name(pool), reserved_bytes=size_bytes)
