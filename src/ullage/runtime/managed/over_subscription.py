"""What happens when more memory is managed than the GPU has free, and in which order to go over it."""

from __future__ import annotations

from dataclasses import dataclass

from ullage.units import format_bytes

_ROUND_TO = 5  # percent: which pages the driver moves out is not known more exactly


@dataclass(frozen=True, kw_only=True)
class OverSubscription:
    """More managed memory than fits on the GPU.

    Attributes:
        managed_bytes: The managed memory that is gone over.
        free_bytes: What the GPU has for it.
    """

    managed_bytes: int
    free_bytes: int

    @property
    def ratio(self) -> float:
        """How much is managed for each byte that fits."""
        return self.managed_bytes / self.free_bytes if self.free_bytes else float("inf")

    @property
    def resident_share(self) -> float:
        """The share that a pass finds on the GPU where passes alternate in direction; 0 where all go in one."""
        return self.free_bytes / self.managed_bytes

    @property
    def one_way_bytes(self) -> int:
        """What each pass moves in, and as much out, where all passes go in one direction: all of it.

        The driver moves out what was used longest ago, which is what such a pass needs next.
        """
        return self.managed_bytes

    @property
    def zigzag_bytes(self) -> int:
        """What each pass moves in, and as much out, where passes alternate in direction."""
        return self.managed_bytes - self.free_bytes

    def __str__(self) -> str:
        share = round(100 * self.resident_share / _ROUND_TO) * _ROUND_TO
        return (
            f"UVM: {format_bytes(self.managed_bytes)} managed on {format_bytes(self.free_bytes)} free ({self.ratio:.2f}x): "
            f"passes in one direction find nothing there, and each moves {format_bytes(self.one_way_bytes)} in and as much "
            f"out. Zig-zag order or a {format_bytes(self.free_bytes)} working set would keep about {share} % resident"
        )


def over_subscribed(managed_bytes: int, free_bytes: int) -> OverSubscription | None:
    """Say what passes over managed memory cost where it does not fit on the GPU; None where it fits.

    Args:
        managed_bytes: The managed memory that each pass goes over.
        free_bytes: What the GPU has for it.

    Raises:
        ValueError: A size is negative.

    Example:
        >>> print(over_subscribed(48 << 30, 39 << 30))
        UVM: 48 GiB managed on 39 GiB free (1.23x): passes in one direction find nothing there, and each moves 48 GiB in and
        as much out. Zig-zag order or a 39 GiB working set would keep about 80 % resident
        >>> over_subscribed(31 << 30, 39 << 30)
    """
    if managed_bytes < 0 or free_bytes < 0:
        raise ValueError("sizes are not negative")
    if managed_bytes <= free_bytes:
        return None
    return OverSubscription(managed_bytes=managed_bytes, free_bytes=free_bytes)


def zigzag(num_chunks: int, pass_number: int) -> range:
    """Return the order in which a pass goes over chunks so that it begins with those that the pass before ended with.

    Args:
        num_chunks: The chunks.
        pass_number: 0 for the first pass; every second one goes backwards.

    Example:
        >>> list(zigzag(4, 0)), list(zigzag(4, 1))
        ([0, 1, 2, 3], [3, 2, 1, 0])
    """
    return range(num_chunks) if pass_number % 2 == 0 else range(num_chunks - 1, -1, -1)
