"""Hooks over a model bring its weights in the order in which modules run, and go when they are told to."""

from __future__ import annotations

import gc
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from tests.unit.runtime.managed.fake_cuda import FakeCalls, FakeMoves
from ullage.errors import RuntimeMemoryError
from ullage.runtime.managed import manage, managed_tensor, prefetched, prefetching

PAGE = 4096
X = torch.ones(2, 8)


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(8, 8), nn.Linear(8, 8)
        self.fails = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.fails:
            raise ValueError("as told")
        out: torch.Tensor = x + self.down(torch.relu(self.up(x)))
        return out


class Model(nn.Module):
    def __init__(self, checkpoints: bool = False) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.layers = nn.ModuleList(Layer() for _ in range(3))
        self.checkpoints = checkpoints

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False) if self.checkpoints else layer(x)
        return x


@pytest.fixture
def moves(calls: FakeCalls, monkeypatch: pytest.MonkeyPatch) -> list[FakeMoves]:
    made: list[FakeMoves] = []

    def make(ranges: Any) -> FakeMoves:
        made.append(FakeMoves([one.size_bytes for one in ranges]))
        return made[-1]

    monkeypatch.setattr(prefetched, "CudaMoves", make)
    return made


def num_hooks(model: nn.Module) -> int:
    return sum(len(one._forward_hooks) + len(one._forward_pre_hooks) for one in model.modules())


def test_passes_are_right_and_below_the_budget(moves: list[FakeMoves]) -> None:
    model = Model()
    want = model(X)
    manage(model)
    with prefetching(model, ahead=1, gpu_bytes=3 * PAGE) as run:
        for _ in range(4):
            assert torch.equal(model(X), want)
        assert run.stats.num_passes == 4
        assert run.stats.peak_bytes == moves[0].peak == 3 * PAGE
        assert str(run.over_subscription).startswith("UVM: 24 KiB managed on 12 KiB free (2.00x)")


def test_without_a_budget_more_than_is_free_is_said(calls: FakeCalls, moves: list[FakeMoves]) -> None:
    model = Model()
    manage(model)
    calls.most_bytes = 5 * PAGE
    with pytest.warns(UserWarning, match=r"UVM: 24 KiB managed on 20 KiB free \(1\.20x\)"):
        run = prefetching(model)
    calls.most_bytes = 100 * PAGE  # what counts is what was free at the start
    assert str(run.over_subscription).startswith("UVM: 24 KiB managed on 20 KiB free")


def test_a_budget_that_is_not_free_is_said_and_one_that_is_free_is_silent(
    calls: FakeCalls, moves: list[FakeMoves]
) -> None:
    model = Model()
    manage(model)
    calls.most_bytes = 3 * PAGE
    with pytest.warns(UserWarning, match="UVM: 16 KiB managed on 12 KiB free"):
        prefetching(model, gpu_bytes=4 * PAGE).stop()
    prefetching(model, gpu_bytes=3 * PAGE).stop()
    assert num_hooks(model) == 0


def test_without_a_budget_nothing_leaves_and_nothing_is_said(moves: list[FakeMoves]) -> None:
    model = Model()
    manage(model)
    run = prefetching(model)
    for _ in range(3):
        model(X)
    assert [what for what, _ in moves[0].log] == ["bring"] * 6
    assert run.stats.brought_bytes == 6 * PAGE
    assert run.over_subscription is None


@pytest.mark.parametrize("is_list_named", [False, True])
def test_modules_that_move_together_are_one_move(moves: list[FakeMoves], is_list_named: bool) -> None:
    model = Model()
    manage(model)
    modules = [model.layers] if is_list_named else model.layers  # the list itself never runs
    with prefetching(model, ahead=1, gpu_bytes=4 * PAGE, modules=modules):
        for _ in range(3):
            model(X)
    assert all(len(ranges) == 2 for _, ranges in moves[0].log)


