"""Bytes and times as people read them. The only place where a number gets a unit."""

from __future__ import annotations

import re

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB

_STEPS = ((1024 * GIB, "TiB"), (GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB"))


def format_bytes(size_bytes: int) -> str:
    """Write a size with three or four significant digits; what would round to 1,024 of a unit is 1 of the next.

    Example:
        >>> format_bytes(0), format_bytes(512), format_bytes(33554432), format_bytes(-1610612736)
        ('0 B', '512 B', '32 MiB', '-1.5 GiB')
        >>> format_bytes(8554283008), format_bytes(1023 * 1024 + 600)
        ('7.97 GiB', '1 MiB')
    """
    sign = "-" if size_bytes < 0 else ""
    size = abs(size_bytes)
    for step, unit in _STEPS:
        if size >= step - step // 2048:  # half of the smaller unit, of which 1,023.5 are written as 1,024
            value = size / step
            digits = 2 if value < 10 else 1 if value < 100 else 0
            text = f"{value:,.{digits}f}"
            return f"{sign}{text.rstrip('0').rstrip('.') if '.' in text else text} {unit}"
    return f"{sign}{size} B"


def bytes_unit(largest: int) -> tuple[int, str]:
    """Return the unit that an axis of sizes counts in, in bytes, and its name.

    Args:
        largest: The largest size on the axis, in bytes.

    Example:
        >>> bytes_unit(8 << 30), bytes_unit(700 << 20), bytes_unit(0)
        ((1073741824, 'GiB'), (1048576, 'MiB'), (1, 'B'))
    """
    return next(((step, unit) for step, unit in _STEPS if largest >= step), (1, "B"))


_SIZE_UNITS = {
    "": 1,
    "B": 1,
    "K": KIB,
    "KIB": KIB,
    "KB": 1000,
    "M": MIB,
    "MIB": MIB,
    "MB": 1000**2,
    "G": GIB,
    "GIB": GIB,
    "GB": 1000**3,
    "T": 1024 * GIB,
    "TIB": 1024 * GIB,
    "TB": 1000**4,
}


def parse_size(text: str) -> int:
    """Read a size that a person wrote; KiB, MiB, GiB (or K, M, G) count in 1024s, KB, MB, GB in 1000s.

    Raises:
        ValueError: It is no size.

    Example:
        >>> parse_size("24GiB"), parse_size("1.5 GB"), parse_size("512m"), parse_size("4096")
        (25769803776, 1500000000, 536870912, 4096)
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", text)
    if match is None or match[2].upper() not in _SIZE_UNITS:
        raise ValueError(f"{text!r} is no size: write it as 24GiB, 512MiB or a number of bytes")
    return round(float(match[1]) * _SIZE_UNITS[match[2].upper()])


def format_duration(time_us: int) -> str:
    """Write a duration given in microseconds; a unit ends where three digits would round to the next one.

    Example:
        >>> format_duration(850), format_duration(12_400), format_duration(4_200_000), format_duration(187_000_000)
        ('850 µs', '12.4 ms', '4.2 s', '3 min 7 s')
        >>> format_duration(999_600), format_duration(99_960_000)
        ('1 s', '1 min 40 s')
    """
    if time_us < 1000:
        return f"{time_us} µs"
    if time_us < 999_500:
        return f"{time_us / 1000:.3g} ms"
    if time_us < 99_950_000:
        return f"{time_us / 1_000_000:.3g} s"
    minutes, rest = divmod(round(time_us / 1_000_000), 60)
    if minutes < 100:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(round(time_us / 60_000_000), 60)
    return f"{hours} h {minutes} min"


def time_unit(span_us: int) -> tuple[int, str]:
    """Return the unit that an axis of time counts in, in microseconds, and its name.

    Args:
        span_us: The axis's length in microseconds.

    Example:
        >>> time_unit(5_818_563), time_unit(34_994), time_unit(600), time_unit(3_600_000_000)
        ((1000000, 's'), (1000, 'ms'), (1, 'µs'), (60000000, 'min'))
    """
    if span_us >= 600_000_000:
        return (60_000_000, "min") if span_us < 36_000_000_000 else (3_600_000_000, "h")
    if span_us >= 1_000_000 or span_us <= 0:
        return 1_000_000, "s"
    return (1000, "ms") if span_us >= 1000 else (1, "µs")


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


def plural(number: int, one: str, many: str | None = None) -> str:
    """Write a number with its noun.

    Args:
        number: The number.
        one: The noun for one.
        many: The noun for several; None: `one` with an s.

    Example:
        >>> plural(1, "block"), plural(1200, "block"), plural(0, "entry", "entries")
        ('1 block', '1,200 blocks', '0 entries')
    """
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def format_rate(bytes_per_s: int | None) -> str:
    """Write a speed in decimal units, as memory and links are sold; "-" where there is none.

    Example:
        >>> format_rate(4_463_000_000_000), format_rate(55_400_000_000), format_rate(512_000_000), format_rate(None)
        ('4.46 TB/s', '55.4 GB/s', '512 MB/s', '-')
    """
    if bytes_per_s is None:
        return "-"
    for unit, name in ((10**12, "TB/s"), (10**9, "GB/s"), (10**6, "MB/s")):
        if bytes_per_s >= 0.9995 * unit:
            return f"{_three_digits(bytes_per_s / unit)} {name}"
    return f"{_three_digits(bytes_per_s / 1000)} kB/s"


def format_time_ns(time_ns: float) -> str:
    """Write a time with three digits.

    Example:
        >>> format_time_ns(0.25), format_time_ns(850), format_time_ns(3_300), format_time_ns(151_000_000)
        ('0.25 ns', '850 ns', '3.3 µs', '151 ms')
    """
    for unit, name in ((10**9, "s"), (10**6, "ms"), (1000, "µs")):
        if time_ns >= 0.9995 * unit:
            return f"{_three_digits(time_ns / unit)} {name}"
    return f"{_three_digits(time_ns)} ns"


def format_step_ns(time_ns: float) -> str:
    """Write what one of many accesses costs: of a whole GPU's, one ends every few picoseconds.

    Example:
        >>> format_step_ns(149.2), format_step_ns(0.0123)
        ('149 ns', '12.3 ps')
    """
    return format_time_ns(time_ns) if time_ns >= 1 else f"{1000 * time_ns:.3g} ps"


def _three_digits(value: float) -> str:
    digits = 0 if value >= 99.95 else 1 if value >= 9.995 else 2
    text = f"{value:.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
