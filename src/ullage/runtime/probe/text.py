"""What a probe measured, as text of 80 columns, the answer first."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from ullage.runtime.probe.advice import advise
from ullage.runtime.probe.curves import KNEE
from ullage.units import format_bytes, format_step_ns
from ullage.units import format_rate as rate
from ullage.units import format_time_ns as time

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ullage.runtime.probe.changes import Changes
    from ullage.runtime.probe.result import AllocationCurve, CopyCurve, HostFigures, ProbeResult, ReachCurve, Sample

_COLUMNS = 80
_TOPICS = {
    "small_copies": "Small copies",
    "large_copies": "Large copies",
    "read_once": "Data that a kernel reads once",
    "used_again": "Data used again and again",
    "larger_than_gpu": "Weights larger than the GPU",
    "allocation": "Short-lived memory",
    "random_access": "Random access",
    "from_managed": "From managed to stream-ordered memory",
}
KIND_NAMES = {
    "pageable": "pageable, copied",
    "pageable_in_place": "pageable, in place",
    "pinned": "pinned, copied",
    "mapped": "mapped (zero-copy)",
    "managed_by_fault": "managed, by fault",
    "managed_prefetched": "managed, prefetched",
    "stream_ordered": "stream-ordered",
    "device": "device (cudaMalloc)",
}
_WAYS = {
    ("cuda_malloc", "cold"): "cudaMalloc",
    ("pool", "cold"): "pool, cold",
    ("pool", "warm"): "pool, warm",
    ("torch", "cold"): "torch, cold",
    ("torch", "warm"): "torch, warm",
    ("managed", "cold"): "managed",
    ("pinned", "cold"): "pinned",
}
_SHOWN_COPIES = 5
_DRIFT = 10  # percent: more than this from one third of the rounds to another is said
_SHARED = 20  # percent of the measurements: more than this with other work on the core is said
_STEADY = 0.8  # of the best speed: what nine in ten reach of what nothing disturbs


def probe_text(result: ProbeResult, changes: Changes | None = None) -> str:
    """Return the answer, what changed since an earlier probe, and a table for each part."""
    parts = [_head(result), _folded(str(changes or ""))]
    if result.why_no_gpu is None:
        parts += [
            _advice(result),
            _kinds(result),
            _copies(result.copies),
            _allocations(result.allocations),
            _device(result),
            _reach(result),
        ]
    parts.append(_host(result.host))
    return "\n\n".join("\n".join(part) for part in parts if part)


def _head(result: ProbeResult) -> list[str]:
    machine = result.machine
    if result.why_no_gpu is not None:
        return _folded(f"Only the host was measured: {result.why_no_gpu}.")
    link = result.copy_curve("pinned", "to_gpu")
    speeds = [
        ("read", result.device_rate("read")),
        ("copy", result.device_rate("copy")),
        ("L2 read", result.device_rate("l2_read")),
        ("pinned link", None if link is None else link.top_bytes_per_s),
    ]
    first = f"{machine.gpu}: " + ", ".join(f"{name} {rate(speed)}" for name, speed in speeds if speed is not None)
    versions = [f"driver {machine.driver}", f"torch {machine.torch}", f"ullage {machine.ullage}", machine.date[:10]]
    return [*_folded(first.removesuffix(": ")), *_folded(", ".join(versions) + f"; took {result.took_ms / 1000:.0f} s")]


def _advice(result: ProbeResult) -> list[str]:
    lines: list[str] = []
    topic = ""
    for one in advise(result):
        if one.topic != topic:
            topic = one.topic
            lines.append(_TOPICS[topic])
        lines += [*_folded(one.do, "  "), *_folded(one.because, "    ")]
    return lines


def _kinds(result: ProbeResult) -> list[str]:
    if not result.kinds:
        return []
    lines = ["What the GPU gets from each kind of memory, and how much was moved at once"]
    lines.append(_row("", "first read", "read again", "write", widths=(22, 12, 12, 12)))
    for one in result.kinds:
        name = KIND_NAMES[one.kind]
        if one.why is not None:
            lines += _folded_row(name, one.why)
            continue
        cells = [rate(None if sample is None else sample.bytes_per_s) for sample in one.samples]
        read = "" if one.first_read is None else format_bytes(one.first_read.size_bytes)
        lines.append(_row(name, *cells, read, widths=(22, 12, 12, 12, 12)))
    return lines + _disturbed(result) + _shared(result) + _drifted(result)


def _disturbed(result: ProbeResult) -> list[str]:
    """Say what is often much slower than the best, because the host has a part in it and does other work too."""
    slow = []
    for one in result.kinds:
        rates = [
            f"{sample.name.replace('_', ' ')} {rate(sample.slow_bytes_per_s)}"
            for sample in one.samples
            if sample is not None and (sample.slow_bytes_per_s or 0) < _STEADY * (sample.bytes_per_s or 0)
        ]
        if rates:
            slow.append(f"{KIND_NAMES[one.kind].replace(', ', ' ')}: " + ", ".join(rates))
    if not slow:
        return []
    return _folded(
        "These are good moments. In a usual round, one in ten is slower than: " + "; ".join(slow) + ".", "  "
    )


def _shared(result: ProbeResult) -> list[str]:
    """Say how often the host's core had other work, which what is shown leaves out and a program does not."""
    timings = [sample.timing for one in result.kinds for sample in one.samples if sample and sample.timing]
    shared = [(one.shared_percent, one.num_timed) for one in timings if one.shared_percent is not None]
    percent = round(sum(share * num for share, num in shared) / sum(num for _, num in shared)) if shared else 0
    if percent <= _SHARED:
        return []
    return _folded(
        f"In {percent} % of the measurements that the host has a part in, its core had other work too, of this machine or "
        "of a neighbour. Those do not count; a program's copies and faults are slowed by it.",
        "  ",
    )


