"""On a GPU: managed memory is read and written by both sides, moved, discarded, and a model over it computes the same."""

from __future__ import annotations

import gc

import pytest
import torch
from torch import nn

from ullage.runtime.managed import (
    discard,
    discard_and_prefetch,
    host_view,
    manage,
    managed_bytes,
    managed_tensor,
    prefetch,
    prefetching,
)

pytestmark = pytest.mark.gpu
SIZE = 4 << 20  # elements: 16 MiB


@pytest.fixture(autouse=True)
def _needs_bindings() -> None:
    pytest.importorskip("cuda.bindings")


@pytest.mark.parametrize("role", ["moved", "lookup", "cache", "shared", "seldom", "scratch"])
@pytest.mark.parametrize("is_side", [False, True])
def test_both_sides_see_what_the_other_wrote(role: str, is_side: bool) -> None:
    stream = torch.cuda.Stream() if is_side else torch.cuda.current_stream()
    with torch.cuda.stream(stream):
        data = managed_tensor((SIZE,), torch.float32, role=role)
        seen = host_view(data)
        seen.fill_(2)
        prefetch([data])
        data.mul_(3)
        prefetch([data], to="host")
        stream.synchronize()
        assert seen[[0, SIZE // 2, SIZE - 1]].tolist() == [6, 6, 6]
        discard_and_prefetch([data])
        data.fill_(5)
        stream.synchronize()
        assert seen[SIZE - 1].item() == 5
        discard([data])
        data.fill_(7)
        assert data.sum().item() == 7 * SIZE
    del data, seen
    gc.collect()
    assert managed_bytes() == 0


def test_memory_goes_back_to_the_system() -> None:
    before = torch.cuda.mem_get_info()[0]
    data = managed_tensor((1 << 30,), torch.uint8).fill_(1)  # more than the driver keeps at hand
    torch.cuda.synchronize()
    assert torch.cuda.mem_get_info()[0] < before
    del data
    gc.collect()
    assert torch.cuda.mem_get_info()[0] >= before - (4 << 20)


def test_gradients_go_with_their_weights_and_come_back() -> None:
    model = nn.Linear(64, 64)
    model(torch.ones(2, 64)).sum().backward()
    want = model.weight.grad.clone()
    with manage(model):
        assert model.weight.grad.is_cuda
        model(torch.ones(2, 64, device="cuda")).sum().backward()
    assert model.weight.grad.device.type == "cpu"
    assert torch.allclose(model.weight.grad, 2 * want)


def test_a_model_under_a_schedule_computes_the_same() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Linear(1024, 1024) for _ in range(8))).cuda()
    x = torch.randn(64, 1024, device="cuda")
    want = model(x)
    size = 1024 * 1024 * 4 + 4096
    with manage(model), prefetching(model, ahead=2, gpu_bytes=4 * size) as run:
        for _ in range(5):
            assert torch.equal(model(x), want)
        assert run.stats.peak_bytes <= 4 * size
        assert run.stats.sent_away_bytes > 0
        model(x).sum().backward()
    assert all(one.grad is not None and one.is_cuda for one in model.parameters())
    assert torch.equal(model(x), want)
