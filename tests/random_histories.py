"""Random histories for hypothesis: programs that a naive allocator runs and records, with the truth about them."""

from __future__ import annotations

import contextlib
import io
import random

from hypothesis import strategies as st

import ullage
from tests.unit.snapshot_builder import KIB, MIB, SimulatedOutOfMemoryError, SnapshotBuilder
from ullage import _core

SIZE_RANGES = ((1, 4 * KIB), (MIB - 600, MIB + 600), (MIB, 12 * MIB), (9 * MIB, 40 * MIB))
PLACES = ("train.py:3 step", "train.py:4 step < train.py:9 main", "model.py:7 forward < train.py:9 main", "")
ACTIONS = {"alloc": 10, "free": 5, "request_free": 2, "complete_free": 2, "empty_cache": 1, "annotate": 1}
MAX_ACTIONS = 120


def act(builder: SnapshotBuilder, rng: random.Random) -> None:
    """Do one thing; what is impossible at that moment is left out."""
    (action,) = rng.choices(list(ACTIONS), weights=list(ACTIONS.values()))
    if action == "alloc":
        size, place = rng.randint(*rng.choice(SIZE_RANGES)), rng.choice(PLACES)
        with contextlib.suppress(SimulatedOutOfMemoryError):
            builder.alloc(
                size, place, stream=rng.choice((0, 0, 0, 7)), pool=rng.choice(((0, 0), (0, 0), (0, 0), (0, 1)))
            )
    elif action == "empty_cache":
        builder.empty_cache()
    elif action == "annotate":
        builder.annotate("ProfilerStep")
    else:
        waits = action == "complete_free"
        able = [one for one in builder.lives if one.death == -1 and (one.free_requested >= 0) == waits]
        if able:
            getattr(builder, action)(rng.choice(able).address)


@st.composite
def histories(draw: st.DrawFn, limits: tuple[int | None, ...] = (None, 60 * MIB, 150 * MIB)) -> SnapshotBuilder:
    """Draw a history of up to some two hundred events, in which some requests may run out of memory.

    A seed and a length are drawn: a failing history shrinks to its shortest failing beginning.
    """
    limit_bytes = draw(st.sampled_from(limits))
    # Without pools in the events, nothing tells where a private segment belonged that is gone by the end.
    builder = SnapshotBuilder(limit_bytes=limit_bytes, records_pools=True)
    rng = random.Random(draw(st.integers(0, 2**32 - 1)))
    # A file without a single completed free is taken for one in which these were not recorded.
    builder.free(builder.alloc(700))
    for _ in range(draw(st.integers(0, MAX_ACTIONS))):
        act(builder, rng)
    return builder


def trace_of(builder: SnapshotBuilder) -> ullage.Trace:
    """Load what a builder recorded, without a file."""
    return ullage.Trace(_core.read_callable(io.BytesIO(builder.pickled()).read))
