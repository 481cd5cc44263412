"""`ullage info` prints a screen or JSON, and fails where verification does."""

from __future__ import annotations

import json

from tests.recordings import EXPECTED, path_of
from tests.unit.cli.conftest import Command
from tests.unit.conftest import Save
from tests.unit.snapshot_builder import MIB, SnapshotBuilder, merged

SUMS = {"requested_bytes", "allocated_bytes", "active_bytes", "reserved_bytes"}
DEVICE = {
    *("device", "num_events", "num_segments", "peak", "end", "num_device_alloc", "num_device_free", "num_ooms"),
    "history",
}
VERIFY = {
    *("allocs", "address_matches", "segments", "segment_matches", "final_blocks", "final_block_matches"),
    "undetermined_blocks",
}


def test_json_holds_the_keys_that_were_promised(command: Command) -> None:
    done = command("info", str(path_of("retries")), "--json")
    summary = json.loads(done.out)
    (device,) = summary["devices"]
    assert done.code == 0
    assert {"devices", "settings", "torch_version"} <= summary.keys()
    assert device.keys() >= DEVICE
    assert "verify" not in device
    assert device["peak"].keys() == device["end"].keys() == SUMS
    stats = EXPECTED["retries"]["stats"]
    assert device["peak"]["reserved_bytes"] == stats["reserved_bytes.all.peak"]
    assert (device["num_device_alloc"], device["num_device_free"], device["num_ooms"]) == (40, 39, 0)
    assert device["history"] == "complete"


def test_verify_adds_its_counts(command: Command) -> None:
    done = command("info", str(path_of("retries")), "--verify", "--json")
    (device,) = json.loads(done.out)["devices"]
    assert done.code == 0
    assert device["verify"].keys() >= VERIFY
    assert device["verify"]["allocs"] == device["verify"]["address_matches"] == 40


def test_what_does_not_verify_is_exit_code_1(command: Command, save: Save) -> None:
    one = SnapshotBuilder()
    one.alloc(4 * MIB)
    one.alloc(4 * MIB)
    snapshot = one.snapshot()
    snapshot["device_traces"][0][2]["addr"] += 2 * MIB
    done = command("info", save(snapshot), "--verify")
    assert done.code == 1
    assert "NOT verified" in done.out


def test_text_is_one_screen(command: Command) -> None:
    done = command("info", str(path_of("metadata")))
    assert (done.code, done.err) == (0, "")
    assert len(done.out.splitlines()) <= 24
    assert "history complete" in done.out


def test_one_device_can_be_asked_for(command: Command, save: Save) -> None:
    devices = [SnapshotBuilder(device=number) for number in (0, 1)]
    for one in devices:
        one.alloc(700)
    path = save(merged(*(one.snapshot() for one in devices)))
    assert [row["device"] for row in json.loads(command("info", path, "--json").out)["devices"]] == [0, 1]
    assert [row["device"] for row in json.loads(command("info", path, "--json", "--device", "1").out)["devices"]] == [1]
    refused = command("info", path, "--device", "7")
    assert (refused.code, refused.out) == (2, "")
    assert "has no device 7 (it has: 0, 1)" in refused.err
