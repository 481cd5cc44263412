"""A streamed model computes what it computes when all of it is there, and is left as it was."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from tests.unit.runtime.probe.fake_gpu import made_up
from tests.unit.runtime.weights.conftest import DEVICE
from ullage.errors import DeviceError, RuntimeMemoryError
from ullage.runtime.weights import StreamedModel, StreamPrediction, plan_stream, stream

stream_module = sys.modules[stream.__module__]  # the room has a function of the same name
WIDTH = 16
BLOCK_BYTES = 3 * 1024  # two matrices of 16 x 16 floats, and two vectors that take 512 bytes each


class Block(nn.Module):
    def __init__(self, rank: int = 0) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.register_buffer("shift", torch.randn(WIDTH))
        self.lora_a = nn.Parameter(torch.randn(rank, WIDTH)) if rank else None
        self.lora_b = nn.Parameter(torch.randn(WIDTH, rank) * 0.1) if rank else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.down(torch.relu(self.up(x))) + self.shift
        if self.lora_a is not None and self.lora_b is not None:
            out = out + x @ self.lora_a.T @ self.lora_b.T
        return x + out


class Model(nn.Module):
    def __init__(self, num_blocks: int = 6, rank: int = 0, checkpoints: bool = False) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.inner = nn.Linear(WIDTH, WIDTH)
        self.blocks = nn.ModuleList(Block(rank) for _ in range(num_blocks))
        self.head = nn.Linear(WIDTH, 4)
        self.checkpoints = checkpoints
        for name, one in self.named_parameters():
            one.requires_grad_("lora" in name)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.inner(x)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.checkpoints else block(x)
        out: torch.Tensor = self.head(x)
        return out


def x_of(seed: int = 1) -> torch.Tensor:
    return torch.randn(5, WIDTH, generator=torch.Generator().manual_seed(seed)).to(DEVICE)


def size_of(model: nn.Module) -> int:
    return sum(one.numel() * one.element_size() for one in [*model.parameters(), *model.buffers()])


def streamed(model: nn.Module, num_resident: int = 0, **options: Any) -> StreamedModel:
    """Stream a model with room for two buffers and some blocks."""
    others = size_of(model) - sum(
        one.numel() * one.element_size()
        for name, one in model.named_parameters()
        if "blocks" in name and "lora" not in name
    )
    return stream(model, others + (2 + num_resident) * BLOCK_BYTES, **{"device": DEVICE, **options})


def expected(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        out: torch.Tensor = copy.deepcopy(model).to(DEVICE)(x)
    return out


@pytest.mark.parametrize("num_resident", [0, 1, 3])
def test_outputs_are_the_same_bit_for_bit(num_resident: int) -> None:
    model = Model()
    want = [expected(model, x_of(seed)) for seed in range(3)]
    with streamed(model, num_resident) as run, torch.no_grad():
        assert sum(run.plan.is_resident) == num_resident
        for seed in range(3):
            assert torch.equal(model(x_of(seed)), want[seed])


def test_pinned_memory_is_the_weights_and_no_more() -> None:
    model = Model(num_blocks=20)
    with streamed(model) as run:
        assert run.pinned_bytes == 20 * BLOCK_BYTES == run.plan.moved_bytes


def test_the_model_is_left_as_it_was() -> None:
    model = Model()
    before = {name: (one.device, one.clone(), id(one)) for name, one in model.state_dict(keep_vars=True).items()}
    run = streamed(model)
    run.unstream()
    run.unstream()
    for name, one in model.state_dict(keep_vars=True).items():
        assert (one.device, id(one)) == (before[name][0], before[name][2])
        assert torch.equal(one, before[name][1])
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def test_a_streamed_model_is_saved_as_ever() -> None:
    model = Model()
    want = {name: one.clone() for name, one in model.state_dict().items()}
    with streamed(model), torch.no_grad():
        model(x_of())
        saved = model.state_dict()
        assert all(torch.equal(saved[name].cpu(), one.cpu()) for name, one in want.items())


def _in_place(weight: nn.Parameter) -> None:
    with torch.no_grad():
        weight.mul_(2)


def _through_data(weight: nn.Parameter) -> None:
    weight.data.mul_(2)


def _with_other_memory(weight: nn.Parameter) -> None:
    weight.data = weight.data * 2


@pytest.mark.parametrize("change", [_in_place, _through_data, _with_other_memory])
@pytest.mark.parametrize("number", [0, 2, 5])
def test_weights_that_are_changed_between_passes_are_not_stale(change: Callable[..., None], number: int) -> None:
    model, x = Model(), x_of()
    with streamed(model), torch.no_grad():
        before = model(x)
        change(model.blocks[number].up.weight)
        after = model(x)
        assert not torch.equal(before, after)
        want = after
    assert torch.equal(expected(model, x), want)


def test_weights_that_a_hook_changes_before_their_block_runs_are_not_stale() -> None:
    model, x = Model(), x_of()

    def change(module: nn.Module, args: Any) -> None:
        _in_place(model.blocks[3].up.weight)  # block 3 was copied already

    with streamed(model), torch.no_grad():
        hook = model.blocks[2].register_forward_pre_hook(change)
        got = model(x)
        hook.remove()
    assert torch.equal(expected(model, x), got)


def test_a_change_while_a_block_runs_is_kept() -> None:
    model, x = Model(), x_of()

    def change(module: nn.Module, args: Any) -> None:
        _in_place(model.blocks[3].up.weight)

    with streamed(model), torch.no_grad():
        hook = model.blocks[3].register_forward_pre_hook(change)
        got = model(x)
        hook.remove()
    assert torch.equal(expected(model, x), got)


def test_a_weight_that_is_replaced_is_an_error() -> None:
    model = Model()
    with streamed(model), torch.no_grad():
        model.blocks[1].up.weight = nn.Parameter(torch.zeros(WIDTH, WIDTH), requires_grad=False)
        with pytest.raises(RuntimeMemoryError, match=r"blocks\.1\.up\.weight was replaced"):
            model(x_of())


def test_a_weight_of_another_type_is_an_error() -> None:
    model = Model()
    with streamed(model), torch.no_grad():
        model.blocks[1].up.half()
        with pytest.raises(RuntimeMemoryError, match=r"blocks\.1\.up\.weight became torch.float16"):
            model(x_of())


def test_an_error_in_a_layer_leaves_the_stream_usable() -> None:
    model, x = Model(), x_of()
    want = expected(model, x)

    def fail(module: nn.Module, args: Any) -> None:
        raise ValueError("a layer's own error")

    with streamed(model), torch.no_grad():
        for number in range(6):
            hook = model.blocks[number].register_forward_pre_hook(fail)
            with pytest.raises(ValueError, match="own error"):
                model(x)
            hook.remove()
            assert torch.equal(model(x), want)
            assert all(one.device.type == "cpu" for one in model.blocks[number].up.parameters())


def train(model: nn.Module, num_steps: int = 5) -> list[float]:
    optimizer = torch.optim.SGD([one for one in model.parameters() if one.requires_grad], lr=0.01)
    losses = []
    for seed in range(num_steps):
        optimizer.zero_grad()
        loss = model(x_of(seed)).square().mean() + model(x_of(seed + 100)).mean()  # two passes before one backwards
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses


def adapters_learn_the_same(checkpoints: bool, streaming: Callable[[Model], AbstractContextManager[Any]]) -> None:
    """Train adapters of a model that is there and of one that is streamed: losses and adapters are the same bit for bit."""
    resident, model = (Model(rank=2, checkpoints=checkpoints) for _ in range(2))
    want = train(resident.to(DEVICE))
    with streaming(model):
        assert train(model) == want
    trained = dict(resident.named_parameters())
    assert all(torch.equal(one.to(DEVICE), trained[name]) for name, one in model.named_parameters())
    assert len(set(want)) == len(want)


@pytest.mark.parametrize("checkpoints", [False, True])
@pytest.mark.parametrize("num_resident", [0, 2])
def test_adapters_learn_the_same_bit_for_bit(num_resident: int, checkpoints: bool) -> None:
    adapters_learn_the_same(checkpoints, lambda model: streamed(model, num_resident))


def test_a_weight_that_changes_before_the_pass_backwards_is_an_error() -> None:
    model = Model(rank=2)
    with streamed(model):
        loss = model(x_of()).sum()
        _in_place(model.blocks[2].up.weight)
        with pytest.raises(RuntimeMemoryError, match="changed in place"):
            loss.backward()


def test_streamed_weights_that_take_gradients_are_an_error() -> None:
    model = Model(rank=2)
    with streamed(model):
        model.blocks[2].up.weight.requires_grad_(True)
        with pytest.raises(RuntimeMemoryError, match=r"blocks\.2 take gradients"):
            model(x_of())


def test_shared_weights_stay() -> None:
    model = Model()
    model.blocks[4].up.weight = model.blocks[1].up.weight
    want = expected(model, x_of())
    with streamed(model, 3) as run, torch.no_grad():
        assert torch.equal(model(x_of()), want)
        assert run.plan.block_bytes[1] == run.plan.block_bytes[4] == BLOCK_BYTES - WIDTH * WIDTH * 4
    assert model.blocks[4].up.weight is model.blocks[1].up.weight


def test_what_fits_is_not_streamed() -> None:
    model = Model()
    want = expected(model, x_of())
    with stream(model, 2 * size_of(model), device=DEVICE) as run, torch.no_grad():
        assert run.plan.moved_bytes == 0
        assert torch.equal(model(x_of()), want)


def test_too_little_memory_says_how_much_is_needed_and_changes_nothing() -> None:
    model = Model()
    before = {name: one.data_ptr() for name, one in model.named_parameters()}
    with pytest.raises(RuntimeMemoryError, match=r"give gpu_bytes=(\d+) or more") as caught:
        stream(model, 1000, device=DEVICE)
    needed = int(str(caught.value).split("gpu_bytes=")[1].split()[0])
    with pytest.raises(RuntimeMemoryError):
        stream(model, needed - 1, device=DEVICE)
    with pytest.raises(RuntimeMemoryError, match="pinned host memory are needed"):
        stream(model, needed, device=DEVICE, host_bytes=100)
    assert before == {name: one.data_ptr() for name, one in model.named_parameters()}
    stream(model, needed, device=DEVICE).unstream()


def test_a_host_that_refuses_half_way_leaves_the_model_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    from ullage.runtime.weights import hosted

    model, calls = Model(), []
    real = hosted.PinnedArena

    def refuses(size_bytes: int, *, is_pinned: bool) -> Any:
        calls.append(size_bytes)
        if len(calls) == 4:
            raise RuntimeMemoryError("no more")
        return real(size_bytes, is_pinned=is_pinned)

    monkeypatch.setattr(hosted, "PinnedArena", refuses)
    before = {name: (one.clone(), one.device) for name, one in model.state_dict().items()}
    with pytest.raises(RuntimeMemoryError, match="no more"):
        streamed(model)
    assert all(
        one.device == before[name][1] and torch.equal(one, before[name][0]) for name, one in model.state_dict().items()
    )
    assert torch.equal(expected(model, x_of()), copy.deepcopy(model).to(DEVICE)(x_of()))


def test_models_that_cannot_be_streamed_are_refused_with_the_reason() -> None:
    with pytest.raises(RuntimeMemoryError, match="no list of blocks"):
        stream(nn.Linear(2, 2), 1 << 30, device=DEVICE)
    with pytest.raises(RuntimeMemoryError, match=r"no blocks in 'layers'; its lists of modules: blocks"):
        stream(Model(), 1 << 30, trunk="layers", device=DEVICE)
    with pytest.raises(RuntimeMemoryError, match="freeze what is not trained"):
        stream(Model().requires_grad_(True), 1 << 30, device=DEVICE)


@pytest.mark.skipif(DEVICE == "cuda", reason="there is a GPU")
def test_without_a_gpu_the_error_says_so() -> None:
    with pytest.raises(DeviceError, match="there is none"):
        stream(Model(), 1 << 30)


def test_a_prediction_says_what_limits() -> None:
    model = Model()
    with streamed(model) as run:
        found = run.predict(x_of())
        assert found.moved_bytes == 6 * BLOCK_BYTES
        assert found.step_s >= max(found.compute_s, found.copy_s * 0.99)
        assert found.limit in str(found)
        assert not found.is_link_slow
        model(x_of())
        assert run.measured_s() > 0
        assert found.against(found.step_s * 1.02).endswith("were predicted: +2.0%")


def test_blocks_that_are_compiled_are_streamed() -> None:
    model = Model()
    want = expected(model, x_of())
    with streamed(model), torch.no_grad():
        for block in model.blocks:
            block.compile(backend="eager")
        assert torch.equal(model(x_of()), want)
        _in_place(model.blocks[2].up.weight)
        got = model(x_of())
    assert torch.equal(expected(Model(), x_of()), want)
    assert not torch.equal(got, want)


def test_small_blocks_say_nothing_of_the_link(monkeypatch: pytest.MonkeyPatch) -> None:
    probed = made_up()
    curve = probed.copy_curve("pinned", "to_gpu")
    assert curve is not None
    monkeypatch.setattr(stream_module, "known_probe", lambda index: probed)
    gpu = torch.device("cuda", 0)
    assert stream_module._probed_link(gpu, 256 << 20) == curve.top_bytes_per_s
    assert stream_module._probed_link(gpu, 1 << 20) is None
    assert stream_module._probed_link(torch.device("cpu"), 256 << 20) is None


def test_a_link_that_was_faster_when_it_was_probed_is_named() -> None:
    plan = plan_stream([10_000_000] * 4, 0, 25_000_000)
    slow = StreamPrediction.of(plan, [0.001] * 4, 10e9, 55e9)
    assert slow.is_link_slow
    assert "gave 55.0 GB/s when this machine was probed" in str(slow)
    for link, probed in ((50e9, 55e9), (10e9, None)):
        found = StreamPrediction.of(plan, [0.001] * 4, link, probed)
        assert not found.is_link_slow
        assert "probed" not in str(found)
