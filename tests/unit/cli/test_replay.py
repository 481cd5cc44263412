"""`ullage replay` and `ullage tune`: which device they speak of, and what they say where there is nothing to replay."""

from __future__ import annotations

import json

import pytest

from tests.recordings import EXAMPLE
from tests.unit.cli.conftest import Command
from tests.unit.conftest import Save
from tests.unit.snapshot_builder import MIB, SnapshotBuilder, merged
from ullage.replay import MODELS

BOTH = pytest.mark.parametrize("name", ["replay", "tune"])


def two_devices(save: Save) -> str:
    devices = [SnapshotBuilder(device=number) for number in (0, 1)]
    for number, one in enumerate(devices):
        for _ in range(number + 1):
            one.alloc(12 * MIB)
    return save(merged(*(one.snapshot() for one in devices)))


@BOTH
def test_without_devices_there_is_nothing_to_replay(name: str, command: Command, save: Save) -> None:
    path = save({"segments": [], "device_traces": []})
    done = command(name, path)
    assert (done.code, done.out) == (2, "")
    assert done.err == f"ullage: no requests to replay: {path} has no device with events or segments\n"


@BOTH
def test_without_events_there_is_nothing_to_replay(name: str, command: Command, save: Save) -> None:
    one = SnapshotBuilder()
    one.alloc(12 * MIB)
    done = command(name, save(one.snapshot() | {"device_traces": [[]]}))
    assert (done.code, done.out) == (2, "")
    assert "no requests to replay: " in done.err
    assert "has no events of GPU 0; they are recorded after torch.cuda.memory._record_memory_history()" in done.err


@BOTH
def test_without_requests_there_is_nothing_to_replay(name: str, command: Command, save: Save) -> None:
    one = SnapshotBuilder()
    snapshot = one.snapshot() | {"segments": []}
    snapshot["device_traces"] = [[{"action": "segment_alloc", "addr": 2 * MIB, "size": 2 * MIB, "stream": 0}]]
    done = command(name, save(snapshot))
    assert (done.code, done.out) == (2, "")
    assert "no requests to replay: none of GPU 0's events" in done.err


@BOTH
def test_the_device_is_named_where_there_are_several(name: str, command: Command, save: Save) -> None:
    path = two_devices(save)
    assert command(name, path).out.startswith("GPU 1 of 2 (--device N asks for another)\n")
    assert command(name, path, "--device", "0").out.startswith("GPU 0 of 2 ")
    assert json.loads(command(name, path, "--json").out)["device"] == 1
    assert json.loads(command(name, path, "--json", "--device", "0").out)["device"] == 0


@BOTH
def test_one_device_needs_no_name(name: str, command: Command, save: Save) -> None:
    one = SnapshotBuilder()
    one.alloc(12 * MIB)
    assert "GPU 0" not in command(name, save(one)).out


def test_the_smallest_caps_of_several_policies_each_serve_all(command: Command) -> None:
    plain = json.loads(command("replay", str(EXAMPLE), "--min-cap", "--json").out)
    caps = plain["min_caps"]
    assert list(caps.values()) == sorted(caps.values())
    assert caps["default"] == plain["min_cap_bytes"]
    for name, cap in caps.items():
        policy = ["--model", name] if name in MODELS else ["--conf", "" if name == "default" else name]
        assert command("replay", str(EXAMPLE), *policy, "--cap", str(cap)).code == 0
        assert command("replay", str(EXAMPLE), *policy, "--cap", str(cap - (2 << 20))).code == 1
    assert "default (recorded)" in command("replay", str(EXAMPLE), "--min-cap").out
