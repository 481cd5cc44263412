"""A request belongs to the statement of the loop that it was reached from."""

from __future__ import annotations

from tests.unit.conftest import Load
from tests.unit.snapshot_builder import SnapshotBuilder
from ullage.explain.loop_lines import loop_lines


def statements(stacks: list[str], load: Load) -> list[str]:
    """Run the stacks as one loop's body six times; return the statement of each, in their order."""
    one = SnapshotBuilder()
    for step in range(6):
        one.annotate(f"ProfilerStep#{step}")
        one.free(*[one.alloc(700, stack) for stack in stacks])
    device = load(one).device()
    sites = device.events.site[: len(stacks) + 1][-len(stacks) :]
    lines = loop_lines(device)
    return [str(device.trace.sites.frame(int(lines[site]))) for site in sites]


def test_calls_from_the_loops_body_belong_to_its_lines(load: Load) -> None:
    outer = " < train.py:40 main < train.py:50 <module>"
    stacks = [f"model.py:5 forward < train.py:10 epoch{outer}", f"loss.py:9 loss < train.py:11 epoch{outer}"]
    assert statements(stacks, load) == ["train.py:10 epoch", "train.py:11 epoch"]


def test_several_calls_from_one_line_belong_to_that_line(load: Load) -> None:
    stacks = [f"{name}.py:5 {name} < train.py:10 epoch < train.py:40 main" for name in ("embed", "attend", "norm")]
    assert statements(stacks, load) == ["train.py:10 epoch"] * 3


def test_requests_that_do_not_pass_through_the_loop_keep_their_own_line(load: Load) -> None:
    inside = [f"model.py:{line} forward < train.py:{line} epoch < train.py:40 main" for line in range(10, 30)]
    assert statements([*inside, "worker.py:3 run"], load)[-1] == "worker.py:3 run"
