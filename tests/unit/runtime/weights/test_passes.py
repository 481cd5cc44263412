"""Weights are right whoever runs the model, in whatever order, and however a pass ends."""

from __future__ import annotations

import copy
import gc
import threading
import weakref
from typing import Any

import pytest
import torch
from torch import nn
from torch.autograd.graph import disable_saved_tensors_hooks, save_on_cpu

from tests.unit.runtime.weights.conftest import DEVICE
from tests.unit.runtime.weights.test_stream import Block, Model, expected, size_of, streamed, train, x_of
from ullage.errors import RuntimeMemoryError
from ullage.runtime.weights import stream


class Ordered(Model):
    """Runs some of its blocks, in an order that can be changed."""

    order = tuple(range(6))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.inner(x)
        for number in self.order:
            x = self.blocks[number](x)
        out: torch.Tensor = self.head(x)
        return out


@pytest.mark.parametrize("order", [(1, 2), (5, 4, 3, 2, 1, 0), (1, 0), (0, 0, 1, 1), (3,), (2, 5, 1)])
def test_in_any_order_nothing_is_taken_over_from_the_pass_before(order: tuple[int, ...]) -> None:
    model, x = Ordered(), x_of()
    model.order = order
    with streamed(model) as _, torch.no_grad():
        for _ in range(3):
            assert torch.equal(model(x), expected_of(model, x))
            for number in order:
                model.blocks[number].up.weight.data.mul_(1.5)  # no version tells of it


def expected_of(model: Ordered, x: torch.Tensor) -> torch.Tensor:
    """Compute with a model of the same weights that is not streamed."""
    other = Ordered()
    other.order = model.order
    other.load_state_dict({name: one.clone() for name, one in model.state_dict().items()})
    return expected(other, x)


def test_a_part_of_a_model_that_is_called_by_itself_begins_a_pass() -> None:
    holder = nn.Module()
    holder.model = Model()
    x = x_of()
    with streamed(holder), torch.no_grad():
        before = holder.model(x)
        holder.model.blocks[3].up.weight.data.mul_(2)
        after = holder.model(x)
    assert not torch.equal(before, after)
    assert torch.equal(expected(holder.model, x), after)


def test_another_thread_is_told_to_wait_and_the_first_ones_pass_goes_on() -> None:
    model, x = Model(), x_of()
    want = expected(model, x)
    inside, told = threading.Event(), threading.Event()
    found: list[BaseException] = []

    def other() -> None:
        inside.wait(10)
        try:
            with torch.no_grad():
                model(x)
        except RuntimeMemoryError as error:
            found.append(error)
        told.set()

    def pause(module: nn.Module, args: Any) -> None:
        inside.set()
        told.wait(10)

    thread = threading.Thread(target=other)
    with streamed(model), torch.no_grad():
        hook = model.blocks[3].register_forward_pre_hook(pause)
        thread.start()
        assert torch.equal(model(x), want)
        thread.join()
        hook.remove()
        assert "another thread" in str(found[0])
        assert torch.equal(model(x), want)
        again = threading.Thread(target=lambda: found.append(model(x)))
        again.start()
        again.join()
    assert torch.equal(found[1], want)  # type: ignore[arg-type]
    assert torch.equal(expected(model, x), want)


def test_many_threads_never_change_a_weight() -> None:
    model, x = Model(), x_of()
    before = {name: one.clone() for name, one in model.state_dict().items()}
    want, wrong = expected(model, x), []

    def run() -> None:
        for _ in range(30):
            try:
                with torch.no_grad():
                    if not torch.equal(model(x), want):
                        wrong.append("output")
            except RuntimeMemoryError:
                pass

    with streamed(model):
        threads = [threading.Thread(target=run) for _ in range(4)]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
    assert not wrong
    assert all(torch.equal(one, before[name]) for name, one in model.state_dict().items())


def test_ctrl_c_in_a_block_leaves_no_hook_and_the_next_pass_is_right() -> None:
    model, x = Model(rank=2), x_of()
    want = expected(model, x)

    def interrupt(module: nn.Module, args: Any) -> None:
        raise KeyboardInterrupt

    with streamed(model):
        hook = model.blocks[2].register_forward_pre_hook(interrupt)
        with pytest.raises(KeyboardInterrupt):
            model(x)
        hook.remove()
        assert torch.equal(model(x).detach(), want)
        assert torch._C._autograd._top_saved_tensors_default_hooks(False) is None
    assert torch.equal(expected(model, x), want)


def test_a_pass_that_may_not_have_hooks_fails_and_leaves_the_stream_usable() -> None:
    model, x = Model(rank=2), x_of()
    want = expected(model, x)
    with streamed(model):
        with disable_saved_tensors_hooks("not here"), pytest.raises(RuntimeError, match="not here"):
            model(x)
        with torch.no_grad():
            assert torch.equal(model(x), want)
        model(x).sum().backward()


def test_inference_mode_before_training() -> None:
    resident, model = Model(rank=2).to(DEVICE), Model(rank=2)
    want = train(resident)
    with torch.inference_mode():
        run = streamed(model)
        model(x_of())
    assert train(model) == want
    with torch.inference_mode():
        run.unstream()
    model.blocks[0].up.weight.mul_(1.0)


def test_hooks_around_a_pass_see_what_else_is_saved() -> None:
    resident, model = Model(rank=2).to(DEVICE), Model(rank=2)
    want = train(resident)
    with streamed(model), save_on_cpu():
        assert train(model) == want


