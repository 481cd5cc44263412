"""Probes this machine twice, and shows that both agree.

    python -m benchmarks.run_probe [--apart] [--out FILE] [--device N]

The two take turns, part by part and round by round, so that what else the host does meanwhile meets both; with `--apart` each
is a process of its own, the second begins when the first is done, and the two differ by what the host did in between as well.
Speeds of blocks that are larger than any cache have to agree within 5 %; what a small copy, one within the host or an
allocation costs, and where page reach has its knees, is shown and not held. Prints the second probe, the differences, and the
tables of docs/probe.md; writes both probes.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from ullage.runtime.probe import ProbeResult, probe
from ullage.runtime.probe.changes import speeds
from ullage.units import format_bytes, format_rate, format_step_ns, format_time_ns

RESULTS = Path(__file__).parent / "results" / "probe.json"
VERSION = "0.1.0"
TOLERANCE = 0.05
LONGEST_S = 60


def costs(result: ProbeResult) -> Iterator[tuple[str, int]]:
    """Yield what is shown, and not held: times in nanoseconds."""
    for sample in result.host.copies:
        if sample.timing is not None:
            yield f"host's copy {format_bytes(sample.size_bytes)}", sample.timing.time_ns
    for curve in result.copies:
        for point in curve.points:
            yield f"latency {curve.kind} {curve.direction} {format_bytes(point.size_bytes)}", point.latency.time_ns
    for way in result.allocations:
        for one in way.points:
            name = f"{way.way} {way.temperature} {format_bytes(one.size_bytes)}"
            yield f"allocate {name}", one.allocate.time_ns
            yield f"free {name}", one.free.time_ns


def knees(result: ProbeResult) -> dict[str, int | None]:
    """Return where each stride has its knee; None: it has none."""
    return {
        f"knee {one.pattern} {format_bytes(one.stride_bytes)}": one.knee_bytes for one in result.reach if one.points
    }


def reaches(result: ProbeResult) -> dict[str, int | None]:
    """Return each model's reach."""
    return {f"reach of {tlb.pattern}s": tlb.reach_bytes for tlb in result.tlbs}


def knee_differences(
    first: dict[str, int | None], second: dict[str, int | None]
) -> dict[str, tuple[int | None, int | None, float | None]]:
    """Return both knees and by how much the second differs; None: one has a knee that the other has not."""
    found: dict[str, tuple[int | None, int | None, float | None]] = {}
    for name in sorted(first.keys() | second.keys()):
        one, other = first.get(name), second.get(name)
        if one is not None or other is not None:
            found[name] = one, other, other / one - 1 if one is not None and other is not None else None
    return found


def differences(
    first: Iterator[tuple[str, int]], second: Iterator[tuple[str, int]]
) -> dict[str, tuple[int, int, float]]:
    """Return both figures and by how much the second differs."""
    known = dict(first)
    return {name: (known[name], value, value / known[name] - 1) for name, value in second if name in known}


def cell(bytes_per_s: int | None) -> str:
    return format_rate(bytes_per_s)


def markdown(result: ProbeResult) -> Iterator[str]:
    """Yield the lines of the tables for docs/probe.md."""
    machine = result.machine
    yield (
        f"{machine.gpu}, driver {machine.driver}, torch {machine.torch}, Triton {machine.triton}, cuda-bindings "
        f"{machine.cuda_bindings}, ullage {machine.ullage}, {machine.date[:10]}; {result.took_ms / 1000:.0f} s."
    )
    yield ""
    yield "| memory | first read | read again | write |\n|---|---|---|---|"
    for one in result.kinds:
        rates = [cell(sample.bytes_per_s) if sample else "-" for sample in one.samples]
        yield f"| {one.kind.replace('_', ' ')} | {one.why or ' | '.join(rates)} |" + (" | |" if one.why else "")
    yield ""
    known = [one for one in result.copies if one.points]
    if known:
        yield "| copy of | " + " | ".join(f"{one.kind} {one.direction.replace('_', ' ')}" for one in known) + " |"
        yield "|---" * (len(known) + 1) + "|"
        for index, point in enumerate(known[0].points):
            row = [
                f"{cell(one.points[index].bytes_per_s)}, {format_time_ns(one.points[index].latency.time_ns)}"
                for one in known
            ]
            yield f"| {format_bytes(point.size_bytes)} | " + " | ".join(row) + " |"
        yield "| half speed from | " + " | ".join(format_bytes(one.half_speed_bytes or 0) for one in known) + " |"
        yield ""
    yield from allocation_lines(result)
    yield "| the GPU's memory | speed |\n|---|---|"
    for sample in result.device:
        yield f"| {sample.name} | {sample.why or cell(sample.bytes_per_s)} |"
    for sample in result.strides:
        yield f"| 4 bytes in each {sample.name} | {sample.why or cell(sample.bytes_per_s)} |"
    yield ""
    yield "| access | stride | least | most | 1.5 x at |\n|---|---|---|---|---|"
    for curve in result.reach:
        steps = [point.step_ns for point in curve.points]
        if steps:
            knee = "-" if curve.knee_bytes is None else format_bytes(curve.knee_bytes)
            yield (
                f"| {curve.pattern} | {format_bytes(curve.stride_bytes)} | {format_step_ns(min(steps))} | "
                f"{format_step_ns(max(steps))} | {knee} |"
            )
    for tlb in result.tlbs:
        yield (
            f"\nModel of the {tlb.pattern}s: {tlb.num_entries:,} entries x {format_bytes(tlb.page_bytes)} = "
            f"{format_bytes(tlb.reach_bytes)}; {format_step_ns(tlb.hit_ps / 1000)} within it, "
            f"{format_step_ns(tlb.miss_ps / 1000)} more for a miss; errors of {tlb.error_percent} %."
        )


