from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ullage
from tests.recordings import COMPLETE, EXAMPLE, ROOT, device_of, trace_of
from tests.unit.cli.conftest import Command, command
from ullage.errors import ReplayError
from ullage.replay import Buffers, load_plan, place, place_buffers, place_step, read_minimalloc

__all__ = ["command"]

EXAMPLES = sorted(path.name for path in (ROOT / "examples").glob("*.xz"))
LIVES = st.tuples(st.integers(0, 5000), st.integers(0, 30), st.integers(0, 12))
INSTANCE = "id,lower,upper,size\nb1,0,3,4\nb2,3,9,4\nb3,0,9,4\nb4,9,21,4\nb5,0,21,4\n"


def buffers_of(lives: list[tuple[int, int, int]]) -> Buffers:
    table = np.array(lives, dtype=np.int64).reshape(-1, 3)
    begins = np.ascontiguousarray(table[:, 1])
    return Buffers(sizes=np.ascontiguousarray(table[:, 0]), begins=begins, ends=begins + table[:, 2])


def overlaps(plan: ullage.Placement) -> list[tuple[int, int]]:
    """Compare each pair: the validator of the validator."""
    found = []
    rows = list(zip(plan.sizes, plan.offsets, plan.begins, plan.ends, strict=True))
    for i, (size, offset, begin, end) in enumerate(rows):
        for j, (size2, offset2, begin2, end2) in enumerate(rows[:i]):
            in_time = max(begin, begin2) < min(end, end2)
            if in_time and max(offset, offset2) < min(offset + size, offset2 + size2):
                found.append((j, i))
    return found


@given(st.lists(LIVES, max_size=25), st.sampled_from([1, 3, 512]))
def test_plans_are_valid_and_the_same_when_made_again(lives: list[tuple[int, int, int]], alignment: int) -> None:
    plan = place_buffers(buffers_of(lives), alignment_bytes=alignment, seconds=0.001)
    assert plan.problem() == ""
    assert overlaps(plan) == []
    assert plan.height_bytes >= plan.largest_live_bytes
    again = place_buffers(buffers_of(lives), alignment_bytes=alignment, seconds=0.001)
    assert again.offsets.tolist() == plan.offsets.tolist()


@pytest.mark.parametrize("name", COMPLETE)
def test_a_recording_is_placed_within_a_hundredth_of_its_bound(name: str) -> None:
    plan = place(trace_of(name))
    assert plan.problem() == ""
    assert plan.height_bytes <= 1.01 * plan.largest_live_bytes
    assert plan.largest_live_bytes <= device_of(name).peak.active_bytes


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_is_placed_within_a_hundredth_of_its_bound(name: str) -> None:
    plan = ullage.place(ullage.load(ROOT / "examples" / name), seconds=0.5)
    assert plan.problem() == ""
    assert plan.height_bytes <= 1.01 * plan.largest_live_bytes


def test_a_plan_reads_back_as_it_was_written(tmp_path: Path) -> None:
    plan = place(ullage.load(EXAMPLE))
    plan.save(tmp_path / "plan.json")
    read = load_plan(tmp_path / "plan.json")
    assert read.to_json() == plan.to_json()
    assert read.offsets.tolist() == plan.offsets.tolist()
    assert (read.begins.tolist(), read.ends.tolist()) == (plan.begins.tolist(), plan.ends.tolist())


def written(path: Path, **changes: object) -> Path:
    plan = path / "plan.json"
    place_buffers(buffers_of([(4, 0, 2), (4, 1, 2)])).save(plan)
    plan.write_text(json.dumps(json.loads(plan.read_text()) | changes))
    return plan


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"format": "other"}, "is no placement"),
        ({"version": 2}, "version 2"),
        ({"height_bytes": 5}, "not valid: the height is 8"),
        ({"height_bytes": 1.5}, "whole number"),
        ({"alignment_bytes": 0}, "alignment"),
        ({"requests": {}}, "has no 'size'"),
        ({"requests": []}, "list indices|columns|integers"),
        ({"requests": {"size": [4], "offset": [0], "begin": [0], "end": [1, 2]}}, "differ in length"),
        ({"requests": {"size": ["4"], "offset": [0], "begin": [0], "end": [1]}}, "whole number"),
        ({"requests": {"size": [4, 4], "offset": [0, 2], "begin": [0, 0], "end": [1, 1]}}, "not valid"),
    ],
)
def test_a_damaged_plan_is_refused(changes: dict[str, object], complaint: str, tmp_path: Path) -> None:
    with pytest.raises(ReplayError, match=complaint):
        load_plan(written(tmp_path, **changes))


def test_what_is_no_json_is_refused(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text("no plan")
    with pytest.raises(ReplayError, match="cannot be read as a placement"):
        load_plan(tmp_path / "plan.json")


def test_a_minimalloc_instance_is_read_with_the_capacity_in_its_name(tmp_path: Path) -> None:
    path = tmp_path / "input.12.csv"
    path.write_text(INSTANCE)
    buffers = read_minimalloc(path)
    assert buffers.names == ("b1", "b2", "b3", "b4", "b5")
    assert buffers.begins.tolist() == [0, 3, 0, 9, 0]
    assert buffers.ends.tolist() == [3, 9, 9, 21, 21]
    assert buffers.sizes.tolist() == [4] * 5
    assert buffers.capacity_bytes == 12
    assert place_buffers(buffers).height_bytes == 12


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "line 1: expected the columns"),
        ("a,b\n", "line 1: expected the columns"),
        ("id,lower,upper,size\n", "has no buffers"),
        ("id,lower,upper,size\na,0,1,4\nb,0,1\n", "line 3: expected 4 values, found 3"),
        ("id,lower,upper,size\na,0,x,4\n", "line 2: upper is no whole number"),
        ("id,lower,upper,size\na,0,1,1.5\n", "line 2: size is no whole number"),
        ("id,lower,upper,size\na,0,1,9999999999999999999\n", "line 2: size is no whole number"),
        ("id,lower,upper,size\na,3,3,4\n", "line 2: lower has to be below upper"),
        ("id,lower,upper,size\na,0,3,-4\n", "line 2: size is negative"),
    ],
)
def test_a_malformed_row_is_named_by_its_line(text: str, complaint: str, tmp_path: Path) -> None:
    path = tmp_path / "broken.csv"
    path.write_text(text)
    with pytest.raises(ReplayError, match=complaint):
        read_minimalloc(path)


