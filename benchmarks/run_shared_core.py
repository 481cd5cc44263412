"""Shows what other work on the host's core does to what the host has a share in, and what leaving it out is worth.

    python -m benchmarks.run_shared_core [--seconds 330] [--raw FILE] [--out FILE]

For some minutes copies of pageable memory and accesses to managed memory are made as a probe makes them, each between two short
loops, whose time tells whether the core did anything else. Then windows as long as a probe's rounds are compared with later
ones: how often all figures agree within 5 %, where every measurement counts and where only those of a free core do. `--raw`
keeps the measurements; where the file is there already, they are read.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.machine import machine
from numpy.typing import NDArray

from ullage.runtime.probe.core import longest_free_ns, loop_ns
from ullage.runtime.probe.cuda_gpu import CudaGpu
from ullage.runtime.probe.gpu import Run
from ullage.runtime.probe.identity import identify
from ullage.runtime.probe.parts import parts_of
from ullage.runtime.probe.timing import timing_of_round, timing_of_rounds
from ullage.units import MIB

RESULTS = Path(__file__).parent / "results" / "shared_core.json"
PAGEABLE, MANAGED = 512 * MIB, 256 * MIB
COPIED, FAULTED, PREFETCHED = 64 * MIB, 64 * MIB, 128 * MIB
WINDOW_S, STEP_S, APART_S = 38, 4, (48, 96, 144, 192)

Row = tuple[str, float, float, float, float]  # what, when, the loop before, it, the loop after; in s and ns


def measured(gpu: CudaGpu, seconds: float) -> Iterator[Row]:
    """Yield measurements: a round goes through fresh blocks."""
    start = time.monotonic()
    gpu.warm_up()
    device = gpu.allocate("torch", COPIED)

    def timed(what: str, run: Run) -> Row:
        before = loop_ns()
        taken = gpu.device_ns(run, 1, is_queued=False)[0]
        return what, time.monotonic() - start, before, taken, loop_ns()

    while time.monotonic() - start < seconds:
        host = gpu.allocate("pageable", PAGEABLE)
        gpu.touching(host)()
        for part in parts_of(host, COPIED):
            yield timed("pageable to_gpu", gpu.copying(device, part, COPIED))
        for part in parts_of(host, COPIED):
            yield timed("pageable to_host", gpu.copying(part, device, COPIED))
        gpu.free(host)
        managed = gpu.allocate("managed", MANAGED)
        for way, prepare in (("read", gpu.reading), ("write", gpu.writing)):
            gpu.touching(managed)()
            for part in parts_of(managed, FAULTED):
                yield timed(f"fault {way}", prepare(part, FAULTED))
            gpu.touching(managed)()
            for part in parts_of(managed, PREFETCHED):
                yield timed(f"prefetched {way}", after(gpu.prefetching(part), prepare(part, PREFETCHED)))
        gpu.free(managed)
    gpu.free(device)


def after(first: Run, second: Run) -> Run:
    def run() -> None:
        first()
        second()

    return run


def summary(rows: Sequence[Row]) -> dict[str, Any]:
    """Return what a loop and each measurement take by a free core and a shared one, and how often windows agree."""
    loops = np.array([loop for _, _, before, _, after_it in rows for loop in (before, after_it)])
    longest = longest_free_ns(list(loops))
    kinds = {
        what: np.array([row[1:] for row in of])
        for what, of in groupby(sorted(rows, key=lambda row: row[0]), key=lambda row: row[0])
    }
    return {
        "loop_ns": {f"p{at}": round(float(np.percentile(loops, at))) for at in (1, 10, 25, 50, 75, 90)},
        "measurements": {what: by_state(of, longest) for what, of in kinds.items()},
        "windows_that_agree": {
            "all count": agreement(kinds, lambda times, _: timing_of_round(times)),
            "a free core's count": agreement(
                kinds, lambda times, slowest: timing_of_round(times, [one <= longest for one in slowest])
            ),
        },
    }


def by_state(of: NDArray[np.float64], longest: float) -> dict[str, Any]:
    _, before, taken, after_it = of.T
    free = np.maximum(before, after_it) <= longest
    shared = np.minimum(before, after_it) > longest
    return {
        "num": len(taken),
        "free_percent": round(100 * float(free.mean())),
        "shared_percent": round(100 * float(shared.mean())),
        "free_median_ns": round(float(np.median(taken[free]))),
        "shared_median_ns": round(float(np.median(taken[shared]))),
    }


def agreement(
    kinds: dict[str, NDArray[np.float64]], round_of: Callable[[Sequence[float], Sequence[float]], Any]
) -> dict[str, Any]:
    """Return the share of pairs of windows in which all figures agree within 5 %, and the largest difference."""
    parts = {
        what: (MANAGED // PREFETCHED if "prefetched" in what else 8 if "pageable" in what else 4) for what in kinds
    }
    ends = max(of[-1, 0] for of in kinds.values())
    begins = np.arange(0, ends - WINDOW_S, STEP_S)
    figures = []
    for what, of in kinds.items():
        row = []
        for begin in begins:
            one = of[(of[:, 0] >= begin) & (of[:, 0] < begin + WINDOW_S)]
            whole = one[: len(one) // parts[what] * parts[what]].reshape(-1, parts[what], 4)
            rounds = [round_of(list(each[:, 2]), list(np.maximum(each[:, 1], each[:, 3]))) for each in whole]
            row.append(timing_of_rounds(rounds).time_ns)
        figures.append(row)
    values, shares, worst = np.array(figures, np.float64), {}, 0.0
    for apart in APART_S:
        lag = apart // STEP_S
        off = np.abs(values[:, lag:] / values[:, :-lag] - 1)
        shares[f"{apart} s later"] = round(float((off < 0.05).all(axis=0).mean()), 2)
        worst = max(worst, float(off.max()))
    return {**shares, "largest_difference": round(worst, 3)}


def measurements(raw: Path | None, seconds: float) -> dict[str, Any]:
    """Return the machine and the rows, measured now or before."""
    if raw is not None and raw.exists():
        found: dict[str, Any] = json.loads(raw.read_text())
        return found
    with CudaGpu(identify()) as gpu:
        found = {"machine": machine(), "rows": list(measured(gpu, seconds))}
    if raw is not None:
        raw.write_text(json.dumps(found))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=330)
    parser.add_argument("--raw", type=Path)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    taken = measurements(options.raw, options.seconds)
    found = {"machine": taken["machine"], **summary(taken["rows"])}
    options.out.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
