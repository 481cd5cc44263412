"""Private pools are listed with what is free inside, what sharing would save, and what a replay would overwrite."""

from __future__ import annotations

import numpy as np

from tests.unit.conftest import Load
from tests.unit.snapshot_builder import MIB, SnapshotBuilder
from ullage.explain.private_pool import _overlapping, find_private_pool


def captures(num_graphs: int) -> SnapshotBuilder:
    """Return captures one after the other: each keeps 10 MiB, and uses 40 MiB on the way."""
    one = SnapshotBuilder()
    for graph in range(num_graphs):
        pool = (graph + 1, 0)
        temporary = one.alloc(40 * MIB, "model.py:5 forward < graphs.py:3 capture", pool=pool)
        one.alloc(10 * MIB, "model.py:6 forward < graphs.py:3 capture", pool=pool)
        one.free(temporary)
    return one


def test_pools_filled_one_after_the_other_could_be_one(load: Load) -> None:
    (pools,) = find_private_pool(load(captures(3)).device())
    assert (pools.bytes, pools.severity) == (150 * MIB, "warning")
    assert [(row["reserved_bytes"], row["live_bytes"], row["free_bytes"]) for row in pools.evidence["pools"]] == [
        (50 * MIB, 10 * MIB, 40 * MIB)
    ] * 3
    assert pools.evidence["estimated_saving_bytes"] == 80 * MIB
    assert "graph_pool_handle" in pools.next_step
    assert pools.title == "3 private pools hold 150 MiB, 120 MiB of it free inside; sharing would save about 80 MiB"


def test_one_pool_has_nothing_to_share(load: Load) -> None:
    (pools,) = find_private_pool(load(captures(1)).device())
    assert (pools.severity, pools.evidence["estimated_saving_bytes"]) == ("info", 0)
    assert pools.title.startswith("One private pool holds 50 MiB")


def test_pools_in_use_at_once_cannot_be_shared(load: Load) -> None:
    one = SnapshotBuilder()
    first, second = [one.alloc(40 * MIB, pool=(graph, 0)) for graph in (1, 2)]
    one.alloc(10 * MIB, pool=(1, 0))
    one.alloc(10 * MIB, pool=(2, 0))
    one.free(first, second)
    (pools,) = find_private_pool(load(one).device())
    assert pools.evidence["estimated_saving_bytes"] == 0


def test_without_private_pools_there_is_nothing_to_say(load: Load) -> None:
    one = SnapshotBuilder()
    one.alloc(40 * MIB)
    assert find_private_pool(load(one).device()) == []


def captured_workspace(before_capture: bool, pool: tuple[int, int] = (1, 0), begins_at: str = "") -> SnapshotBuilder:
    one = SnapshotBuilder()
    if begins_at:
        one.alloc(8, begins_at)
    if before_capture:
        one.alloc(MIB, "cache.py:7 workspace")
    one.free(one.alloc(MIB, "model.py:5 forward", pool=pool))
    if not before_capture:
        one.alloc(MIB, "cache.py:7 workspace", pool=pool)
    one.alloc(700, "train.py:9 main")
    return one


def test_a_workspace_made_in_a_capture_lies_where_a_temporary_was(load: Load) -> None:
    (pools,) = find_private_pool(load(captured_workspace(before_capture=False)).device())
    (kept,) = pools.evidence["kept_over_temporaries"]
    assert (kept["bytes"], kept["site"][0]["file"], kept["temporary_site"][0]["file"]) == (MIB, "cache.py", "model.py")
    assert pools.title.endswith("; 1 block (1 MiB) kept where replays write: an output?")
    assert pools.severity == "info"


def test_a_workspace_made_before_the_capture_is_safe(load: Load) -> None:
    (pools,) = find_private_pool(load(captured_workspace(before_capture=True)).device())
    assert pools.evidence["kept_over_temporaries"] == []


def captured_input(is_freed: bool) -> SnapshotBuilder:
    one = SnapshotBuilder()
    read = one.alloc(12 * MIB, "data.py:2 load")
    one.alloc(12 * MIB, "model.py:5 forward", pool=(1, 0))
    if is_freed:
        one.free(read)
    one.alloc(12 * MIB, "train.py:9 junk")
    return one


