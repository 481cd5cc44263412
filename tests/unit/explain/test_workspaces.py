"""A block is taken for a cuBLAS workspace by its size, its long life and its few siblings on a stream."""

from __future__ import annotations

from tests.unit.conftest import Load
from tests.unit.snapshot_builder import MIB, SnapshotBuilder
from ullage.explain.workspaces import find_workspaces


def found(one: SnapshotBuilder, load: Load) -> list[int]:
    device = load(one).device()
    rows: list[int] = device.blocks.requested_bytes[find_workspaces(device)].tolist()
    return rows


def test_two_handles_on_one_stream_have_a_workspace_each(load: Load) -> None:
    one = SnapshotBuilder()
    for size in (32 * MIB, 32 * MIB, 12 * MIB):
        one.alloc(size)
    assert found(one, load) == [32 * MIB, 32 * MIB]


def test_more_than_two_on_a_stream_are_tensors_that_happen_to_be_as_large(load: Load) -> None:
    one = SnapshotBuilder()
    for _ in range(3):
        one.alloc(32 * MIB)
    assert found(one, load) == []


def test_what_is_freed_is_no_workspace(load: Load) -> None:
    one = SnapshotBuilder()
    one.free(one.alloc(32 * MIB))
    assert found(one, load) == []


def test_the_smaller_one_of_cublaslt_counts_beside_a_large_one_only(load: Load) -> None:
    one = SnapshotBuilder()
    one.alloc(MIB)
    assert found(one, load) == []
    one.alloc(32 * MIB)
    assert sorted(found(one, load)) == [MIB, 32 * MIB]
