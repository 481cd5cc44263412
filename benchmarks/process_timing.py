"""Runs whole processes in turns and reports how long they took and how much memory they needed."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


class CommandFailedError(RuntimeError):
    """A measured command ended with an error, so its time means nothing."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """One command to measure, on one recording."""

    name: str
    recording: str
    command: Sequence[str]
    is_peer: bool = False
    allowed_exit_codes: frozenset[int] = frozenset({0})


@dataclass(kw_only=True)
class Timing:
    """What the runs of one case took."""

    case: Case
    seconds: list[float] = field(default_factory=list)
    peak_rss_bytes: list[int] = field(default_factory=list)

    @property
    def median_s(self) -> float:
        return statistics.median(self.seconds)

    def as_json(self) -> dict[str, Any]:
        return {
            "name": self.case.name,
            "recording": self.case.recording,
            "command": [Path(self.case.command[0]).name, *map(shown, self.case.command[1:])],
            "is_peer": self.case.is_peer,
            "median_s": round(self.median_s, 4),
            "min_s": round(min(self.seconds), 4),
            "max_s": round(max(self.seconds), 4),
            "runs_s": [round(seconds, 4) for seconds in self.seconds],
            "peak_rss_bytes": max(self.peak_rss_bytes),
        }


def shown(argument: str) -> str:
    """Return an argument as results show it: paths without this machine's folders."""
    return Path(argument).name if argument.startswith(os.sep) else argument


def run_once(case: Case) -> tuple[float, int]:
    """Run the command once; returns its wall time in seconds and its peak resident memory in bytes.

    Linux counts what this process holds as the child's first peak, so keep it small: less than that cannot be seen.
    """
    start = time.perf_counter()
    child = subprocess.Popen(case.command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)  # unlike RUSAGE_CHILDREN, about this child alone
    seconds = time.perf_counter() - start
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode not in case.allowed_exit_codes:
        raise CommandFailedError(f"{case.name} ended with {child.returncode}: {' '.join(case.command)}")
    return seconds, usage.ru_maxrss * 1024


def measure(cases: Sequence[Case], num_runs: int, progress: Callable[[str], None]) -> list[Timing]:
    """Run every case `num_runs` times in turns, after one round that only warms the file cache.

    In turns, so that a slower minute of the machine falls on all cases alike.
    """
    timings = [Timing(case=case) for case in cases]
    for run in range(num_runs + 1):
        for timing in timings:
            seconds, peak = run_once(timing.case)
            progress(f"run {run}/{num_runs}: {timing.case.name}, {timing.case.recording}: {seconds:.2f} s")
            if run:
                timing.seconds.append(seconds)
                timing.peak_rss_bytes.append(peak)
    return timings


def machine() -> dict[str, Any]:
    """Return what the numbers depend on: processor, cores, memory."""
    cpu_lines = Path("/proc/cpuinfo").read_text().splitlines()
    models = [line.partition(":")[2].strip() for line in cpu_lines if line.startswith("model name")]
    return {
        "cpu": models[0] if models else "unknown",
        "num_cores": len(os.sched_getaffinity(0)),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "python": sys.version.split()[0],
    }
