"""What is rebuilt from real recordings equals what PyTorch counted on the run, and what a slow, plain rebuild finds."""

from __future__ import annotations

import pickle
import random
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ullage
from tests.recordings import COMPLETE, EXPECTED, PARTIAL, WORDS, counted, device_of, snapshot_of
from tests.reference.slow_reconstruction import Reference, reconstruct
from tests.reference.slow_state import snapshot_layout
from ullage.trace import BEFORE_FIRST, Layout

STATES = ("inactive", "active_allocated", "active_pending_free")
CUTS_PER_RECORDING = 4

# The settings that held when most requests were served are not in the file: which blocks were split cannot be told.
OTHER_SETTINGS = {"settings_change", "expandable_toggle"}
FREES_NOT_REQUESTED = {"skipped_actions"}


@cache
def reference_of(name: str) -> Reference:
    snapshot = snapshot_of(name)
    return reconstruct(snapshot, device_of(name).number)


def block_rows(device: ullage.DeviceTrace) -> list[tuple[int, ...]]:
    b = device.blocks
    columns = (b.birth, b.free_requested, b.death, b.address, b.size_bytes, b.requested_bytes)
    return sorted(zip(*(column.tolist() for column in columns), strict=True))


def layout_as_snapshot(layout: Layout) -> dict[int, tuple[int, list[tuple[int, int, str]]]]:
    out: dict[int, tuple[int, list[tuple[int, int, str]]]] = {
        int(address): (int(size), [])
        for address, size in zip(layout.segment_address, layout.segment_bytes, strict=True)
    }
    homes = layout.segment_address[layout.segment_of_block].tolist()
    columns = (layout.address.tolist(), layout.size_bytes.tolist(), layout.state.tolist())
    for home, address, size, state in zip(homes, *columns, strict=True):
        out[home][1].append((address, size, STATES[state]))
    return out


def verified(name: str) -> dict[str, tuple[int, int]]:
    counts = device_of(name).verify()
    return {
        "addresses": (counts["address_matches"], counts["allocs"]),
        "segments": (counts["segment_matches"], counts["segments"]),
        "final blocks": (counts["final_block_matches"], counts["final_blocks"]),
    }


# --- against what PyTorch counted ---


@pytest.mark.parametrize("name", COMPLETE)
def test_a_complete_recording_equals_what_torch_counted_to_the_byte(name: str) -> None:
    device, stats = device_of(name), EXPECTED[name]["stats"]
    assert device.completeness.kind == "complete"
    assert device.num_events == EXPECTED[name]["num_events"]
    assert tuple(device.peak) == counted(name, "peak")
    assert tuple(device.end) == counted(name, "current")
    assert device.history.num_device_alloc == stats["num_device_alloc"]
    assert device.history.num_device_free == stats["num_device_free"]
    assert device.history.num_ooms == stats["num_ooms"]
    assert len(device.blocks.birth) == stats["allocation.all.allocated"]


@pytest.mark.parametrize("name", COMPLETE)
def test_a_complete_recording_verifies_in_every_address_segment_and_final_block(name: str) -> None:
    for matches, whole in verified(name).values():
        assert matches == whole > 0
    assert device_of(name).verify()["undetermined_blocks"] == 0
    assert device_of(name).history.num_conflicts == 0


@pytest.mark.parametrize("name", sorted(PARTIAL))
def test_a_partial_recording_ends_as_torch_counted(name: str) -> None:
    device = device_of(name)
    assert tuple(device.end) == counted(name, "current")
    assert all(mine <= theirs for mine, theirs in zip(device.peak, counted(name, "peak"), strict=True))
    for matches, whole in verified(name).values():
        assert matches == whole
    assert device.history.num_conflicts == 0


def test_each_partial_recording_says_what_is_missing() -> None:
    kinds = {name: device_of(name).completeness.kind for name in PARTIAL}
    assert kinds == {"late_start": "late", "wrapped": "wrapped", "context_state": "none"}


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_the_last_layout_is_the_one_in_the_file(name: str) -> None:
    device = device_of(name)
    wanted = snapshot_layout(snapshot_of(name), device.number)
    rebuilt = layout_as_snapshot(device.layout_at("end"))
    if name == "mem_pool":
        # A pool that never splits is not marked as such: its seven segments come out split.
        differing = [address for address in wanted if rebuilt[address] != wanted[address]]
        pools = {one["segment_pool_id"] for one in snapshot_of(name)["segments"] if one["address"] in differing}
        assert (len(differing), pools) == (7, {(0, 2)})
    else:
        assert rebuilt == wanted


def test_a_pool_that_never_splits_leaves_requested_and_reserved_exact() -> None:
    device = device_of("mem_pool")
    for mine, when in ((device.peak, "peak"), (device.end, "current")):
        requested, _, _, reserved = counted("mem_pool", when)
        assert (mine.requested_bytes, mine.reserved_bytes) == (requested, reserved)
    assert (device.history.num_device_alloc, device.history.num_device_free) == (34, 0)
    assert verified("mem_pool")["segments"] == (27, 34)


def test_settings_that_changed_on_the_way_leave_reserved_and_the_end_exact() -> None:
    device = device_of("settings_change")
    assert device.peak.reserved_bytes == counted("settings_change", "peak")[3]
    assert tuple(device.end) == counted("settings_change", "current")
    assert verified("settings_change")["segments"] == (20, 20)
    assert verified("settings_change")["final blocks"] == (30, 30)
    assert device.history.num_conflicts > 0


