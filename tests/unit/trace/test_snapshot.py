"""The reader takes every form that PyTorch writes, tells forms apart by content, and refuses the rest with one error."""

from __future__ import annotations

import json
import os
import pickle
import re
from pathlib import Path
from typing import Any

import pytest

import ullage
from tests.unit.conftest import Load, Save
from tests.unit.snapshot_builder import MIB, SnapshotBuilder, merged
from tests.unit.trace.snapshot_files import PACKERS, JitPickler, contents, small_snapshot
from ullage.errors import TraceError
from ullage.trace import snapshot as reader

# --- forms that are read ---


@pytest.mark.parametrize("protocol", [2, 3, 5])
def test_every_pickle_protocol_gives_the_same_tables(protocol: int, load: Load) -> None:
    wanted = contents(load(small_snapshot().pickled(4)))
    assert contents(load(small_snapshot().pickled(protocol))) == wanted
    assert len(wanted["event_action"]) == 9


def test_json_of_the_same_shape_gives_the_same_tables(load: Load) -> None:
    text = json.dumps(small_snapshot().snapshot(), indent=1)
    trace = load(text.encode())
    assert contents(trace) == contents(load(small_snapshot()))
    assert trace.tables.format == "json"


def test_a_pickle_as_libtorch_writes_it_gives_the_same_tables(load: Load) -> None:
    snapshot = small_snapshot().snapshot()
    data = JitPickler().dumps(snapshot)
    assert pickle.loads(data) == snapshot
    assert contents(load(data)) == contents(load(small_snapshot()))


@pytest.mark.parametrize("kind", PACKERS)
@pytest.mark.parametrize("name", ["snapshot.pickle", "snapshot.json", "snapshot.gz", "no_suffix"])
def test_compression_is_told_by_content_whatever_the_name(kind: str, name: str, save: Save) -> None:
    path = save(PACKERS[kind](small_snapshot().pickled()), name)
    plain = save(small_snapshot(), "plain")
    assert contents(ullage.load(path)) == contents(ullage.load(plain))


def test_a_path_object_is_as_good_as_a_string(save: Save) -> None:
    path = save(small_snapshot())
    assert ullage.load(Path(path)).path == path


def test_a_bare_list_of_segments_is_a_layout_without_history(load: Load) -> None:
    segments = small_snapshot().snapshot()["segments"]
    trace = load(pickle.dumps(segments, protocol=4))
    device = trace.device(0)
    assert (device.num_events, device.num_segments) == (0, 3)
    assert device.completeness.kind == "none"
    assert tuple(device.end) == (3 * MIB + 700, 3 * MIB, 3 * MIB + 1024, 42 * MIB)


def test_a_file_of_several_devices_keeps_them_apart(load: Load) -> None:
    first, third = SnapshotBuilder(device=0), SnapshotBuilder(device=2)
    first.alloc(3 * MIB)
    third.alloc(30 * MIB)
    third.alloc(700)
    trace = load(merged(first.snapshot(), third.snapshot()))
    assert [device.number for device in trace.devices] == [0, 2]
    assert [device.end.allocated_bytes for device in trace.devices] == [3 * MIB, 30 * MIB + 1024]
    assert trace.device().number == 2


# --- older, newer and derived files ---


def without(
    snapshot: dict[str, Any], top: set[str], event: set[str], segment: set[str], block: set[str]
) -> dict[str, Any]:
    """Leave out keys that a release did not write yet."""

    def cut(one: dict[str, Any], keys: set[str]) -> dict[str, Any]:
        return {key: value for key, value in one.items() if key not in keys}

    return cut(snapshot, top) | {
        "device_traces": [[cut(one, event) for one in events] for events in snapshot["device_traces"]],
        "segments": [
            cut(one, segment) | {"blocks": [cut(part, block) for part in one["blocks"]]} for one in snapshot["segments"]
        ],
    }


NEWER = {"allocator_settings", "external_annotations"}


