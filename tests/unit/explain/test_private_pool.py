"""Private pools are listed with what is free inside, what sharing would save, and what a replay would overwrite."""

from __future__ import annotations

from tests.unit.conftest import Load
from tests.unit.snapshot_builder import MIB, SnapshotBuilder
from ullage.explain.private_pool import find_private_pool


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


def captured_workspace(before_capture: bool) -> SnapshotBuilder:
    one, pool = SnapshotBuilder(), (0, 1)
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


def test_an_input_that_stays_is_safe(load: Load) -> None:
    (pools,) = find_private_pool(load(captured_input(is_freed=False)).device())
    assert pools.evidence["freed_after_capture"] == []