def allocation_lines(result: ProbeResult) -> Iterator[str]:
    known = [one for one in result.allocations if one.points]
    if not known:
        return
    sizes = sorted({point.size_bytes for one in known for point in one.points})
    yield "| allocate, free | " + " | ".join(format_bytes(size) for size in sizes) + " |"
    yield "|---" * (len(sizes) + 1) + "|"
    for one in known:
        by_size = {point.size_bytes: point for point in one.points}
        row = [
            f"{format_time_ns(by_size[size].allocate.time_ns)}, {format_time_ns(by_size[size].free.time_ns)}"
            if size in by_size
            else ""
            for size in sizes
        ]
        yield f"| {one.way}, {one.temperature} | " + " | ".join(row) + " |"
    yield ""


class Turns:
    """Lets two threads go on in turn."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._turn = 0
        self._is_done = [False, False]
        self.waited_s = [0.0, 0.0]

    def hand_over(self, me: int) -> None:
        """Let the other go on, and wait until it has; where it is done, go on at once."""
        start = time.monotonic()
        with self._changed:
            self._turn = me if self._is_done[1 - me] else 1 - me
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._turn == me)
        self.waited_s[me] += time.monotonic() - start

    def wait(self, me: int) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._turn == me)

    def leave(self, me: int) -> None:
        with self._changed:
            self._is_done[me], self._turn = True, 1 - me
            self._changed.notify_all()


def say(what: str) -> None:
    print(f"[{what}]", file=sys.stderr, flush=True)


def probe_in_turn(device: int) -> list[ProbeResult]:
    """Make two probes that take turns, each of which took as long as it did not wait."""
    turns = Turns()

    def one(me: int) -> ProbeResult:
        def progress(what: str) -> None:
            say(f"probe {me + 1}: {what}")
            turns.hand_over(me)

        turns.wait(me)
        try:
            result = probe(device=device, version=VERSION, keep=False, progress=progress)
        finally:
            turns.leave(me)
        return replace(result, took_ms=result.took_ms - round(1000 * turns.waited_s[me]))

    with ThreadPoolExecutor(2) as threads:
        return list(threads.map(one, range(2)))


def probe_alone(device: int) -> ProbeResult:
    return probe(device=device, version=VERSION, keep=False, progress=say)


def probe_apart(device: int) -> list[ProbeResult]:
    """Make two probes, each in a process of its own, as two commands would."""
    found = []
    for _ in range(2):
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
            found.append(process.submit(probe_alone, device).result())
    return found


def compared(first: ProbeResult, second: ProbeResult, order: str) -> dict[str, Any]:
    """Print the second probe, how the two differ and the tables for docs/probe.md; return the record of both."""
    print(second)
    held = differences(speeds(first), speeds(second))
    shown = differences(costs(first), costs(second))
    print("\nTwo probes: speeds")
    for name, (one, other, change) in held.items():
        mark = "" if abs(change) <= TOLERANCE else "  <-- more than 5 %"
        print(f"  {name:<32} {cell(one):>10} {cell(other):>10} {100 * change:+6.1f} %{mark}")
    print("Two probes: costs that differ by more than 20 %")
    for name, (before, after, change) in shown.items():
        if abs(change) > 0.2:
            print(f"  {name:<40} {format_time_ns(before):>10} {format_time_ns(after):>10} {100 * change:+6.1f} %")
    bends = knee_differences(knees(first), knees(second)) | knee_differences(reaches(first), reaches(second))
    print("Two probes: knees")
    for name, (knee, later, moved) in bends.items():
        cells = ["none" if one is None else format_bytes(one) for one in (knee, later)]
        print(f"  {name:<40} {cells[0]:>10} {cells[1]:>10} " + ("" if moved is None else f"{100 * moved:+6.1f} %"))
    print(f"\nTook {first.took_ms / 1000:.1f} s (with compiling), {second.took_ms / 1000:.1f} s\n")
    print("\n".join(markdown(second)))
    worst = max((abs(change) for _, _, change in held.values()), default=0.0)
    return {
        "order": order,
        "probes": [first.to_json(), second.to_json()],
        "differences": {name: round(change, 4) for name, (_, _, change) in held.items()}
        | {name: None if moved is None else round(moved, 4) for name, (_, _, moved) in bends.items()},
        "largest_difference": round(worst, 4),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--apart", action="store_true")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--device", type=int, default=0)
    options = parser.parse_args()
    first, second = (probe_apart if options.apart else probe_in_turn)(options.device)
    record = compared(first, second, "one after the other" if options.apart else "in turn, round by round")
    worst = record["largest_difference"]
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"\nlargest difference {100 * worst:.1f} %; written to {options.out}")
    if worst > TOLERANCE or first.took_ms > 1000 * LONGEST_S:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
