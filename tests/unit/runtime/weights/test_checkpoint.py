"""A model on the meta device is streamed straight from safetensors files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from tests.unit.runtime.weights.conftest import DEVICE
from tests.unit.runtime.weights.test_stream import BLOCK_BYTES, Model, expected, size_of, x_of
from ullage.errors import RuntimeMemoryError
from ullage.runtime.weights import stream


def on_meta() -> Model:
    with torch.device("meta"):
        return Model()


def others_of(model: nn.Module) -> int:
    return size_of(model) - sum(one.numel() * 4 for name, one in model.named_parameters() if "blocks" in name)


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    """Save a model in one file."""
    save_file(Model().state_dict(), tmp_path / "model.safetensors")
    return tmp_path


@pytest.fixture
def sharded(tmp_path: Path) -> Path:
    """Save it in two files with their index."""
    state = Model().state_dict()
    names = sorted(state)
    parts = {"a.safetensors": names[::2], "b.safetensors": names[1::2]}
    for file, some in parts.items():
        save_file({name: state[name] for name in some}, tmp_path / file)
    index = {"weight_map": {name: file for file, some in parts.items() for name in some}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    return tmp_path


@pytest.mark.parametrize("kind", ["whole", "sharded"])
@pytest.mark.parametrize("num_resident", [0, 2])
def test_a_checkpoint_is_streamed(kind: str, num_resident: int, request: pytest.FixtureRequest) -> None:
    path, model, x = request.getfixturevalue(kind), on_meta(), x_of()
    want = expected(Model(), x)
    budget = others_of(model) + (2 + num_resident) * BLOCK_BYTES
    with stream(model, budget, checkpoint=path, device=DEVICE) as run, torch.no_grad():
        assert sum(run.plan.is_resident) == num_resident
        assert torch.equal(model(x), want)
    assert torch.equal(expected(model, x), want)


def test_a_file_by_its_name_and_another_type(tmp_path: Path) -> None:
    save_file({name: one.double() for name, one in Model().state_dict().items()}, tmp_path / "any.safetensors")
    model, x = on_meta(), x_of()
    with stream(model, 1 << 30, checkpoint=tmp_path / "any.safetensors", device=DEVICE), torch.no_grad():
        assert torch.equal(model(x), expected(Model(), x))


def test_tied_weights_need_one_name(whole: Path) -> None:
    model = on_meta()
    model.second = model.head
    with stream(model, 1 << 30, checkpoint=whole, device=DEVICE), torch.no_grad():
        assert model.second.weight is model.head.weight
        assert torch.equal(model(x_of()), expected(Model(), x_of()))


def is_on_meta(model: nn.Module) -> bool:
    return all(one.device.type == "meta" for one in [*model.parameters(), *model.buffers()])


def test_a_checkpoint_that_does_not_fit_leaves_the_model_on_meta(whole: Path, tmp_path: Path) -> None:
    model = on_meta()
    model.extra = nn.Linear(2, 2, device="meta")
    with pytest.raises(RuntimeMemoryError, match=r"lacks 2 tensors of Model .*: extra\.weight, extra\.bias"):
        stream(model, 1 << 30, checkpoint=whole, device=DEVICE)
    assert is_on_meta(model)
    other = on_meta()
    other.head = nn.Linear(16, 5, device="meta")
    with pytest.raises(RuntimeMemoryError, match=r"head\.weight is \(5, 16\), and \(4, 16\) in the checkpoint"):
        stream(other, 1 << 30, checkpoint=whole, device=DEVICE)
    assert is_on_meta(other)
    third = on_meta()
    with pytest.raises(RuntimeMemoryError, match="too few"):
        stream(third, 10, checkpoint=whole, device=DEVICE)
    assert is_on_meta(third)


def test_files_that_cannot_be_read_say_so(tmp_path: Path) -> None:
    model = on_meta()
    with pytest.raises(RuntimeMemoryError, match="no safetensors file, nor a directory"):
        stream(model, 1 << 30, checkpoint=tmp_path, device=DEVICE)
    (tmp_path / "bad.safetensors").write_bytes(b"\x08\0\0\0\0\0\0\0notjson!")
    with pytest.raises(RuntimeMemoryError, match=r"bad\.safetensors cannot be read"):
        stream(model, 1 << 30, checkpoint=tmp_path, device=DEVICE)
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"x": "../elsewhere.safetensors"}}))
    with pytest.raises(RuntimeMemoryError, match="outside of its directory"):
        stream(model, 1 << 30, checkpoint=tmp_path, device=DEVICE)
    index.write_text("[]")
    with pytest.raises(RuntimeMemoryError, match="no index"):
        stream(model, 1 << 30, checkpoint=tmp_path, device=DEVICE)
    assert is_on_meta(model)


def test_buffers_on_a_real_device_are_read_too(tmp_path: Path) -> None:
    saved = Model()
    for block in saved.blocks:
        block.shift.fill_(3.0)
    save_file(saved.state_dict(), tmp_path / "model.safetensors")
    model = Model()
    for module in model.modules():
        for key, one in list(module._parameters.items()):
            if one is not None:
                module._parameters[key] = nn.Parameter(one.to("meta"), requires_grad=False)
    with stream(model, 1 << 30, checkpoint=tmp_path, device=DEVICE), torch.no_grad():
        assert torch.equal(model(x_of()), expected(saved, x_of()))
