"""`ullage diff`: two files, or two instants of one."""

from __future__ import annotations

import json

import pytest

from tests.recordings import path_of
from tests.unit.cli.conftest import Command
from tests.unit.conftest import Save
from tests.unit.snapshot_builder import MIB, SnapshotBuilder


def test_two_files_are_compared_at_their_ends(command: Command, save: Save) -> None:
    one = SnapshotBuilder()
    one.alloc(12 * MIB, "a.py:1 f")
    before = save(one, "before.pickle")
    one.alloc(30 * MIB, "b.py:1 f")
    after = save(one, "after.pickle")
    done = command("diff", before, after, "--json")
    (device,) = json.loads(done.out)["devices"]
    assert done.code == 0
    assert [(row["site"][0]["file"], row["net_bytes"]) for row in device["sites"]] == [("b.py", 30 * MIB), ("a.py", 0)]
    assert device["after"]["allocated_bytes"] - device["before"]["allocated_bytes"] == 30 * MIB


def test_two_instants_of_one_file_are_compared(command: Command) -> None:
    done = command("diff", str(path_of("ctx_cycle")), "--from", "0s", "--to", "end")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("GPU 0: +288 MiB allocated (0 B → 288 MiB)")
    assert "retention.py:69 forward" in done.out
    assert max(map(len, done.out.splitlines())) <= 80


def test_rows_are_limited_by_top(command: Command) -> None:
    path = str(path_of("leak_no_annotations"))
    assert "more line" in command("diff", path, "--from", "0s", "--top", "1").out
    assert "more line" not in command("diff", path, "--from", "0s").out


def test_one_file_without_an_instant_is_wrong_usage(command: Command) -> None:
    done = command("diff", str(path_of("ctx_cycle")))
    assert (done.code, done.out) == (2, "")
    assert "second snapshot, or --from" in done.err


def test_a_second_file_that_is_not_there_is_exit_code_2(command: Command) -> None:
    done = command("diff", str(path_of("ctx_cycle")), "none.pickle")
    assert done.code == 2
    assert done.err.startswith("ullage: none.pickle")


@pytest.mark.parametrize("option", ["--from", "--to"])
def test_a_wrong_instant_is_blamed_on_its_option(option: str, command: Command) -> None:
    done = command("diff", str(path_of("ctx_cycle")), "--from", "0s", option, "xx")
    assert done.code == 2
    assert done.err.startswith(f"ullage: {option} 'xx' is no instant")


def test_only_one_snapshot_can_come_from_standard_input(command: Command) -> None:
    done = command("diff", "-", "-")
    assert done.code == 2
    assert "only one of the two" in done.err