def two_blocks() -> SnapshotBuilder:
    one = SnapshotBuilder()
    one.free(one.alloc(3 * MIB))
    one.alloc(4 * MIB)
    return one


@pytest.mark.parametrize(
    ("version", "top", "event", "segment", "block"),
    [
        ("2.2", NEWER, set(), set(), set()),
        ("2.1", NEWER, {"time_us"}, set(), set()),
        ("", NEWER, {"time_us"}, {"segment_pool_id", "is_expandable", "frames"}, {"address", "frames"}),
    ],
)
def test_keys_that_a_release_did_not_write_are_not_missed(
    version: str, top: set[str], event: set[str], segment: set[str], block: set[str], load: Load
) -> None:
    trace = load(without(two_blocks().snapshot(), top, event, segment, block))
    device = trace.device()
    assert trace.torch_version == version
    assert tuple(device.peak) == (4 * MIB, 4 * MIB, 4 * MIB, 20 * MIB)
    assert device.verify()["final_block_matches"] == 2
    assert ullage.explain(trace)


def test_the_block_histories_of_torch_2_0_are_understood(load: Load) -> None:
    keys = {"address", "frames", "requested_size"}
    old = without(two_blocks().snapshot(), NEWER, {"time_us"}, {"segment_pool_id", "is_expandable", "frames"}, keys)
    frames = [{"filename": "old.py", "line": 7, "name": "f"}]
    (segment,) = old["segments"]
    segment["blocks"][0]["history"] = [{"addr": segment["address"], "real_size": 4 * MIB, "frames": frames}]
    del old["device_traces"]
    trace = load(old)
    device = trace.device()
    (row,) = device.live_at("end").tolist()
    assert trace.torch_version == "2.0"
    assert int(device.blocks.requested_bytes[row]) == 4 * MIB
    assert trace.sites.user_stack(int(device.blocks.site[row]))[0].file == "old.py"


def test_the_older_word_for_a_pending_block_is_understood(load: Load) -> None:
    snapshot = small_snapshot().snapshot()
    data = pickle.dumps(snapshot, protocol=4).replace(b"\x8c\x13active_pending_free", b"\x8c\x14active_awaiting_free")
    assert b"awaiting" in data
    # The frame's length no longer holds, as in any edited pickle; only the words differ.
    data = re.sub(rb"^(\x80\x04)\x95.{8}", rb"\1", data, flags=re.DOTALL)
    assert contents(load(data)) == contents(load(snapshot))


def test_unknown_keys_and_actions_are_carried_or_left_out(load: Load) -> None:
    one = two_blocks()
    plain = load(one).device().peak
    snapshot = one.snapshot()
    snapshot["weather"] = {"rain": [1.5, None, (True, "x")]}
    snapshot["device_traces"][0].insert(2, {"action": "teleport", "addr": 1, "size": 2, "stream": 0, "wings": {}})
    snapshot["segments"][0]["colour"] = "red"
    trace = load(snapshot)
    assert {"weather", "wings", "colour"} <= set(trace.tables.unknown_keys)
    assert trace.device().num_events == len(one.events) + 1
    assert trace.device().peak == plain
    assert trace.device().verify()["address_matches"] == 2


def test_a_snapshot_made_from_a_profile_is_read(load: Load) -> None:
    frames = [{"filename": "none", "line": 0, "name": "aten::empty"}]
    alloc = {"action": "alloc", "addr": 4096, "size": 1024, "stream": 0, "frames": frames, "category": "parameter"}
    free = [alloc | {"action": action} for action in ("free_requested", "free_completed")]
    keep = alloc | {"addr": 8192, "category": "unknown"}
    blocks = [{"size": 4096, "state": "inactive"}]
    blocks += [
        {"size": 1024, "requested_size": 1024, "state": "active_allocated", "frames": frames, "category": "unknown"}
    ]
    segment = {"device": 0, "address": 4096, "total_size": 5120, "stream": 0, "blocks": blocks}
    unused = {"device": 1, "address": 0, "total_size": 0, "stream": 0, "blocks": [{"size": 0, "state": "inactive"}]}
    trace = load({"device_traces": [[alloc, *free, keep], []], "segments": [segment, unused]})
    device = trace.device(0)
    assert [category for _, category in trace.tables.categories] != []
    assert trace.torch_version == ""
    assert device.end.allocated_bytes == 1024
    assert ullage.explain(trace)


