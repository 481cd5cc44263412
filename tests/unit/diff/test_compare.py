"""Two instants are compared by line: what grew, what is new, gone, moved or the same."""

from __future__ import annotations

import pytest

import ullage
from tests.unit.conftest import Load, Save
from tests.unit.snapshot_builder import MIB, SnapshotBuilder, merged
from ullage.errors import UllageError
from ullage.trace import NO_STACK


def changing() -> SnapshotBuilder:
    """Return a recording in which at 0.1 s a.py holds 12 MiB and b.py 14; at the end a.py 36, and c.py 10."""
    one = SnapshotBuilder()
    one.alloc(12 * MIB, "a.py:1 f < main.py:9 main")
    b = one.alloc(14 * MIB, "b.py:1 f < main.py:9 main")
    one.wait(100_000)
    one.free(b)
    one.alloc(24 * MIB, "a.py:1 f < main.py:9 main")
    one.alloc(10 * MIB, "c.py:1 f")
    return one


def test_lines_are_ordered_by_how_much_they_changed(load: Load) -> None:
    trace = load(changing())
    (result,) = ullage.diff(trace, trace, before_at=50_000)
    rows = [(str(site.stack[0]), site.net_bytes, site.num_new, site.num_gone, site.num_same) for site in result.sites]
    assert rows == [
        ("a.py:1 f", 24 * MIB, 1, 0, 1),
        ("b.py:1 f", -14 * MIB, 0, 1, 0),
        # The cached block of 14 MiB served it; a tail of more than 1 MiB is split off.
        ("c.py:1 f", 10 * MIB, 1, 0, 0),
    ]
    assert (result.before["allocated_bytes"], result.after["allocated_bytes"]) == (26 * MIB, 46 * MIB)
    assert result.after["allocated_bytes"] - result.before["allocated_bytes"] == sum(s.net_bytes for s in result.sites)


def test_a_recording_has_no_difference_from_itself(load: Load) -> None:
    trace = load(changing())
    (result,) = ullage.diff(trace, trace)
    assert {(site.net_bytes, site.num_new, site.num_gone, site.num_moved) for site in result.sites} == {(0, 0, 0, 0)}


def test_a_block_of_the_same_size_and_line_elsewhere_has_moved(save: Save) -> None:
    first, second = SnapshotBuilder(), SnapshotBuilder()
    first.alloc(12 * MIB, "a.py:1 f")
    second.alloc(700)
    second.alloc(12 * MIB, "a.py:1 f")
    (result,) = ullage.diff(ullage.load(save(first, "first")), ullage.load(save(second, "second")))
    by_line = {str(site.stack[0]): site for site in result.sites}
    assert (by_line["a.py:1 f"].num_moved, by_line["a.py:1 f"].net_bytes) == (1, 0)
    assert by_line["train.py:3 step"].num_new == 1


def test_blocks_without_a_stack_are_one_line(load: Load) -> None:
    one = SnapshotBuilder()
    one.alloc(12 * MIB, "")
    trace = load(one)
    (result,) = ullage.diff(trace, trace)
    assert [site.stack for site in result.sites] == [(NO_STACK,)]


def test_devices_that_both_have_are_compared(save: Save) -> None:
    both, second = [SnapshotBuilder(device=0), SnapshotBuilder(device=1)], SnapshotBuilder(device=1)
    for one in (*both, second):
        one.alloc(12 * MIB)
    two_devices = ullage.load(save(merged(*(one.snapshot() for one in both)), "both"))
    one_device = ullage.load(save(second, "second"))
    assert [result.device for result in ullage.diff(two_devices, one_device)] == [1]
    with pytest.raises(UllageError, match="has no device 0"):
        ullage.diff(two_devices, one_device, device=0)


def test_a_comparison_as_json_is_plain_data(load: Load) -> None:
    one = SnapshotBuilder()
    one.alloc(12 * MIB, "a.py:1 f")
    trace = load(one)
    (result,) = ullage.diff(trace, trace, before_at=0)
    zero, full = dict.fromkeys(("requested_bytes", "allocated_bytes", "active_bytes"), 0), 12 * MIB
    assert result.to_json() == {
        "device": 0,
        "before": zero | {"reserved_bytes": full},
        "after": dict.fromkeys((*zero, "reserved_bytes"), full),
        "sites": [
            {
                "site": [{"file": "a.py", "line": 1, "function": "f"}],
                "before_bytes": 0,
                "after_bytes": full,
                "net_bytes": full,
                "num_new": 1,
                "num_gone": 0,
                "num_moved": 0,
                "num_same": 0,
            }
        ],
    }
