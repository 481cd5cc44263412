"""Reserved memory is split by cause, and the causes add up."""

from __future__ import annotations

from tests.unit.conftest import Load
from tests.unit.snapshot_builder import KIB, MIB, SnapshotBuilder
from ullage.explain.waterfall import CAUSES, main_stream, waterfall


def causes_at_end(one: SnapshotBuilder, load: Load, stream: int = 0) -> dict[str, int]:
    device = load(one).device()
    rows = waterfall(device, device.layout_at("end"), stream)
    assert [row["cause"] for row in rows] == list(CAUSES)
    assert sum(row["bytes"] for row in rows) == device.end.reserved_bytes
    return {row["cause"]: row["bytes"] for row in rows if row["bytes"]}


def test_rounding_and_tails_are_told_apart(load: Load) -> None:
    one = SnapshotBuilder()
    one.alloc(19 * MIB + MIB // 2 + 100)
    assert causes_at_end(one, load) == {
        "requested": 19 * MIB + MIB // 2 + 100,
        "rounding": 412,
        "tail": MIB // 2 - 512,
    }


def test_free_space_is_stranded_cached_or_in_the_small_pool(load: Load) -> None:
    one = SnapshotBuilder()
    one.alloc(8 * MIB)
    one.free(one.alloc(30 * MIB))
    one.alloc(512 * KIB)
    assert causes_at_end(one, load) == {
        "requested": 8 * MIB + 512 * KIB,
        "stranded": 12 * MIB,
        "small_pool": 2 * MIB - 512 * KIB,
        "cached": 30 * MIB,
    }


def test_other_streams_private_pools_and_pending_blocks_have_causes_of_their_own(load: Load) -> None:
    one = SnapshotBuilder()
    one.free(one.alloc(30 * MIB, stream=7))
    one.free(one.alloc(40 * MIB, pool=(0, 1)))
    one.request_free(one.alloc(20 * MIB))
    assert causes_at_end(one, load) == {"pending": 20 * MIB, "other_stream": 30 * MIB, "private_pool": 40 * MIB}
    assert causes_at_end(one, load, stream=7) == {"pending": 20 * MIB, "cached": 30 * MIB, "private_pool": 40 * MIB}


def test_rounding_to_powers_of_two_is_all_rounding(load: Load) -> None:
    one = SnapshotBuilder(settings={"roundup_power2_divisions": {"1": 4, "16": 4}})
    one.alloc(19 * MIB + MIB // 2)
    causes = causes_at_end(one, load)
    assert causes == {"requested": 19 * MIB + MIB // 2, "rounding": MIB // 2}


def test_the_stream_with_most_memory_is_the_main_one(load: Load) -> None:
    one = SnapshotBuilder()
    one.alloc(30 * MIB, stream=7)
    one.alloc(3 * MIB)
    assert main_stream(load(one).device()) == 7
    assert (
        main_stream(load({"segments": [], "device_traces": [[{"action": "snapshot", "addr": 0, "size": 0}]]}).device())
        == 0
    )