# --- odd values ---


ODD = [-1, 2**31, 2**63 - 1, 2**63, 2**64 - 1, 2**64, 2**70, -(2**63), -(2**200)]
INT64 = (-(2**63), 2**63 - 1)


@pytest.mark.parametrize("number", ODD)
def test_integers_of_any_size_are_read_where_no_size_is_meant(number: int, load: Load) -> None:
    snapshot = small_snapshot().snapshot()
    snapshot["allocator_settings"]["max_split_size"] = number
    snapshot["device_traces"][0][0]["stream"] = number
    snapshot["device_traces"][0].append({"action": "oom", "size": 512, "device_free": number, "time_us": number})
    trace = load(snapshot)
    held = min(max(number, INT64[0]), INT64[1])
    assert trace.settings["max_split_size"] == held
    assert trace.device().events.stream[0] == held
    assert trace.device().events.time_us[-1] == held
    assert trace.tables.device_free == [(9, held)]
    assert ullage.explain(trace)


@pytest.mark.parametrize("number", [number for number in ODD if number != 2**31])
def test_sizes_that_no_memory_has_are_refused(number: int, save: Save) -> None:
    snapshot = small_snapshot().snapshot()
    snapshot["device_traces"][0][1]["size"] = number
    assert refusal(save(snapshot)).expected == "a size in bytes below 2**60 for 'size'"


@pytest.mark.parametrize("number", [-1, 2**63, 2**64 - 1])
def test_addresses_are_64_bits_with_or_without_a_sign(number: int, load: Load) -> None:
    snapshot = small_snapshot().snapshot()
    snapshot["device_traces"][0][1]["addr"] = number
    assert int(load(snapshot).device().events.address[1]) == number % 2**64


def test_names_in_any_script_are_kept(load: Load) -> None:
    one = SnapshotBuilder()
    one.alloc(3 * MIB, "обучение/モデル.py:3 größe_😀")
    trace = load(one)
    (frame,) = trace.sites.stack(0)
    assert (frame.file, frame.function) == ("обучение/モデル.py", "größe_😀")


def test_names_that_are_no_utf_8_do_not_stop_the_reader(load: Load) -> None:
    data = small_snapshot().pickled().replace(b"train.py", b"tr\xff\xfen.py")
    trace = load(data)
    frame = trace.sites.stack(0)[0]
    assert frame.file.startswith("tr")
    assert frame.file.endswith("n.py")
    json.dumps([finding.to_json() for finding in ullage.explain(trace)]).encode()


# --- files that are refused ---


def refusal(path: str | os.PathLike[str]) -> TraceError:
    with pytest.raises(TraceError) as caught:
        ullage.load(path)
    assert caught.value.path == os.fspath(path)
    assert str(caught.value).startswith(os.fspath(path))
    assert caught.value.offset >= 0
    return caught.value


def test_a_missing_file_says_so(tmp_path: Path) -> None:
    assert "No such file" in refusal(tmp_path / "none.pickle").found


def test_a_directory_says_so(tmp_path: Path) -> None:
    assert "directory" in refusal(tmp_path).found


@pytest.mark.parametrize(
    "content",
    [b"", b"\n", b"hello, this is a log\n", b"{}", b"[1, 2", b"null", b"\x80\x04N.", b"\x80\x04K\x05.", b"\x00" * 99],
)
def test_a_file_that_is_no_snapshot_is_refused(content: bytes, save: Save) -> None:
    error = refusal(save(content))
    assert error.expected
    assert error.found


