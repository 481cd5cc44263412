"""CUDA graphs and streamed blocks: what is compiled gets them, and none ever replays with weights that are not there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType

import pytest
import torch

from tests.unit.runtime.weights.conftest import DEVICE
from tests.unit.runtime.weights.test_stream import BLOCK_BYTES, Model, expected, size_of, streamed, x_of
from ullage.errors import RuntimeMemoryError
from ullage.runtime.weights import passes, stream
from ullage.runtime.weights.graphs import check_not_capturing

GPU = torch.device("cuda")


def refuse(device: torch.device) -> None:
    raise RuntimeMemoryError("a pass cannot be captured")


def make_graphed_callables(model: torch.nn.Module) -> None:
    """Do to a module what torch's function of this name does, without a graph: torch's needs a GPU."""
    forward = model.forward

    def new_fwd(x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = forward(x)
        return out

    model.forward = new_fwd


@pytest.mark.parametrize("name", ["blocks.3", "blocks.0.up", ""])
def test_a_module_that_replays_a_graph_is_not_streamed(name: str) -> None:
    model = Model()
    make_graphed_callables(model.get_submodule(name))
    with pytest.raises(RuntimeMemoryError, match=f"^{name or 'the model'} replays a CUDA graph"):
        streamed(model)
    del model.get_submodule(name).forward
    with streamed(model), torch.no_grad():
        assert torch.equal(model(x_of()), expected(Model(), x_of()))


def test_torch_names_what_replays_a_graph_as_is_looked_for() -> None:
    def names(code: CodeType) -> list[str]:
        inner = [one for one in code.co_consts if isinstance(one, CodeType)]
        return [code.co_name, *(name for one in inner for name in names(one))]

    assert torch.cuda.make_graphed_callables.__qualname__ == make_graphed_callables.__qualname__
    assert "new_fwd" in names(torch.cuda.make_graphed_callables.__code__)


def test_a_forward_of_ones_own_is_streamed() -> None:
    model = Model().to(DEVICE)
    forward: Callable[[torch.Tensor], torch.Tensor] = model.blocks[2].forward
    model.blocks[2].forward = lambda x: forward(x) * 2
    with torch.no_grad():
        want = model(x_of())
        with streamed(model):
            assert torch.equal(model(x_of()), want)


def test_a_capture_is_asked_for_on_the_gpu_where_blocks_run(monkeypatch: pytest.MonkeyPatch) -> None:
    capturing, current = {torch.device("cuda", 1)}, [torch.device("cuda", 0)]

    @contextmanager
    def on(device: torch.device) -> Iterator[None]:
        current.append(device)
        yield
        current.pop()

    monkeypatch.setattr(torch.cuda, "device", on)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: current[-1] in capturing)
    for device in (torch.device("cpu"), torch.device("cuda", 0), torch.device("cuda", 2)):
        check_not_capturing(device)
    with pytest.raises(RuntimeMemoryError, match="cannot be captured"):
        check_not_capturing(torch.device("cuda", 1))


@pytest.mark.parametrize("part", ["the model", "a block"])
def test_a_pass_in_a_capture_copies_nothing_and_the_next_is_right(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = Model(), x_of()
    want = expected(model, x)
    with streamed(model) as run, torch.no_grad():
        assert run._ring is not None
        before = run._ring.num_copies
        monkeypatch.setattr(passes, "check_not_capturing", refuse)
        with pytest.raises(RuntimeMemoryError, match="cannot be captured"):
            (model if part == "the model" else model.blocks[4])(x)
        assert run._ring.num_copies == before
        monkeypatch.undo()
        assert torch.equal(model(x), want)


def test_a_pass_backwards_in_a_capture_copies_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Model(rank=2)
    with streamed(model) as run:
        assert run._ring is not None
        out = model(x_of()).sum()
        before = run._ring.num_copies
        monkeypatch.setattr(passes, "check_not_capturing", refuse)
        with pytest.raises(RuntimeMemoryError, match="cannot be captured"):
            out.backward()
        assert run._ring.num_copies == before


@pytest.mark.gpu
def test_blocks_compiled_to_graphs_compute_what_they_do_without_a_stream() -> None:
    model, x = Model(), x_of()
    with torch.no_grad():
        for block in model.to(GPU).blocks:
            block.compile(mode="reduce-overhead")

        def passed() -> torch.Tensor:
            torch.compiler.cudagraph_mark_step_begin()
            out: torch.Tensor = model(x).clone()
            return out

        want = [passed() for _ in range(4)][-1]
        with streamed(model):
            for _ in range(5):
                assert torch.equal(passed(), want)
            model.blocks[3].up.weight.mul_(2)
            assert not torch.equal(passed(), want)
            model.blocks[3].up.weight.div_(2)
            assert torch.equal(passed(), want)
        assert torch.equal(passed(), want)


@pytest.mark.gpu
@pytest.mark.parametrize("part", ["the model", "a block"])
def test_a_real_capture_is_refused_and_the_model_goes_on(part: str) -> None:
    model, x = Model(), x_of()
    want = expected(model, x)
    with streamed(model, 1) as run, torch.no_grad():
        streamed_block = model.blocks[run.plan.streamed[-1]]
        graph = torch.cuda.CUDAGraph()
        with pytest.raises(RuntimeMemoryError, match="cannot be captured"), torch.cuda.graph(graph):
            (model if part == "the model" else streamed_block)(x)
        for _ in range(3):
            assert torch.equal(model(x), want)
    assert torch.equal(expected(model, x), want)


@pytest.mark.gpu
def test_a_block_graphed_by_torch_is_refused() -> None:
    model, x = Model().to(GPU), torch.randn(5, 16, device=GPU)
    torch.cuda.make_graphed_callables(model.blocks[2], (x,))
    with pytest.raises(RuntimeMemoryError, match=r"^blocks\.2 replays a CUDA graph"):
        stream(model, size_of(model) + BLOCK_BYTES)
