"""Codes stand for what was rounded, to within what their format promises."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ullage.runtime.kv.formats import CODE_BITS, Kind, KVFormat, PageLayout
from ullage.runtime.kv.rounding import decode, encode, hadamard, hadamard_block, rotated


@given(
    kind=st.sampled_from(["int8", "int4"]),
    dim=st.sampled_from([16, 64, 80, 96, 128, 192, 256]),
    group=st.sampled_from([32, 64, 128]),
    spread=st.floats(1e-3, 1e3),
    offset=st.floats(-100, 100),
    seed=st.integers(0, 2**31),
)
@settings(max_examples=60, deadline=None)
def test_an_integer_is_off_by_half_a_scale_at_most(
    kind: Kind, dim: int, group: int, spread: float, offset: float, seed: int
) -> None:
    form = KVFormat(kind=kind, group_size=group)
    x_ND = torch.randn(5, dim, generator=torch.Generator().manual_seed(seed)) * spread + offset
    stored = encode(x_ND, form)
    groups = form.num_groups(dim)
    # Half a step, and what float16 loses of the zero and, over all steps, of the scale.
    levels = {"int8": 255, "int4": 15}[kind]
    limit = stored.scales.float() * (0.51 + levels * 2**-10) + stored.zeros.float().abs() * 2**-10
    error = (decode(stored, form, dim) - x_ND).abs().view(5, groups, -1).amax(-1)
    assert bool((error <= limit).all())


def test_fp8_keeps_three_bits_of_each_value_however_large() -> None:
    x_ND = torch.randn(64, 128) * torch.logspace(-3, 4, 64).unsqueeze(1)
    form = KVFormat(kind="fp8", group_size=128)
    back = decode(encode(x_ND, form), form, 128)
    largest = x_ND.abs().amax(-1, keepdim=True)
    assert bool(((back - x_ND).abs() <= x_ND.abs() * 2**-4 + largest * 2**-9).all())
    assert bool(back.isfinite().all())


@pytest.mark.parametrize("kind", ["bf16", "fp16"])
def test_sixteen_bits_stay_as_they_are(kind: Kind) -> None:
    dtype = torch.bfloat16 if kind == "bf16" else torch.float16
    x_ND = torch.randn(3, 64).to(dtype).float()
    assert torch.equal(decode(encode(x_ND, KVFormat(kind=kind)), KVFormat(kind=kind), 64), x_ND)


def test_four_bits_put_the_halves_of_a_vector_into_the_halves_of_bytes() -> None:
    x_ND = torch.arange(16.0).view(1, 16)
    stored = encode(x_ND, KVFormat(kind="int4", group_size=32))
    assert stored.scales.tolist() == [[1.0]]
    assert stored.codes.tolist() == [[low | (low + 8) << 4 for low in range(8)]]


@pytest.mark.parametrize("dim", [16, 64, 80, 96, 128, 192, 256])
def test_rotating_keeps_lengths_and_products_and_undoes_itself(dim: int) -> None:
    x_ND, y_ND = torch.randn(4, dim), torch.randn(4, dim)
    torch.testing.assert_close(rotated(x_ND) @ rotated(y_ND).T, x_ND @ y_ND.T, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(rotated(rotated(x_ND)), x_ND, rtol=1e-5, atol=1e-5)
    assert torch.equal(hadamard(dim), hadamard(dim).T)
    assert dim % hadamard_block(dim) == 0


def test_rotation_mends_what_an_outlier_channel_does_to_four_bits() -> None:
    x_ND = torch.randn(256, 128)
    x_ND[:, 5] *= 40
    form = KVFormat(kind="int4")
    plain = decode(encode(x_ND, form), form, 128) - x_ND
    turned = decode(encode(x_ND, form, rotate=True), form, 128, rotate=True) - x_ND
    others = torch.arange(128) != 5
    assert turned[:, others].square().mean() < plain[:, others].square().mean() / 3


def test_equal_values_and_zeros_survive() -> None:
    for kind in CODE_BITS:
        form = KVFormat(kind=kind)
        for value in (0.0, 1.5, -3.0):
            back = decode(encode(torch.full((2, 64), value), form), form, 64)
            assert torch.allclose(back, torch.full((2, 64), value), rtol=2**-10), (kind, value)


@pytest.mark.parametrize(
    ("kind", "group", "bytes_each"),
    [("bf16", 64, 256), ("fp8", 64, 136), ("int8", 128, 132), ("int4", 64, 72), ("int4", 128, 68)],
)
def test_a_vector_takes_what_its_format_says(kind: Kind, group: int, bytes_each: int) -> None:
    form = KVFormat(kind=kind, group_size=group)
    layout = PageLayout(format=form, num_kv_heads=8, head_dim=128, page_tokens=64)
    assert form.vector_bytes(128) == bytes_each
    assert layout.page_bytes == 2 * 8 * 64 * bytes_each


def test_figures_out_of_range_are_refused() -> None:
    with pytest.raises(ValueError, match="no format is called 'int3'"):
        KVFormat.named("int3")
    with pytest.raises(ValueError, match="group_size is 48"):
        KVFormat(group_size=48)
    with pytest.raises(ValueError, match="head_dim is 100"):
        PageLayout(format=KVFormat(), num_kv_heads=1, head_dim=100)
    with pytest.raises(ValueError, match="page_tokens is 128"):
        PageLayout(format=KVFormat(), num_kv_heads=1, head_dim=64, page_tokens=128)