def _drifted(result: ProbeResult) -> list[str]:
    """Say what changed while it was measured, so that another probe may find something else."""
    changes = {
        KIND_NAMES[one.kind]: max(
            (sample.timing.drift_percent for sample in one.samples if sample and sample.timing), default=0
        )
        for one in result.kinds
    }
    changed = [f"{name.replace(', ', ' ')} by {change} %" for name, change in changes.items() if change > _DRIFT]
    if not changed:
        return []
    return _folded(
        f"The host was not steady meanwhile: {', '.join(changed)}. Another probe may differ by as much.", "  "
    )


def _copies(curves: Sequence[CopyCurve]) -> list[str]:
    if not curves:
        return []
    known = [one for one in curves if one.points]
    lines = ["Copies between host and GPU: speed in a stream, latency of one alone"]
    widths = (10, 17, 17, 17, 17)
    arrows = {"to_gpu": "to GPU", "to_host": "to host"}
    if known:
        lines.append(_row("", *(f"{one.kind} {arrows[one.direction]}" for one in known), widths=widths))
    for index in range(max((len(one.points) for one in known), default=0)):
        points = [one.points[index] for one in known]
        cells = [f"{_narrow(point.bytes_per_s)} {time(point.latency.time_ns):>7}" for point in points]
        lines.append(_row(format_bytes(points[0].size_bytes), *cells, widths=widths))
    if known:
        halves = [format_bytes(one.half_speed_bytes or 0) for one in known]
        lines.append(_row("half speed", *(f"from {half}" for half in halves), widths=widths))
    for one in curves:
        if one.why is not None:
            lines += _folded_row(f"{one.kind} {arrows[one.direction]}", one.why)
    return lines


def _narrow(bytes_per_s: int) -> str:
    return rate(bytes_per_s).replace(" ", "")


