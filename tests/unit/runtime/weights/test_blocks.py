"""The trunk is found where it is, and what cannot be streamed stays."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from ullage.errors import RuntimeMemoryError
from ullage.runtime.weights.blocks import find_blocks


def layers(count: int, width: int = 16) -> list[nn.Linear]:
    return [nn.Linear(width, width).requires_grad_(False) for _ in range(count)]


def names(model: nn.Module, trunk: str | None = None) -> list[str]:
    return [block.name for block in find_blocks(model, trunk)]


class Holder(nn.Module):
    def __init__(self, **parts: nn.Module) -> None:
        super().__init__()
        for name, part in parts.items():
            setattr(self, name, part)


def test_the_list_with_the_most_bytes_is_the_trunk() -> None:
    model = Holder(small=nn.ModuleList(layers(9, 4)), large=nn.ModuleList(layers(3)), head=layers(1, 64)[0])
    assert names(model) == ["large.0", "large.1", "large.2"]
    assert names(model, "small")[0] == "small.0"


def test_a_sequential_in_a_sequential_is_the_trunk_where_most_bytes_are() -> None:
    model = nn.Sequential(layers(1)[0], nn.Sequential(*layers(6)), layers(1)[0])
    assert names(model) == [f"1.{number}" for number in range(6)]
    assert names(nn.Sequential(*layers(3))) == ["0", "1", "2"]


def test_lists_in_a_list_are_not_blocks_but_what_they_hold_is() -> None:
    model = Holder(stages=nn.ModuleList([nn.ModuleList(layers(2)), nn.ModuleList(layers(2))]))
    assert names(model) == ["stages.0.0", "stages.0.1", "stages.1.0", "stages.1.1"]


def test_what_cannot_be_streamed_is_left_out() -> None:
    one, two, three = layers(3)
    two.weight.requires_grad_(True)
    three.weight = nn.Parameter(torch.randn(16, 32)[:, ::2], requires_grad=False)  # has gaps
    model = Holder(trunk=nn.ModuleList([one, two, three]), view=nn.Module())
    model.view.register_buffer("bias", one.bias.data[:4])  # type: ignore[union-attr]
    found = [[weight.name for weight in block.weights] for block in find_blocks(model)]
    assert found == [["weight"], ["bias"], ["bias"]]


def test_a_transposed_weight_is_dense() -> None:
    block = layers(2)
    block[0].weight = nn.Parameter(torch.randn(16, 16).T, requires_grad=False)
    assert len(find_blocks(nn.Sequential(*block))[0].weights) == 2


class Wrapped(torch.Tensor):
    """A tensor that is more than its memory."""


def test_tensors_of_another_class_stay() -> None:
    block = layers(2)
    block[0].weight = nn.Parameter(torch.randn(16, 16).as_subclass(Wrapped), requires_grad=False)
    assert [weight.name for weight in find_blocks(nn.Sequential(*block))[0].weights] == ["bias"]


def test_a_list_that_is_not_there_is_named_with_those_that_are() -> None:
    with pytest.raises(RuntimeMemoryError, match=r"no blocks in 'layers'; its lists of modules: a, b"):
        find_blocks(Holder(a=nn.ModuleList(layers(2)), b=nn.ModuleList(layers(2))), "layers")