@pytest.mark.parametrize("protocol", [2, 4])
def test_a_pickle_cut_short_anywhere_is_refused(protocol: int, save: Save) -> None:
    data = small_snapshot().pickled(protocol)
    for length in range(0, len(data), 97):
        assert refusal(save(data[:length])).offset <= length


def test_json_cut_short_anywhere_is_refused(save: Save) -> None:
    data = json.dumps(small_snapshot().snapshot()).encode()
    for length in range(0, len(data), 97):
        assert refusal(save(data[:length])).offset <= length


@pytest.mark.parametrize("kind", PACKERS)
def test_a_compressed_file_cut_short_anywhere_is_refused(kind: str, save: Save) -> None:
    packed = PACKERS[kind](small_snapshot().pickled())
    for length in range(6, len(packed) - 1, 41):
        refusal(save(packed[:length]))


@pytest.mark.parametrize("kind", ["gz", "xz"])  # zstd writes no checksum unless it is asked to
def test_a_damaged_compressed_file_is_refused(kind: str, save: Save) -> None:
    packed = bytearray(PACKERS[kind](small_snapshot().pickled()))
    packed[len(packed) // 2] ^= 0xFF
    assert refusal(save(bytes(packed))).expected == "an intact compressed file"


@pytest.mark.parametrize("kind", PACKERS)
def test_a_decompression_bomb_is_stopped(kind: str, save: Save, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "_EXPANSION_FLOOR", 1 << 16)
    monkeypatch.setattr(reader, "_EXPANSION_LIMIT", 10)
    bomb = pickle.dumps({"segments": [], "device_traces": [], "padding": "x" * (8 * MIB)}, protocol=4)
    error = refusal(save(PACKERS[kind](bomb)))
    assert "at most 10 times" in error.expected
    assert error.offset < 4 * MIB


class RunsCommand:
    """Pickles as a call of os.system."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self.path}",)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_a_pickle_that_would_run_a_command_is_refused_and_runs_nothing(
    protocol: int, save: Save, tmp_path: Path
) -> None:
    made = tmp_path / "made"
    snapshot = small_snapshot().snapshot() | {"extra": RunsCommand(made)}
    data = pickle.dumps(snapshot, protocol=protocol)
    error = refusal(save(data))
    # Protocol 4 names the function on the stack, older ones in the opcode.
    named = data.index(b"system") + len(b"system") if protocol >= 4 else data.index(b"cposix")
    assert named <= error.offset <= named + 8
    assert not made.exists()


@pytest.mark.parametrize(
    "content",
    [
        b"\x80\x02" + b"]" * 300_000 + b"a" * 299_999 + b".",
        b"\x80\x04" + b"(" * 300_000 + b"t" * 300_000 + b".",
        b"\x80\x04" + b"}" + b"K\x01" * 1000 + b"." * 10,
        b"[" * 300_000 + b"]" * 300_000,
        b'{"a":' * 300_000,
    ],
)
def test_deep_nesting_ends_in_one_error(content: bytes, save: Save) -> None:
    refusal(save(content))


@pytest.mark.parametrize(
    "content",
    [
        b"\x80\x04\x8d" + (2**60).to_bytes(8, "little") + b"x",
        b"\x80\x04X" + (2**32 - 1).to_bytes(4, "little") + b"x",
        b"\x80\x04\x8b" + (2**31 - 1).to_bytes(4, "little") + b"x",
        b"\x80\x04\x95" + (2**63).to_bytes(8, "little") + b"}.",
        b"\x80\x04j" + (2**32 - 1).to_bytes(4, "little") + b".",
        b"\x80\x02\x8b" + (-5).to_bytes(4, "little", signed=True) + b".",
    ],
)
def test_absurd_lengths_end_in_one_error(content: bytes, save: Save) -> None:
    refusal(save(content))