def test_sizes_that_no_arena_holds_are_refused() -> None:
    half = np.array([1 << 59, 1 << 59], dtype=np.int64)
    with pytest.raises(ReplayError, match="2\\^60"):
        place_buffers(Buffers(sizes=half, begins=np.array([0, 0]), ends=np.array([1, 1])))


def test_the_command_places_a_recording(command: Command) -> None:
    done = command("replay", str(EXAMPLE), "--model", "placement", "--json")
    plain = json.loads(done.out)
    assert done.code == 0
    assert plain["policy"] == "placement"
    assert plain["height_bytes"] == plain["peak_reserved_bytes"] <= 1.01 * plain["largest_live_bytes"]
    assert "an arena of " in command("replay", str(EXAMPLE), "--model", "placement").out


def test_the_command_says_whether_a_placement_fits(command: Command) -> None:
    done = command("replay", str(EXAMPLE), "--model", "placement", "--cap", "1MiB")
    assert (done.code, "it does not fit into 1 MiB" in done.out) == (1, True)


def test_the_command_places_an_instance(command: Command, tmp_path: Path) -> None:
    path = tmp_path / "input.12.csv"
    path.write_text(INSTANCE)
    done = command("replay", str(path), "--model", "placement", "--json")
    assert (done.code, json.loads(done.out)["height_bytes"], json.loads(done.out)["cap_bytes"]) == (0, 12, 12)
    assert command("replay", str(path), "--model", "placement", "--cap", "11").code == 1


@pytest.mark.parametrize(
    ("options", "complaint"),
    [((), "only --model placement"), (("--model", "placement", "--device", "0"), "knows no devices")],
)
def test_an_instance_has_only_a_placement(
    options: tuple[str, ...], complaint: str, command: Command, tmp_path: Path
) -> None:
    path = tmp_path / "input.12.csv"
    path.write_text(INSTANCE)
    done = command("replay", str(path), *options)
    assert (done.code, complaint in done.err) == (2, True)


def test_a_step_that_repeats_is_placed_with_what_lives_before_it(tmp_path: Path) -> None:
    trace = ullage.load("examples/eval_sum.pickle.xz")
    plan = place_step(trace)
    assert plan.window is not None
    assert plan.window.repeats
    blocks = trace.device().blocks
    own = (blocks.birth >= plan.window.begin_event) & (blocks.birth < plan.window.end_event)
    assert plan.sizes[plan.window.num_before :].tolist() == blocks.requested_bytes[own].tolist()
    assert plan.problem() == ""
    assert plan.height_bytes <= place(trace).height_bytes
    plan.save(tmp_path / "plan.json")
    assert load_plan(tmp_path / "plan.json").window == plan.window


@pytest.mark.parametrize("step", [0, 100_000])
def test_a_step_that_is_not_there_is_refused(step: int) -> None:
    with pytest.raises(ReplayError, match=rf"no step {step} that can be placed"):
        place_step(ullage.load("examples/eval_sum.pickle.xz"), step=step)


def test_the_command_writes_the_plan_of_a_step(command: Command, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    done = command(
        "replay", "examples/eval_sum.pickle.xz", "--model", "placement", "--step", "auto", "--plan", str(plan), "--json"
    )
    plain = json.loads(done.out)
    assert (done.code, plain["plan"]) == (0, str(plan))
    assert load_plan(plan).height_bytes == plain["height_bytes"]


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--step", "auto"], "--step needs --model placement"),
        (["--plan", "plan.json"], "--plan needs --model placement"),
        (["--model", "placement", "--step", "last"], "'last' is no step"),
        (["--model", "placement", "--plan", "no/such/folder/plan.json"], "cannot be written"),
    ],
)
def test_a_plan_that_cannot_be_made_is_refused(options: list[str], complaint: str, command: Command) -> None:
    done = command("replay", "examples/eval_sum.pickle.xz", *options)
    assert done.code == 2
    assert complaint in done.err


@pytest.mark.parametrize("name", ["A", "C", "E", "F", "G", "H", "K"])
def test_public_instances_fit_into_their_capacity(name: str) -> None:
    buffers = read_minimalloc(ROOT / "benchmarks" / "minimalloc" / f"{name}.1048576.csv")
    plan = place_buffers(buffers, seconds=8.0)
    assert plan.problem() == ""
    assert plan.height_bytes <= 1_048_576


@pytest.mark.parametrize("name", ["B", "D", "I", "J"])
def test_a_plan_whose_steps_run_out_is_valid_all_the_same(name: str) -> None:
    plan = place_buffers(read_minimalloc(ROOT / "benchmarks" / "minimalloc" / f"{name}.1048576.csv"), seconds=0.01)
    assert plan.problem() == ""
