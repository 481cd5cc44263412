"""The recordings in tests/data/cases and examples/, and what PyTorch itself counted on those runs."""

from __future__ import annotations

import json
import lzma
import pickle
from functools import cache
from pathlib import Path
from typing import Any

import ullage

ROOT = Path(__file__).resolve().parents[1]
CASES = ROOT / "tests" / "data" / "cases"
EXAMPLE = ROOT / "examples" / "train_leak.pickle.xz"

EXPECTED: dict[str, dict[str, Any]] = json.loads((CASES / "expected.json").read_text("utf-8"))

WORDS = ("requested", "allocated", "active", "reserved")

# What a snapshot does not tell: settings that held only for a while, a pool that never splits, events left out.
UNSETTLED = {"settings_change", "expandable_toggle", "mem_pool", "skipped_actions"}
PARTIAL = {"late_start", "wrapped", "context_state"}
COMPLETE = sorted(EXPECTED.keys() - UNSETTLED - PARTIAL)


def path_of(name: str) -> Path:
    """Return a recording's file."""
    return CASES / f"{name}.pickle.xz"


@cache
def trace_of(name: str) -> ullage.Trace:
    """Load a recording."""
    return ullage.load(path_of(name))


@cache
def device_of(name: str) -> ullage.DeviceTrace:
    """Return a recording's only device with events."""
    return trace_of(name).device()


@cache
def snapshot_of(name: str) -> dict[str, Any]:
    """Return a recording as torch's own tools see it: a dictionary."""
    snapshot: dict[str, Any] = pickle.loads(lzma.decompress(path_of(name).read_bytes()))
    return snapshot


@cache
def findings_of(name: str) -> tuple[ullage.Finding, ...]:
    """Explain a recording."""
    return tuple(ullage.explain(trace_of(name)))


def counted(name: str, when: str) -> tuple[int, ...]:
    """Return torch's own four sums: their peaks ("peak"), or what they were at the end ("current")."""
    stats = EXPECTED[name]["stats"]
    return tuple(stats[f"{word}_bytes.all.{when}"] for word in WORDS)
