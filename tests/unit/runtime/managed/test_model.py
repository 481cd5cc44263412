"""A managed model computes what it computed, has its roles, and is left as it was."""

from __future__ import annotations

import gc

import pytest
import torch
from torch import nn

from tests.unit.runtime.managed.fake_cuda import FakeCalls
from ullage.errors import RuntimeMemoryError
from ullage.runtime.managed import Role, manage, model
from ullage.runtime.managed.memory import range_of


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.table = nn.Embedding(10, 8)
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))
        self.head = nn.Linear(8, 10, bias=False)
        self.head.weight = self.table.weight  # tied
        self.turned = nn.Parameter(torch.randn(4, 8).t())
        self.register_buffer("shift", torch.randn(8))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.table(ids) + self.shift
        for layer in self.layers:
            x = torch.relu(layer(x))
        x = x + x @ self.turned @ self.turned.t()
        out: torch.Tensor = self.head(x)
        return out


IDS = torch.tensor([[1, 2, 3], [4, 5, 6]])


def roles_in(whole: nn.Module) -> dict[str, str]:
    found = {name: range_of(one) for name, one in whole.named_parameters()}
    return {name: str(one.role) for name, one in found.items() if one is not None}


def test_a_model_computes_the_same_and_learns(calls: FakeCalls) -> None:
    whole = Model()
    want = whole(IDS)
    strides = {name: one.stride() for name, one in whole.named_parameters()}
    with manage(whole) as managed:
        assert managed.size_bytes == sum(calls.sizes.values())
        assert torch.equal(whole(IDS), want)
        assert whole.head.weight is whole.table.weight
        assert {name: one.stride() for name, one in whole.named_parameters()} == strides
        optimizer = torch.optim.SGD(whole.parameters(), lr=0.1)
        whole(IDS).sum().backward()
        optimizer.step()
        learned = {name: one.detach().clone() for name, one in whole.named_parameters()}
    assert all(torch.equal(one, learned[name]) for name, one in whole.named_parameters())
    assert not torch.equal(whole(IDS), want)


def test_an_unmanaged_model_holds_no_managed_memory(calls: FakeCalls) -> None:
    whole = Model()
    kept = {name: id(one) for name, one in whole.named_parameters()}
    managed = manage(whole)
    managed.unmanage()
    managed.unmanage()
    gc.collect()
    assert calls.sizes == {}
    assert {name: id(one) for name, one in whole.named_parameters()} == kept


def test_roles_go_by_the_longest_name(calls: FakeCalls) -> None:
    whole = Model()
    manage(whole, {"layers": "seldom", "layers.1": Role.CACHE, "layers.1.bias": "shared"})
    assert roles_in(whole) == {
        "table.weight": "lookup",
        "layers.0.weight": "seldom",
        "layers.0.bias": "seldom",
        "layers.1.weight": "cache",
        "layers.1.bias": "shared",
        "layers.2.weight": "seldom",
        "layers.2.bias": "seldom",
        "turned": "moved",
    }


def test_weights_of_one_module_and_role_lie_in_one_range(calls: FakeCalls) -> None:
    whole = Model()
    manage(whole)
    ranges = {id(range_of(one)) for one in whole.parameters()}
    assert len(ranges) == 5  # the table, three layers, and the model's own
    assert range_of(whole.layers[0].weight) is range_of(whole.layers[0].bias)


def test_a_failure_leaves_the_model_as_it_was(calls: FakeCalls) -> None:
    whole = Model()
    want = whole(IDS)
    calls.most_bytes = 3 * 4096
    with pytest.raises(RuntimeMemoryError, match="full"):
        manage(whole)
    gc.collect()
    assert calls.sizes == {}
    assert torch.equal(whole(IDS), want)


def test_what_the_host_cannot_hold_is_refused(calls: FakeCalls, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model, "free_host_bytes", lambda: 1000)
    with pytest.raises(RuntimeMemoryError, match=r"it has 1000 B free|it has 0.98 KiB free|free"):
        manage(Model())
    assert calls.sizes == {}


def test_names_and_weights_that_do_not_work_are_refused(calls: FakeCalls) -> None:
    whole = Model()
    with pytest.raises(RuntimeMemoryError, match="nothing called layer"):
        manage(whole, {"layer": "cache"})
    with pytest.raises(RuntimeMemoryError, match="no role"):
        manage(whole, {"layers": "fast"})
    whole.layers[0].weight = nn.Parameter(torch.randn(8, 16)[:, ::2])
    with pytest.raises(RuntimeMemoryError, match=r"layers\.0\.weight has gaps"):
        manage(whole)
    whole.layers[0].weight = nn.Parameter(whole.layers[1].weight.detach())
    with pytest.raises(RuntimeMemoryError, match="shares memory"):
        manage(whole)
    whole.layers[0] = nn.Linear(8, 8, device="meta")
    with pytest.raises(RuntimeMemoryError, match="meta"):
        manage(whole)
    assert calls.sizes == {}
