"""The recordings that the browser tests show: those of tests/data/cases and examples/, and one with very many blocks."""

from __future__ import annotations

import random
from functools import cache
from pathlib import Path

import ullage
from tests.recordings import ROOT, path_of
from tests.unit.snapshot_builder import KIB, SnapshotBuilder

LEAK, VARLEN, GRAPHS, OOM = "train_leak", "train_varlen", "graphs", "oom"

# One of each kind of history, of allocator and of ending.
KINDS = (
    LEAK,
    VARLEN,
    GRAPHS,
    OOM,
    "wrapped",
    "late_start",
    "context_state",
    "stranded_weights.exp",
    "expandable_toggle",
    "graph_per_length",
    "record_stream_backlog",
    "pending_end",
    "mem_pool",
    "no_stacks",
    "cpp_stacks",
    "split_mix_capped",
)


def file_of(name: str) -> Path:
    """Return the file of an example or of a case."""
    example = ROOT / "examples" / f"{name}.pickle.xz"
    return example if example.exists() else path_of(name)


@cache
def trace_of(name: str) -> ullage.Trace:
    """Load a recording."""
    return ullage.load(file_of(name))


@cache
def device_of(name: str) -> ullage.DeviceTrace:
    """Return a recording's only device with events."""
    return trace_of(name).device()


@cache
def findings_of(name: str) -> tuple[ullage.Finding, ...]:
    """Explain a recording."""
    return tuple(ullage.explain(trace_of(name)))


def many_small_blocks() -> SnapshotBuilder:
    """Return a history of 15,000 blocks of a few KiB: more than the page draws one by one."""
    builder, chance, live = SnapshotBuilder(), random.Random(1), []
    for index in range(15_000):
        live.append(builder.alloc(chance.choice([512, KIB, 4 * KIB, 64 * KIB]), f"small.py:{index % 7 + 1} make"))
        if len(live) > 40:
            builder.free(live.pop(chance.randrange(len(live))))
    return builder