def test_of_a_dict_of_modules_each_counts(moves: list[FakeMoves]) -> None:
    model = Model()
    named = nn.ModuleDict({"first": model.layers[0], "rest": nn.ModuleList(model.layers[1:])})
    model.named = named
    manage(model)
    for modules in (named, [named], named.values()):
        with prefetching(model, modules=modules):
            model(X)
        assert [len(ranges) for _, ranges in moves[-1].log] == [2, 2, 2]


def test_modules_that_cannot_be_followed_are_refused(moves: list[FakeMoves]) -> None:
    model = Model()
    model.scales = nn.ParameterList([torch.ones(3)])
    manage(model)
    with pytest.raises(RuntimeMemoryError, match=r"Layer of modules=\[\.\.\.\] is no module of this Model"):
        prefetching(model, modules=[model.layers[0], Layer()])
    with pytest.raises(RuntimeMemoryError, match="'layers' of modules"):
        prefetching(model, modules=["layers"])  # type: ignore[list-item]
    with pytest.raises(RuntimeMemoryError, match=r"ParameterList of modules.*never runs"):
        prefetching(model, modules=[model.scales])
    assert num_hooks(model) == 0


def test_hooks_go_and_memory_is_not_held(calls: FakeCalls, moves: list[FakeMoves]) -> None:
    model = Model()
    managed = manage(model)
    run = prefetching(model)
    assert num_hooks(model) == 2 + 2 * 6
    model(X)
    run.stop()
    run.stop()
    assert num_hooks(model) == 0
    assert run.stats.num_passes == 1
    managed.unmanage()
    gc.collect()
    assert calls.sizes == {}


def test_a_module_that_raises_leaves_the_schedule_usable(moves: list[FakeMoves]) -> None:
    model = Model()
    want = model(X)
    manage(model)
    run = prefetching(model, ahead=1, gpu_bytes=2 * PAGE)
    model(X)
    model.layers[1].fails = True
    with pytest.raises(ValueError, match="as told"):
        model(X)
    model.layers[1].fails = False
    for _ in range(2):
        assert torch.equal(model(X), want)
    assert run.stats.num_passes == 3
    assert run.stats.unmoved_bytes == 0


@pytest.mark.parametrize("checkpoints", [False, True])
def test_a_pass_backwards_changes_nothing_in_the_order(moves: list[FakeMoves], checkpoints: bool) -> None:
    model = Model(checkpoints)
    manage(model)
    run = prefetching(model, ahead=1, gpu_bytes=2 * PAGE)
    for _ in range(3):
        model(X).sum().backward()
    assert run.stats.num_passes == 3
    assert run.stats.unmoved_bytes == 0
    assert all(one.grad is not None for one in model.parameters())


def test_weights_that_are_read_across_the_link_are_not_moved_and_tables_stay(moves: list[FakeMoves]) -> None:
    model = Model()
    manage(model, {"layers.0": "seldom", "layers.1": "lookup"})
    run = prefetching(model, ahead=1, gpu_bytes=3 * PAGE)
    for _ in range(3):
        model(X)
    assert run.stats.peak_bytes == 3 * PAGE
    assert sum(ranges.count(0) + ranges.count(1) for what, ranges in moves[0].log if what == "bring") == 2


def test_managed_buffers_are_followed_too(moves: list[FakeMoves]) -> None:
    model = Model()
    model.layers[0].register_buffer("room", managed_tensor((4,), torch.float32, role="scratch"))
    run = prefetching(model)
    model(X)
    assert run.stats.brought_bytes == PAGE


def test_a_model_without_managed_weights_and_too_small_a_budget_are_refused(moves: list[FakeMoves]) -> None:
    model = Model()
    with pytest.raises(RuntimeMemoryError, match="manage"):
        prefetching(model)
    manage(model)
    with pytest.raises(RuntimeMemoryError, match="gpu_bytes=4096 or more"):
        prefetching(model, gpu_bytes=100)
    assert num_hooks(model) == 0
