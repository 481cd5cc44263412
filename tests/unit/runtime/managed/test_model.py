"""A managed model computes what it computed, has its roles, and is left as it was."""

from __future__ import annotations

import gc
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from tests.unit.runtime.managed.fake_cuda import FakeCalls
from ullage.errors import RuntimeMemoryError
from ullage.runtime.managed import Role, manage, managed_tensor, model
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
    monkeypatch.setattr(model, "free_host_bytes", lambda: 100)
    with pytest.raises(RuntimeMemoryError, match="320 B more of the host, and it has 100 B free"):
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


def test_weights_of_the_host_need_room_for_the_largest_module_alone(
    calls: FakeCalls, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = nn.Sequential(*(nn.Linear(100, 100, bias=False) for _ in range(10)))
    monkeypatch.setattr(model, "free_host_bytes", lambda: 50_000)  # a layer has 40,000, all have 400,000
    manage(whole).unmanage()
    monkeypatch.setattr(model, "free_host_bytes", lambda: 44_000)
    with pytest.raises(RuntimeMemoryError, match=r"may take 39\.1 KiB more of the host"):
        manage(whole)


def test_weights_of_the_host_come_back_one_by_one_and_the_rest_later(
    calls: FakeCalls, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = Model()
    want = whole(IDS)
    managed = manage(whole)
    held, put_back = list[int](), model._put_back

    def put_back_some(tensor: torch.Tensor, device: torch.device) -> None:
        held.append(len(calls.sizes))
        if len(held) == 5:
            raise MemoryError("as told")
        put_back(tensor, device)

    monkeypatch.setattr(model, "_put_back", put_back_some)
    with pytest.raises(MemoryError, match="as told"):
        managed.unmanage()
    assert torch.equal(whole(IDS), want)
    with pytest.raises(RuntimeMemoryError, match="is managed already"):
        manage(whole)
    managed.unmanage()
    assert held == [5, 4, 3, 3, 2, 2, 2, 1, 1, 0]  # ranges, before each of nine tensors; one was tried twice
    assert calls.sizes == {}
    assert torch.equal(whole(IDS), want)
    assert roles_in(whole) == {}


def test_weights_of_the_gpu_come_back_all_or_none(calls: FakeCalls, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Model()
    want = whole(IDS)
    managed = manage(whole)
    before, real_homes = roles_in(whole), dict(managed._homes)
    managed._homes = {key: (one, torch.device("cuda", 0)) for key, (one, _) in real_homes.items()}
    tried = list[torch.Tensor]()

    def put_back_some(tensor: torch.Tensor, device: torch.device) -> None:
        tried.append(tensor)
        if len(tried) == 5:
            raise torch.cuda.OutOfMemoryError("as told")
        tensor.data = tensor.data.clone()

    monkeypatch.setattr(model, "_put_back", put_back_some)
    with pytest.raises(torch.cuda.OutOfMemoryError, match="as told"):
        managed.unmanage()
    assert roles_in(whole) == before
    managed.unmanage()
    assert roles_in(whole) == {}
    assert calls.sizes == {}
    assert torch.equal(whole(IDS), want)


def test_any_name_of_a_tied_weight_gives_its_role(calls: FakeCalls) -> None:
    whole = Model()
    manage(whole, {"head": "seldom"})
    assert roles_in(whole)["table.weight"] == "seldom"
    assert range_of(whole.head.weight) is range_of(whole.table.weight)


def test_any_name_of_a_shared_module_gives_its_role(calls: FakeCalls) -> None:
    whole = nn.ModuleDict({"one": nn.Linear(8, 8)})
    whole["other"] = whole["one"]
    manage(whole, {"other": "seldom"})
    assert set(roles_in(whole).values()) == {"seldom"}


def test_a_table_that_is_tied_to_an_earlier_module_is_a_table(calls: FakeCalls) -> None:
    whole = nn.Sequential(nn.Linear(8, 10, bias=False), nn.Embedding(10, 8))
    whole[1].weight = whole[0].weight
    manage(whole)
    assert roles_in(whole) == {"0.weight": "lookup"}


@pytest.mark.parametrize(
    ("roles", "name"),
    [
        ({"table": "cache", "head.weight": "seldom"}, "'table'"),
        ({"layers.0": "cache", "layers.0.weight": "seldom", "layers.0.bias": "shared"}, "'layers.0'"),
        ({"nothing": "cache"}, "'nothing'"),
    ],
)
def test_a_role_that_reaches_no_weight_is_refused(calls: FakeCalls, roles: dict[str, str], name: str) -> None:
    whole = Model()
    whole.nothing = nn.ReLU()
    with pytest.raises(RuntimeMemoryError, match=f"the role given to {name} reaches no weight of Model"):
        manage(whole, roles)
    assert calls.sizes == {}


def test_tensors_that_were_managed_before_are_left_as_they_are(calls: FakeCalls) -> None:
    whole = Model()
    whole.layers[0].weight = nn.Parameter(managed_tensor((8, 8), torch.float32, role="cache").fill_(1))
    whole.register_buffer("room", managed_tensor((8,), torch.float32, role="scratch"))
    before = [range_of(whole.layers[0].weight), range_of(whole.room)]
    with manage(whole):
        assert roles_in(whole)["layers.0.weight"] == "cache"
        assert roles_in(whole)["layers.0.bias"] == "moved"
    assert [range_of(whole.layers[0].weight), range_of(whole.room)] == before
    assert None not in before
    with pytest.raises(RuntimeMemoryError, match=r"'layers\.0\.weight' reaches no weight"):
        manage(whole, {"layers.0.weight": "moved"})


def test_a_managed_model_is_not_managed_again(calls: FakeCalls) -> None:
    whole = Model()
    want = whole(IDS)
    with manage(whole):
        for part in (whole, whole.layers, nn.Sequential(whole)):
            with pytest.raises(RuntimeMemoryError, match="is managed already"):
                manage(part)
    manage(whole).unmanage()
    assert torch.equal(whole(IDS), want)


def test_a_gradient_follows_its_weight_to_another_device() -> None:
    grad = SimpleNamespace(device="cpu", data=SimpleNamespace(to=lambda device: f"a copy on {device}"))
    weight: Any = SimpleNamespace(device="cuda:0", grad=grad, is_leaf=True)
    model.grad_follows(weight)
    assert grad.data == "a copy on cuda:0"
    here = SimpleNamespace(device="cuda:0", data="as it was")
    weight.grad = here
    model.grad_follows(weight)
    assert here.data == "as it was"
    weight.grad = None
    model.grad_follows(weight)


def test_gradients_are_kept(calls: FakeCalls) -> None:
    whole = Model()
    whole(IDS).sum().backward()
    want = {name: one.grad.clone() for name, one in whole.named_parameters()}
    with manage(whole):
        assert all(torch.equal(one.grad, want[name]) for name, one in whole.named_parameters())
    assert all(torch.equal(one.grad, want[name]) for name, one in whole.named_parameters())


@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")
@pytest.mark.parametrize("has_bias", [False, True])
def test_weights_of_no_elements_are_no_obstacle(calls: FakeCalls, has_bias: bool) -> None:
    whole = nn.Linear(0, 5, bias=has_bias)
    with manage(whole):
        assert whole(torch.zeros(2, 0)).shape == (2, 5)
        assert whole.weight.shape == (5, 0)
    assert calls.sizes == {}