def _allocations(curves: Sequence[AllocationCurve]) -> list[str]:
    if not curves:
        return []
    known = [one for one in curves if one.points]
    sizes = sorted({point.size_bytes for one in known for point in one.points})
    shown = [sizes[index * (len(sizes) - 1) // (_SHOWN_COPIES - 1)] for index in range(_SHOWN_COPIES)] if sizes else []
    shown = sorted(set(shown))
    widths = (12, *[13] * len(shown))
    lines = ["Allocate / free, as the host waits"]
    if shown:
        lines.append(_row("", *(format_bytes(size) for size in shown), widths=widths))
    for one in curves:
        name = _WAYS[one.way, one.temperature]
        if one.why is not None:
            lines += _folded_row(name, one.why)
            continue
        by_size = {point.size_bytes: point for point in one.points}
        pairs = [by_size.get(size) for size in shown]
        cells = ["" if one is None else _pair(one.allocate.time_ns, one.free.time_ns) for one in pairs]
        lines.append(_row(name, *cells, widths=widths))
    return lines


def _pair(first_ns: int, second_ns: int) -> str:
    """Write two times, in one unit where both are short."""
    first, second = time(first_ns).split(), time(second_ns).split()
    if first[1] == second[1]:
        return f"{first[0]}/{second[0]} {first[1]}"
    return f"{first[0]}{first[1]}/{second[0]}{second[1]}"


def _device(result: ProbeResult) -> list[str]:
    if not result.device:
        return []
    names = {"read": "read", "write": "write", "copy": "copy, read + write", "l2_read": "L2 read"}
    lines = ["The GPU's own memory"]
    for one in result.device:
        lines += _sample_row(names[one.name], one)
    measured = [one for one in result.strides if one.timing is not None]
    if measured:
        lines.append("  useful bytes of one word of 4 bytes in each")
        lines += _wrapped_cells(f"{one.name} B: {_narrow(one.bytes_per_s or 0)}" for one in measured)
    elif result.strides:
        lines += _folded_row("strides", result.strides[0].why or "")
    return lines


def _sample_row(name: str, sample: Sample) -> list[str]:
    if sample.why is not None:
        return _folded_row(name, sample.why)
    return [_row(name, rate(sample.bytes_per_s), widths=(22, 12))]


def _reach(result: ProbeResult) -> list[str]:
    if not result.reach:
        return []
    lines = [f"Page reach: the footprint at which a step costs {KNEE:g} x, one step a stride"]
    lines.append(_row("", "stride", "least", "most", f"{KNEE:g} x at", widths=(10, 10, 10, 10, 14)))
    for one in result.reach:
        lines += _reach_row(one)
    for tlb in result.tlbs:
        lines += _folded(
            f"Model of the {tlb.pattern}s: {tlb.num_entries:,} entries x {format_bytes(tlb.page_bytes)} = "
            f"{format_bytes(tlb.reach_bytes)}; {format_step_ns(tlb.hit_ps / 1000)} within it, "
            f"{format_step_ns(tlb.miss_ps / 1000)} more for a miss; errors of {tlb.error_percent} %.",
            "  ",
        )
    return lines


def _reach_row(curve: ReachCurve) -> list[str]:
    if curve.why is not None:
        return _folded_row(f"{curve.pattern} {format_bytes(curve.stride_bytes)}", curve.why)
    if not curve.points:
        return _folded_row(f"{curve.pattern} {format_bytes(curve.stride_bytes)}", "too little memory is free")
    steps = [point.step_ns for point in curve.points]
    largest = format_bytes(curve.points[-1].footprint_bytes)
    knee = f"none to {largest}" if curve.knee_bytes is None else format_bytes(curve.knee_bytes)
    cells = format_bytes(curve.stride_bytes), format_step_ns(min(steps)), format_step_ns(max(steps)), knee
    return [_row(curve.pattern, *cells, widths=(10, 10, 10, 10, 16))]


def _host(host: HostFigures) -> list[str]:
    lines = ["The host's memory, one thread"]
    cells = [f"{format_bytes(one.size_bytes)}: {_narrow(one.bytes_per_s or 0)}" for one in host.copies if one.timing]
    lines += ["  copies", *_wrapped_cells(cells)]
    touch = host.first_touch
    if touch.timing is None:
        return [*lines, *_folded_row("first touch", touch.why or "")]
    page_ns = touch.timing.time_ns * host.page_bytes / touch.size_bytes
    return [*lines, f"  first touch of fresh memory: {time(page_ns)} a page of {format_bytes(host.page_bytes)}"]


def _row(*cells: str, widths: Sequence[int]) -> str:
    first, *rest = cells
    text = f"  {first:<{widths[0]}}" + "".join(
        f"{cell:>{width}}" for cell, width in zip(rest, widths[1:], strict=False)
    )
    return text.rstrip()


def _folded_row(name: str, why: str) -> list[str]:
    return textwrap.wrap(f"{name:<22}not measured: {why}", _COLUMNS - 2, initial_indent="  ", subsequent_indent="    ")


def _wrapped_cells(cells: Iterable[str]) -> list[str]:
    joined = ", ".join(cell.replace(" ", "\0") for cell in cells)
    lines = textwrap.wrap(joined, _COLUMNS, initial_indent="    ", subsequent_indent="    ")
    return [line.replace("\0", " ") for line in lines]


def _folded(text: str, indent: str = "") -> list[str]:
    return textwrap.wrap(
        text, _COLUMNS, initial_indent=indent, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