def test_expandable_segments_that_came_and_went_leave_all_sums_exact() -> None:
    device = device_of("expandable_toggle")
    assert tuple(device.peak) == counted("expandable_toggle", "peak")
    assert tuple(device.end) == counted("expandable_toggle", "current")
    assert verified("expandable_toggle")["final blocks"] == (32, 32)
    assert device.history.num_conflicts > 0


def test_events_that_were_not_recorded_leave_all_sums_exact() -> None:
    device = device_of("skipped_actions")
    assert tuple(device.peak) == counted("skipped_actions", "peak")
    assert tuple(device.end) == counted("skipped_actions", "current")
    assert verified("skipped_actions")["final blocks"] == (16, 16)
    assert device.history.num_conflicts == 0


# --- against the slow reference ---


@pytest.mark.parametrize("name", sorted(EXPECTED.keys() - OTHER_SETTINGS))
def test_every_block_is_the_slow_references(name: str) -> None:
    mine = block_rows(device_of(name))
    slow = [
        (one.birth_event, freed, one.death_event, one.address, one.size, one.requested_size)
        for one in reference_of(name).blocks
        for freed in [BEFORE_FIRST if one.pending_at_start else one.free_requested_event]
    ]
    # Where nothing says when a free was requested, ours takes the event that completed it.
    requested_unseen = [(birth, death if freed == -1 else freed, death, *rest) for birth, freed, death, *rest in slow]
    assert mine == sorted(requested_unseen)


@pytest.mark.parametrize("name", sorted(EXPECTED.keys() - OTHER_SETTINGS - FREES_NOT_REQUESTED))
def test_the_four_sums_after_each_event_are_the_slow_references(name: str) -> None:
    mine, slow = device_of(name).counters, reference_of(name).counters
    for column, word in enumerate(WORDS):
        np.testing.assert_array_equal(getattr(mine, f"{word}_bytes"), [row[column] for row in slow], err_msg=word)


@pytest.mark.parametrize("name", sorted(EXPECTED.keys() - OTHER_SETTINGS))
def test_as_many_addresses_verify_as_in_the_slow_reference(name: str) -> None:
    counts = device_of(name).verify()
    slow = reference_of(name)
    assert (counts["address_matches"], counts["allocs"]) == (slow.address_matches, len(slow.allocs))


# --- recordings cut short at the front ---


def cut_at(name: str, num_lost: int, folder: Path) -> ullage.DeviceTrace:
    """Load a recording without its first events."""
    snapshot, number = snapshot_of(name), device_of(name).number
    traces = list(snapshot["device_traces"])
    traces[number] = traces[number][num_lost:]
    path = folder / f"{num_lost}.pickle"
    path.write_bytes(pickle.dumps(snapshot | {"device_traces": traces}))
    return ullage.load(path).device(number)


def blocks_from(device: ullage.DeviceTrace, num_lost: int) -> dict[tuple[int, int, int], tuple[int, int, int]]:
    """Return (birth, address, death) -> (free requested, size, requested) of the blocks that outlive the lost events."""
    out = {}
    for birth, freed, death, address, size, requested in block_rows(device):
        if death != -1 and death < num_lost:
            continue
        birth, death = (event - num_lost if event >= num_lost else -1 for event in (birth, death))
        if freed != -1:
            freed = freed - num_lost if freed >= num_lost else BEFORE_FIRST
        out[(birth, address, death)] = (freed, size, requested)
    return out


def assert_same_from(whole: ullage.DeviceTrace, cut: ullage.DeviceTrace, num_lost: int) -> None:
    wanted, got = blocks_from(whole, num_lost), blocks_from(cut, 0)
    assert got.keys() == wanted.keys()
    b = cut.blocks
    keys = zip(b.birth.tolist(), b.address.tolist(), b.death.tolist(), strict=True)
    is_open: dict[Any, bool] = dict(zip(keys, b.is_open.astype(bool).tolist(), strict=True))
    num_unknown_bytes = 0
    for key, (freed, size, requested) in wanted.items():
        got_freed, got_size, got_requested = got[key]
        assert got_freed == freed
        assert got_requested == requested
        assert 0 <= size - got_size <= (1 << 20 if is_open[key] else 0)
        num_unknown_bytes += size - got_size
    assert num_unknown_bytes <= cut.history.undetermined_bytes
    assert sum(is_open.values()) == cut.history.num_undetermined
    np.testing.assert_array_equal(cut.counters.reserved_bytes, whole.counters.reserved_bytes[num_lost:])
    np.testing.assert_array_equal(cut.counters.requested_bytes, whole.counters.requested_bytes[num_lost:])
    assert tuple(cut.end) == tuple(whole.end)
    assert cut.history.num_conflicts == 0


@pytest.mark.parametrize("name", COMPLETE)
def test_a_recording_without_its_first_events_gives_the_same_blocks_from_there_on(name: str, tmp_path: Path) -> None:
    whole = device_of(name)
    places = range(1, whole.num_events)
    for num_lost in random.Random(name).sample(places, min(CUTS_PER_RECORDING, len(places))):
        cut = cut_at(name, num_lost, tmp_path)
        assert_same_from(whole, cut, num_lost)
        was_empty = whole.counters.reserved_bytes[num_lost - 1] == 0
        assert (cut.completeness.kind == "complete") == was_empty


def test_cut_recordings_leave_the_size_of_few_blocks_open(tmp_path: Path) -> None:
    cut = cut_at("cache_settles", 900, tmp_path)
    assert cut.history.num_initial_blocks > 10
    assert cut.history.num_undetermined <= 2
