"""Bytes and times as people read them. The only place where a number gets a unit."""

from __future__ import annotations

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB

_STEPS = ((1024 * GIB, "TiB"), (GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB"))


def format_bytes(size_bytes: int) -> str:
    """Write a size with three or four significant digits.

    Example:
        >>> format_bytes(0), format_bytes(512), format_bytes(33554432), format_bytes(-1610612736)
        ('0 B', '512 B', '32 MiB', '-1.5 GiB')
        >>> format_bytes(8554283008), format_bytes(1023 * 1024 + 600)
        ('7.97 GiB', '1,024 KiB')
    """
    sign = "-" if size_bytes < 0 else ""
    size = abs(size_bytes)
    for step, unit in _STEPS:
        if size >= step:
            value = size / step
            digits = 2 if value < 10 else 1 if value < 100 else 0
            text = f"{value:,.{digits}f}"
            return f"{sign}{text.rstrip('0').rstrip('.') if '.' in text else text} {unit}"
    return f"{sign}{size} B"


def format_duration(time_us: int) -> str:
    """Write a duration given in microseconds.

    Example:
        >>> format_duration(850), format_duration(12_400), format_duration(4_200_000), format_duration(187_000_000)
        ('850 µs', '12.4 ms', '4.2 s', '3 min 7 s')
    """
    if time_us < 1000:
        return f"{time_us} µs"
    if time_us < 1_000_000:
        return f"{time_us / 1000:.3g} ms"
    seconds = time_us / 1_000_000
    if seconds < 100:
        return f"{seconds:.3g} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 100:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min"


def format_share(part: int, whole: int) -> str:
    """Write what share `part` is of `whole`, in percent.

    Example:
        >>> format_share(1, 3), format_share(1, 1000), format_share(1, 9999), format_share(0, 0), format_share(2, 2)
        ('33 %', '0.1 %', '<0.1 %', '0 %', '100 %')
    """
    if whole <= 0 or part <= 0:
        return "0 %"
    percent = 100 * part / whole
    if percent < 0.1:
        return "<0.1 %"
    return f"{percent:.0f} %" if percent >= 10 else f"{percent:.2g} %"
