"""What is still allocated at the end is listed by line; cuBLAS workspaces are called by their name."""

from __future__ import annotations

import pytest

from tests.unit.conftest import Load
from tests.unit.snapshot_builder import KIB, MIB, SnapshotBuilder
from ullage.explain.held import find_held


def test_what_was_never_freed_is_held_by_its_line(load: Load) -> None:
    one = SnapshotBuilder()
    one.alloc(12 * MIB, "model.py:2 load")
    one.free(one.alloc(14 * MIB))
    (held,) = find_held(load(one).device())
    assert (held.bytes, held.severity, str(held.site[0])) == (12 * MIB, "info", "model.py:2 load")
    assert held.evidence["likely_cublas_workspace_bytes"] == 0
    assert held.title == "Held at the end: 12 MiB in 1 block"


@pytest.mark.parametrize("size", [0, 1000 * KIB])
def test_less_than_a_mebibyte_is_not_worth_a_word(size: int, load: Load) -> None:
    one = SnapshotBuilder()
    one.free(one.alloc(12 * MIB))
    if size:
        one.alloc(size)
    assert find_held(load(one).device()) == []


@pytest.mark.parametrize("workspace_bytes", [32 * MIB, 8_519_680])
def test_workspaces_of_each_stream_are_not_a_leak(workspace_bytes: int, load: Load) -> None:
    one = SnapshotBuilder()
    for stream in (0, 7, 8):
        one.alloc(workspace_bytes, "train.py:3 step", stream=stream)
    (held,) = find_held(load(one).device())
    assert held.evidence["likely_cublas_workspace_bytes"] == held.bytes >= 3 * workspace_bytes
    assert "not a leak" in held.why
    assert "CUBLAS_WORKSPACE_CONFIG" in held.next_step


def test_workspaces_on_many_streams_beside_a_few_bytes_are_a_reason_to_share_a_stream(load: Load) -> None:
    one = SnapshotBuilder()
    one.alloc(3 * MIB, "model.py:2 load")
    for stream in range(4):
        one.alloc(32 * MIB, "train.py:3 step", stream=stream)
    (held,) = find_held(load(one).device())
    assert held.title == "Held at the end: 131 MiB in 5 blocks; 128 MiB of it has the size of cuBLAS workspaces"
    assert "on 4 streams" in held.why
    assert "reuse one side stream" in held.next_step


def test_workspaces_beside_much_else_are_not_the_answer(load: Load) -> None:
    one = SnapshotBuilder()
    one.alloc(30 * MIB, "model.py:2 load")
    one.alloc(32 * MIB)
    (held,) = find_held(load(one).device())
    assert "cuBLAS" not in held.title
    assert held.next_step.startswith("If the work was done by then")
