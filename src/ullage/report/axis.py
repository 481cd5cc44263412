"""Axes: where ticks go, and in which unit they count."""

from __future__ import annotations

from ullage.units import bytes_unit, time_unit


def byte_ticks(largest: int, max_ticks: int) -> list[int]:
    """Return round sizes from 0 up to the largest: multiples of 1, 2 or 5 of a power of ten, or of two below ten.

    Args:
        largest: The largest size on the axis, in bytes.
        max_ticks: The largest number of ticks, 0 not counted; from 3 on there is one at least.

    Example:
        >>> [tick >> 30 for tick in byte_ticks(8 << 30, 4)], byte_ticks(3 << 20, 3)
        ([0, 2, 4, 6, 8], [0, 1048576, 2097152, 3145728])
    """
    unit, _ = bytes_unit(largest)
    step = _step(largest / unit, max_ticks, (0.25, 0.5))
    size = max(round(step * unit), 1)
    return list(range(0, largest + 1, size))


def time_ticks(span_us: int, max_ticks: int) -> tuple[list[int], list[str]]:
    """Return round times from 0 up to the span, and how to write them; the last names the unit.

    Example:
        >>> time_ticks(5_818_563, 4)
        ([0, 2000000, 4000000], ['0', '2', '4 s'])
        >>> time_ticks(0, 4)
        ([0], ['0 s'])
    """
    unit, name = time_unit(span_us)
    size = max(round(_step(span_us / unit, max_ticks) * unit), 1)
    ticks = list(range(0, span_us + 1, size)) or [0]
    labels = [f"{tick / unit:g}" for tick in ticks]
    labels[-1] += f" {name}"
    return ticks, labels


def _step(largest: float, max_ticks: int, below_one: tuple[float, ...] = (0.1, 0.2, 0.5)) -> float:
    steps = [*below_one, *(float(factor * 10**power) for power in range(30) for factor in (1, 2, 5))]
    return next((step for step in steps if largest / step <= max_ticks), steps[-1])
