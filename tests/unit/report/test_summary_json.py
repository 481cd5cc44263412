"""The JSON of a summary has stable keys and integers, as its readers expect."""

from __future__ import annotations

import json

from tests.unit.conftest import Load
from tests.unit.snapshot_builder import MIB, START_US, SnapshotBuilder
from ullage.report import summary_json

SUMS = ("requested_bytes", "allocated_bytes", "active_bytes", "reserved_bytes")


def one_block() -> SnapshotBuilder:
    one = SnapshotBuilder()
    one.alloc(12 * MIB)
    return one


def test_a_summary_holds_exactly_these_keys(load: Load) -> None:
    trace = load(one_block())
    assert summary_json(trace) == {
        "path": trace.path,
        "format": "pickle",
        "torch_version": "2.5 to 2.7",
        "settings": {"PYTORCH_CUDA_ALLOC_CONF": "", "expandable_segments": False},
        "unknown_keys": [],
        "devices": [
            {
                "device": 0,
                "num_events": 2,
                "num_segments": 1,
                "first_event_us": START_US,
                "last_event_us": START_US + 10,
                "peak": dict.fromkeys(SUMS, 12 * MIB),
                "end": dict.fromkeys(SUMS, 12 * MIB),
                "num_device_alloc": 1,
                "num_device_free": 0,
                "num_ooms": 0,
                "history": "complete",
                "history_why": "nothing was there before the first event",
                "undetermined_blocks": 0,
                "undetermined_bytes": 0,
                "conflicts": 0,
            }
        ],
    }


def test_verification_adds_its_counts(load: Load) -> None:
    (device,) = summary_json(load(one_block()), verify=True)["devices"]
    assert device["verify"] == {
        "allocs": 1,
        "address_matches": 1,
        "segments": 1,
        "segment_matches": 1,
        "final_blocks": 1,
        "final_block_matches": 1,
        "undetermined_blocks": 0,
        "first_mismatch_event": -1,
    }


def test_it_is_json_of_plain_numbers(load: Load) -> None:
    summary = summary_json(load(one_block()), device=0, verify=True)
    assert json.loads(json.dumps(summary)) == summary
