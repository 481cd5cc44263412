"""Weights that cross the link in 8 bits are what rounding made of them, wherever they are read."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save_file
from torch import nn

from tests.unit.runtime.weights.conftest import DEVICE
from tests.unit.runtime.weights.test_stream import BLOCK_BYTES, Model, expected, size_of, train, x_of
from ullage.errors import RuntimeMemoryError
from ullage.runtime.weights import StreamedModel, stream
from ullage.runtime.weights.blocks import find_blocks
from ullage.runtime.weights.coding import decode, encode, is_coded
from ullage.runtime.weights.homes import stored_offsets

CODED_BYTES = 2 * (512 + 512) + 2 * 512  # two matrices of 16 x 16 codes with their scales, and two vectors as they are
STORED = pytest.mark.parametrize("storage", ["int8", "fp8"])
ERROR = {"int8": 0.5 / 127, "fp8": 0.0625 / 1.9}  # of a row's largest value; of a value


def rounded(model: Any, storage: str) -> Any:
    """Return a model whose blocks' matrices went through 8 bits."""
    other = copy.deepcopy(model)
    for name, one in other.named_parameters():
        if "blocks" in name and "lora" not in name and is_coded(one):
            codes, scales = torch.empty(one.shape, dtype=torch.uint8), torch.empty(len(one))
            encode(one, codes, scales, storage)  # type: ignore[arg-type]
            decode(codes, scales, one.data, storage)  # type: ignore[arg-type]
    return other


def streamed(model: Any, storage: str, num_resident: int = 1) -> StreamedModel:
    """Stream a model with room for two buffers, what blocks are copied to, and some blocks."""
    others = size_of(model) - sum(
        one.numel() * 4 for name, one in model.named_parameters() if "blocks" in name and "lora" not in name
    )
    budget = others + (2 + num_resident) * BLOCK_BYTES + 2 * CODED_BYTES
    return stream(model, budget, device=DEVICE, storage=storage)  # type: ignore[arg-type]


@STORED
@given(st.integers(0, 1 << 30), st.sampled_from([torch.float32, torch.bfloat16, torch.float16]), st.floats(-6, 4))
def test_a_matrix_comes_back_within_half_a_step(storage: Any, seed: int, dtype: torch.dtype, magnitude: float) -> None:
    weight = torch.randn(5, 7, generator=torch.Generator().manual_seed(seed)) * 10.0**magnitude
    weight = weight.clamp(-60000, 60000).to(dtype)
    weight[2] = 0
    codes, scales, out = torch.empty(5, 7, dtype=torch.uint8), torch.empty(5), torch.empty_like(weight)
    encode(weight, codes, scales, storage)
    decode(codes, scales, out, storage)
    largest = weight.float().abs().amax(1, keepdim=True)
    own = 2.0**-8 * weight.float().abs() + (6e-5 if dtype == torch.float16 else 0.0)  # the type's rounding
    allowed = largest * ERROR["int8"] if storage == "int8" else weight.float().abs() * 0.0626 + largest * 2.0**-18
    assert ((out.float() - weight.float()).abs() <= allowed * 1.01 + own).all()


@STORED
def test_a_model_computes_with_what_rounding_left(storage: str) -> None:
    model, x = Model(), x_of()
    want = expected(rounded(model, storage), x)
    exact = expected(model, x)
    with streamed(model, storage) as run, torch.no_grad():
        assert 0 < sum(run.plan.is_resident) < 6
        assert run.pinned_bytes == run.plan.moved_bytes == 5 * CODED_BYTES
        got = model(x)
    # Blocks that stay are as they were, so what is streamed alone differs.
    assert not torch.equal(got, exact)
    assert (got - exact).norm() < 1.5 * (want - exact).norm()


@STORED
def test_every_block_streamed_is_the_rounded_model_bit_for_bit(storage: str) -> None:
    model, x = Model(), x_of()
    want = expected(rounded(model, storage), x)
    with streamed(model, storage, 0) as run, torch.no_grad():
        assert not any(run.plan.is_resident)
        assert torch.equal(model(x), want)
        saved = model.state_dict()
        assert torch.equal(
            saved["blocks.3.up.weight"].cpu(), rounded(Model(), storage).state_dict()["blocks.3.up.weight"]
        )
    assert torch.equal(expected(model, x), want)
    assert model.state_dict()["blocks.3.up.weight"].data_ptr() == model.blocks[3].up.weight.data_ptr()


@STORED
def test_adapters_learn_beside_rounded_weights(storage: str) -> None:
    base = Model(rank=2)
    with streamed(base, storage) as run:
        stays = run.plan.is_resident
        got = train(base)
    half = Model(rank=2)
    plain = rounded(half, storage)
    for index, keeps in enumerate(stays):
        if keeps:
            plain.blocks[index].load_state_dict(half.blocks[index].state_dict())
    assert got == train(plain.to(DEVICE))


@STORED
def test_writing_to_a_weight_that_is_away_is_an_error_and_giving_it_memory_is_not(storage: str) -> None:
    model, x = Model(), x_of()
    with streamed(model, storage) as run, torch.no_grad():
        index = run.plan.streamed[0]
        weight = model.blocks[index].up.weight
        before = model(x)
        with pytest.raises(RuntimeError, match="single memory location"):
            weight.mul_(2)
        weight.data = torch.zeros(16, 16)
        after = model(x)
        assert not torch.equal(before, after)
        assert not model.state_dict()[f"blocks.{index}.up.weight"].any()
    assert not model.blocks[index].up.weight.any()


def test_a_checkpoint_is_stored_in_8_bits(tmp_path: Path) -> None:
    save_file(Model().state_dict(), tmp_path / "model.safetensors")
    with torch.device("meta"):
        model = Model()
    given_whole = Model()
    with (
        streamed(given_whole, "int8") as whole,
        stream(model, whole.plan.gpu_bytes, device=DEVICE, storage="int8", checkpoint=tmp_path),
        torch.no_grad(),
    ):
        assert torch.equal(model(x_of()), given_whole(x_of()))


def test_there_are_two_kinds_of_storage() -> None:
    with pytest.raises(ValueError, match="no storage is called 'int2': use one of int8, fp8"):
        stream(Model(), 1 << 30, device=DEVICE, storage="int2")  # type: ignore[arg-type]
    with pytest.raises(RuntimeMemoryError, match=r"give gpu_bytes=\d+ or more"):
        stream(Model(), 10, device=DEVICE, storage="int8")


def test_matrices_take_a_byte_a_value_and_four_a_row() -> None:
    model = nn.Sequential(*(nn.Linear(1024, 256) for _ in range(2))).bfloat16().requires_grad_(False)
    block = find_blocks(model)[0]
    assert stored_offsets(block, None)[1] == block.size_bytes == 2 * (1024 * 256 + 256)
    assert stored_offsets(block, "int8")[1] == 1024 * 256 + 4 * 256 + 2 * 256
