"""How large the blocks are that a probe measures: what is usual, or less where little of the GPU is free."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ullage.errors import DeviceError
from ullage.units import GIB, KIB, MIB, format_bytes

if TYPE_CHECKING:
    from ullage.runtime.probe.gpu import MemoryKind

_USUAL_FREE = 2 * GIB
_LEAST = MIB  # a block smaller than this says little
_REACH_STEP = 64 * MIB  # the longest stride


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Sizes in bytes, each a power of two but for `reach`.

    Attributes:
        device: A block of the GPU's own memory, so much larger than its cache that this hardly counts.
        host: A block of the host's memory, pinned, mapped or managed, gone through part by part.
        pageable: The same of pageable memory; so much larger than the host's cache that this hardly counts.
        copies: The sizes of copies.
        allocations: The sizes of allocations.
        host_allocations: The same of host and managed memory.
        cached: A block that fits the cache.
        reach: The largest footprint of page reach, whole strides.
    """

    device: int
    host: int
    pageable: int
    copies: tuple[int, ...]
    allocations: tuple[int, ...]
    host_allocations: tuple[int, ...]
    cached: int
    reach: int

    def block(self, kind: MemoryKind) -> int:
        """Return the size of a block of memory that the host has a part in."""
        return self.pageable if kind == "pageable" else self.host


def sizes_for(free_bytes: int, l2_bytes: int, total_bytes: int = 0, host_bytes: int = 0) -> Sizes:
    """Choose sizes.

    Args:
        free_bytes: What is free on the GPU.
        l2_bytes: Its cache.
        total_bytes: The GPU's memory; where nearly all is free, nobody else is there to need it.
        host_bytes: What is free on the host; 0: it does not say.

    Raises:
        DeviceError: Too little is free to measure anything.

    Example:
        >>> sizes_for(64 << 20, 50 << 20).device >> 20, sizes_for(128 << 30, 50 << 20).device >> 20
        (16, 4096)
    """
    spare = min(free_bytes, _USUAL_FREE) // 4
    if spare < _LEAST:
        raise DeviceError(
            f"only {format_bytes(free_bytes)} of the GPU are free: a probe needs {format_bytes(4 * _LEAST)}"
        )
    host = _power_of_two(min(spare, 256 * MIB))
    pageable = _power_of_two(min(free_bytes // 16, host_bytes // 16, 512 * MIB) or 1)
    device = min(_power_of_two(free_bytes // 4), max(4 * GIB, _power_of_two(32 * l2_bytes)))
    allocations = (4 * KIB, 64 * KIB, MIB, 16 * MIB, 64 * MIB, 256 * MIB, GIB)
    return Sizes(
        device=device,
        host=host,
        pageable=max(host, pageable),
        copies=tuple(4 * KIB * 4**step for step in range(9) if 4 * KIB * 4**step <= host),
        allocations=tuple(size for size in allocations if size <= device),
        host_allocations=tuple(size for size in allocations if size <= host),
        cached=_power_of_two(max(min(l2_bytes // 3, device), MIB)),
        reach=_reach(free_bytes, total_bytes),
    )


def _reach(free_bytes: int, total_bytes: int) -> int:
    """Return the largest footprint: half of what is free, or nine tenths on a GPU that nobody else uses."""
    is_alone = free_bytes > total_bytes - _USUAL_FREE and total_bytes > 4 * _USUAL_FREE
    size = free_bytes * 9 // 10 if is_alone else free_bytes // 2
    return size // _REACH_STEP * _REACH_STEP or _power_of_two(size)


def _power_of_two(size: int) -> int:
    """Return the largest power of two up to a size."""
    return 1 << (size.bit_length() - 1)