def test_an_input_freed_after_the_capture_and_overwritten_is_named(load: Load) -> None:
    (pools,) = find_private_pool(load(captured_input(is_freed=True)).device())
    (freed,) = pools.evidence["freed_after_capture"]
    assert (freed["bytes"], freed["site"][0]["file"], freed["over_site"][0]["file"]) == (
        12 * MIB,
        "data.py",
        "train.py",
    )
    assert "Keep whatever a graph reads alive" in pools.next_step
    assert pools.title.endswith("; 1 block (12 MiB) freed after a capture and overwritten: does a graph read it?")
    assert pools.severity == "warning"


def test_an_input_that_stays_is_safe(load: Load) -> None:
    (pools,) = find_private_pool(load(captured_input(is_freed=False)).device())
    assert pools.evidence["freed_after_capture"] == []


CAPTURE = "torch/cuda/graphs.py:115 capture_begin < train.py:5 main"


def test_what_a_capture_itself_asked_for_is_no_input(load: Load) -> None:
    one = SnapshotBuilder()
    seed = one.alloc(12 * MIB, CAPTURE)
    one.alloc(12 * MIB, "model.py:5 forward", pool=(1, 0))
    one.free(seed)
    one.alloc(12 * MIB, "train.py:9 junk")
    (pools,) = find_private_pool(load(one).device())
    assert pools.evidence["freed_after_capture"] == []


def test_a_mem_pool_without_a_capture_is_no_graph(load: Load) -> None:
    one = captured_workspace(before_capture=False, pool=(0, 1))
    (pools,) = find_private_pool(load(one).device())
    assert pools.evidence["pools"][0]["is_graph"] is False
    assert pools.evidence["kept_over_temporaries"] == []
    assert "MemPool" in pools.why
    assert not any(word in pools.title + pools.why + pools.next_step for word in ("replay", "the graphs"))


def test_a_pool_made_beforehand_is_a_graphs_if_a_capture_begins_directly_before_it(load: Load) -> None:
    one = captured_workspace(before_capture=False, pool=(0, 1), begins_at=CAPTURE)
    (pools,) = find_private_pool(load(one).device())
    assert pools.evidence["pools"][0]["is_graph"] is True
    assert len(pools.evidence["kept_over_temporaries"]) == 1


def test_a_pool_whose_own_requests_lie_below_a_capture_is_a_graphs(load: Load) -> None:
    one = SnapshotBuilder()
    one.alloc(12 * MIB, "model.py:5 forward < torch/cuda/graphs.py:400 make_graphed_callables", pool=(0, 1))
    (pools,) = find_private_pool(load(one).device())
    assert pools.evidence["pools"][0]["is_graph"] is True


def test_an_input_is_found_among_many_that_nothing_overwrote(load: Load) -> None:
    one = SnapshotBuilder()
    others = [one.alloc(11 * MIB, "data.py:3 load") for _ in range(3)]
    read = one.alloc(14 * MIB, "data.py:2 load")
    one.alloc(12 * MIB, "model.py:5 forward", pool=(1, 0))
    one.free(read)
    one.alloc(13 * MIB, "train.py:9 junk")
    one.free(*others)
    (pools,) = find_private_pool(load(one).device())
    assert [row["bytes"] for row in pools.evidence["freed_after_capture"]] == [14 * MIB]


def test_blocks_with_an_address_in_common_are_found_as_by_comparing_each_with_each(load: Load) -> None:
    one = SnapshotBuilder()
    one.free(one.alloc(100 * MIB))
    for size in (30, 12, 45, 20, 60, 14, 11):
        keep = one.alloc(size * MIB)
        one.free(one.alloc((100 - size) * MIB))
        one.free(keep)
    device = load(one).device()
    blocks = device.blocks
    end = blocks.address + blocks.size_bytes.astype(np.uint64)
    others, some = np.arange(len(end)), np.asarray([5, 1, 14])
    found = {lifetime: rows.tolist() for lifetime, rows in _overlapping(device, some, others)}
    assert found == {
        lifetime: [
            row
            for row in others.tolist()
            if blocks.address[row] < end[lifetime] and end[row] > blocks.address[lifetime]
        ]
        for lifetime in (5, 1, 14)
    }
    assert any(len(rows) < len(others) for rows in found.values())
    assert list(_overlapping(device, some[:0], others)) == []
