"""A damaged snapshot ends in one clear error, or is explained as far as it goes; never in anything else."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import ullage
from tests.unit.snapshot_builder import MIB, SimulatedOutOfMemoryError, SnapshotBuilder
from ullage.errors import UllageError

bounded = settings(max_examples=300, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])


def eventful() -> SnapshotBuilder:
    """Return a recording in which every finding has something to look at."""
    one = SnapshotBuilder(limit_bytes=90 * MIB)
    kept = []
    for step in range(6):
        one.annotate(f"ProfilerStep#{step}")
        kept.append(one.alloc(2 * MIB, "train.py:3 step < train.py:9 main"))
        one.free(one.alloc(12 * MIB, "train.py:4 step < train.py:9 main"))
    waits = one.alloc(3 * MIB, "train.py:5 step", stream=7)
    one.request_free(waits)
    one.alloc(700, "graph.py:2 capture", pool=(0, 1))
    one.complete_free(waits)
    with pytest.raises(SimulatedOutOfMemoryError):
        one.alloc(80 * MIB, "train.py:6 step")
    one.free(*kept[:3])
    return one


PICKLE = eventful().pickled(4)
JSON = json.dumps(eventful().snapshot()).encode()


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("broken") / "snapshot"


def loaded(path: Path) -> ullage.Trace | None:
    with contextlib.suppress(UllageError):
        return ullage.load(path)
    return None


def load_and_explain(data: bytes, path: Path) -> bool:
    """Return whether the file could be read; then everything that can be asked of it was asked."""
    path.write_bytes(data)
    trace = loaded(path)
    if trace is None:
        return False
    json.dumps([finding.to_json() for finding in ullage.explain(trace)], allow_nan=False)
    for device in trace.devices:
        device.verify()
        layout = device.layout_at("end")
        assert layout.segment_bytes.sum() == layout.size_bytes.sum()
    return True


def mutated(original: bytes, changes: list[tuple[int, int]]) -> bytes:
    data = bytearray(original)
    for place, value in changes:
        data[place % len(data)] = value
    return bytes(data)


def test_the_undamaged_files_are_read(scratch: Path) -> None:
    assert load_and_explain(PICKLE, scratch)
    assert load_and_explain(JSON, scratch)


@bounded
@example([(0, 0)])
@given(st.lists(st.tuples(st.integers(0, len(PICKLE) - 1), st.integers(0, 255)), min_size=1, max_size=4))
def test_a_pickle_with_changed_bytes_is_refused_or_explained(scratch: Path, changes: list[tuple[int, int]]) -> None:
    load_and_explain(mutated(PICKLE, changes), scratch)


@bounded
@given(
    st.lists(
        st.tuples(st.integers(0, len(JSON) - 1), st.sampled_from(b'0123456789-"{}[],:eE. \\x')), min_size=1, max_size=4
    )
)
def test_json_with_changed_bytes_is_refused_or_explained(scratch: Path, changes: list[tuple[int, int]]) -> None:
    load_and_explain(mutated(JSON, changes), scratch)


@bounded
@given(st.integers(0, len(PICKLE)), st.integers(0, len(PICKLE)), st.integers(0, 40))
def test_a_pickle_with_bytes_moved_left_out_or_repeated_is_refused_or_explained(
    scratch: Path, begin: int, to: int, length: int
) -> None:
    part = PICKLE[begin : begin + length]
    load_and_explain(PICKLE[:to] + part + PICKLE[to:], scratch)
    load_and_explain(PICKLE[:begin] + PICKLE[begin + length :], scratch)


@bounded
@given(st.binary(max_size=200))
def test_bytes_that_are_no_snapshot_are_refused(scratch: Path, data: bytes) -> None:
    # A pickled list of nothing is a snapshot of nothing; hypothesis is unlikely to write one, and it would be right.
    if load_and_explain(data, scratch):
        assert ullage.load(scratch).devices == ()


FIELDS = st.sampled_from(["action", "addr", "size", "stream", "time_us", "frames"])
VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(max_size=5),
    st.lists(st.integers(), max_size=3),
)


@bounded
@given(st.integers(0, 29), FIELDS, VALUES)
def test_an_event_with_a_field_of_another_kind_is_refused_or_explained(
    scratch: Path, index: int, field: str, value: object
) -> None:
    import pickle

    snapshot = eventful().snapshot()
    events = snapshot["device_traces"][0]
    events[index % len(events)] = events[index % len(events)] | {field: value}
    load_and_explain(pickle.dumps(snapshot, protocol=4), scratch)