def test_a_copy_of_a_streamed_model_does_not_run_and_does_not_touch_it() -> None:
    model, x = Model(), x_of()
    want = expected(model, x)
    with streamed(model), torch.no_grad():
        other = copy.deepcopy(model)
        with pytest.raises(RuntimeMemoryError, match=r"copy of blocks\.0"):
            other(x)
        assert torch.equal(model(x), want)
    with pytest.raises(RuntimeMemoryError, match="copy of"):
        other(x)
    assert torch.equal(expected(model, x), want)


def test_streaming_twice_is_refused_and_after_unstream_it_is_not() -> None:
    model = Model()
    run = streamed(model)
    with pytest.raises(RuntimeMemoryError, match="streamed already"):
        streamed(model)
    run.unstream()
    streamed(model).unstream()


def test_a_transposed_weight_is_noticed() -> None:
    model, x = Model(), x_of()
    with streamed(model), torch.no_grad():
        model(x)
        model.blocks[4].up.weight.data = model.blocks[4].up.weight.data.T
        got = model(x)
    assert torch.equal(expected(model, x), got)


def test_an_output_that_is_a_view_of_a_weight_is_copied() -> None:
    class Prompted(Block):
        def __init__(self) -> None:
            super().__init__()
            self.prompt = nn.Parameter(torch.randn(16))

        def forward(self, x: torch.Tensor) -> Any:
            return super().forward(x), {"prompt": self.prompt.expand(5, 16)}

    class Prompting(Model):
        def __init__(self) -> None:
            super().__init__()
            self.blocks = nn.ModuleList(Prompted() for _ in range(6)).requires_grad_(False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            said = []
            for block in self.blocks:
                x, more = block(x)
                said.append(more["prompt"])
            return x + sum(said)

    model, x = Prompting(), x_of()
    want = expected(model, x)
    with stream(model, size_of(model) - 6 * 2300 + 3 * 3584, device=DEVICE) as run, torch.no_grad():
        assert len(run.plan.streamed) > run.plan.num_slots
        assert torch.equal(model(x), want)


def test_a_prediction_between_two_passes_spoils_neither() -> None:
    resident, model, x = Model(rank=2).to(DEVICE), Model(rank=2), x_of()
    resident(x).sum().backward()
    with streamed(model) as run:
        loss = model(x).sum()
        with pytest.raises(TypeError):
            run.predict()
        loss.backward()
    for one, other in zip(model.parameters(), resident.parameters(), strict=True):
        assert (one.grad is None) == (other.grad is None)
        if one.grad is not None and other.grad is not None:
            assert torch.equal(one.grad.to(DEVICE), other.grad)


def test_shared_memory_gradients_and_replaced_buffers_come_back() -> None:
    class Counting(Model):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.seen = self.seen + 1
            return super().forward(x)

    model = Counting(rank=2)
    model.register_buffer("seen", torch.zeros(()))
    model.register_buffer("mirror", model.head.weight.data[1:3])
    model.register_buffer("wide", torch.zeros(1).expand(1000))
    train(model.to("cpu"), 1) if DEVICE == "cpu" else None
    with streamed(model):
        assert model.mirror.data_ptr() == model.head.weight[1].data_ptr()
        model(x_of())
    assert model.seen.device.type == model.mirror.device.type == "cpu"
    assert model.mirror.data_ptr() == model.head.weight[1].data_ptr()
    assert model.wide.untyped_storage().nbytes() == 4


def test_pinned_memory_goes_with_the_model() -> None:
    model = Model()
    run: Any = streamed(model)
    data = weakref.ref(run._hosted[0].data)
    del run, model
    gc.collect()
    assert data() is None


def complex_block() -> nn.Module:
    class Adjoint(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(torch.randn(16, 16, dtype=torch.complex64), requires_grad=False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            out: torch.Tensor = x @ self.w.mH * 0.2
            return out

    return Adjoint()


def test_a_conjugated_weight_is_conjugated_in_the_pass_backwards_too() -> None:
    torch.manual_seed(1)
    resident = nn.Sequential(*(complex_block() for _ in range(5))).to(DEVICE)
    model = copy.deepcopy(resident)
    grads = []
    for one in (resident, model):
        x = (
            torch.randn(3, 16, dtype=torch.complex64, generator=torch.Generator().manual_seed(2))
            .to(DEVICE)
            .requires_grad_()
        )
        run = stream(model, 2 * 2048, device=DEVICE) if one is model else None
        one(x).abs().sum().backward()
        if run is not None:
            run.unstream()
        grads.append(x.grad)
    assert torch.equal(grads[0], grads[1])


def test_what_autograd_says_of_changes_in_place_is_still_said() -> None:
    class Doubling(Block):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            z = torch.sigmoid(super().forward(x))
            z.mul_(2)
            return z

    model = Model(rank=2)
    model.blocks = nn.ModuleList(Doubling(2) for _ in range(6))
    for name, one in model.named_parameters():
        one.requires_grad_("lora" in name)
    with streamed(model):
        loss = model(x_of()).sum()
        with pytest.raises(RuntimeError, match="inplace operation"):
            loss.backward()


def test_memory_that_is_given_to_a_weight_before_the_pass_backwards_is_an_error() -> None:
    model = Model(rank=2)
    with streamed(model):
        loss = model(x_of()).sum()
        model.blocks[2].up.weight.data = torch.zeros(16, 16)
        with torch.no_grad():
            model(x_of())
        with pytest.raises(RuntimeMemoryError, match="changed in place"):
            loss.backward()
