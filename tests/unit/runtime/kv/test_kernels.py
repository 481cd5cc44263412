"""Kernels write what the reference writes, and attend as float64 does, over odd shapes and pages in random order.

On a CPU they run under Triton's interpreter.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch

from tests.unit.runtime.kv.conftest import DEVICE
from ullage.errors import DeviceError
from ullage.runtime.kv import DecodeConfig, KVFormat, PageLayout, append_kv, decode_attention, tune_decode
from ullage.runtime.kv.reference import append_reference, decode_reference, read_reference

pytestmark = [
    # NumPy, under the interpreter, speaks up where infinities are meant.
    pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:divide by zero encountered:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:All-NaN slice:RuntimeWarning"),
]

POISON = 0xFF  # NaN as float16, bfloat16 and e4m3; the largest code


@dataclass(frozen=True, kw_only=True)
class Case:
    form: KVFormat
    head_dim: int = 128
    kv_heads: int = 2
    queries: int = 4
    lengths: tuple[int, ...] = (70, 1, 64)
    page_tokens: int = 64
    window: int = 0
    softcap: float = 0.0
    splits: int | None = 2


@dataclass
class Filled:
    case: Case
    layout: PageLayout
    pages: torch.Tensor
    table: torch.Tensor
    lengths: torch.Tensor
    rows: torch.Tensor
    positions: torch.Tensor
    k_TKD: torch.Tensor
    v_TKD: torch.Tensor
    q_BHD: torch.Tensor

    def decode(self) -> torch.Tensor:
        case = self.case
        return decode_attention(
            self.q_BHD,
            self.pages,
            self.layout,
            self.table,
            self.lengths,
            window=case.window,
            softcap=case.softcap,
            config=DecodeConfig(num_warps=2, num_stages=2, num_splits=case.splits) if case.splits else None,
        )


def filled(case: Case, *, with_reference: bool = False) -> Filled:
    """Fill pages in random order; whatever no token lies in is poison."""
    generator = torch.Generator().manual_seed(1)
    layout = PageLayout(
        format=case.form, num_kv_heads=case.kv_heads, head_dim=case.head_dim, page_tokens=case.page_tokens
    )
    needed = [-(-length // case.page_tokens) for length in case.lengths]
    order = iter(torch.randperm(sum(needed) + 3, generator=generator).tolist())
    table = torch.full((len(case.lengths), max(*needed, 1)), -1, dtype=torch.int32)
    for row, count in enumerate(needed):
        table[row, :count] = torch.tensor([next(order) for _ in range(count)])
    num_tokens = sum(case.lengths)

    def random(*size: int) -> torch.Tensor:
        return torch.randn(*size, generator=generator).to(DEVICE, torch.bfloat16)

    one = Filled(
        case=case,
        layout=layout,
        pages=torch.full((sum(needed) + 3, layout.page_bytes), POISON, dtype=torch.uint8, device=DEVICE),
        table=table.to(DEVICE),
        lengths=torch.tensor(case.lengths, dtype=torch.int32, device=DEVICE),
        rows=torch.tensor(
            [row for row, length in enumerate(case.lengths) for _ in range(length)], dtype=torch.int32
        ).to(DEVICE),
        positions=torch.tensor([at for length in case.lengths for at in range(length)], dtype=torch.int32).to(DEVICE),
        k_TKD=random(num_tokens, case.kv_heads, case.head_dim),
        v_TKD=random(num_tokens, case.kv_heads, case.head_dim),
        q_BHD=random(len(case.lengths), case.kv_heads * case.queries, case.head_dim),
    )
    write = append_reference if with_reference else append_kv
    write(one.k_TKD, one.v_TKD, one.pages, layout, one.table, one.rows, one.positions)
    return one


def attention_float64(one: Filled) -> torch.Tensor:
    """Attend in float64 over what the pages hold, token by token."""
    case, out = one.case, torch.zeros(one.q_BHD.shape, dtype=torch.float64)
    for row, length in enumerate(case.lengths):
        if not length:
            continue
        k_TKD, v_TKD = (x.double().cpu() for x in read_reference(one.pages, one.layout, one.table[row], 0, length))
        for head in range(case.kv_heads * case.queries):
            scores_T = k_TKD[:, head // case.queries] @ one.q_BHD[row, head].double().cpu() / case.head_dim**0.5
            if case.softcap:
                scores_T = case.softcap * torch.tanh(scores_T / case.softcap)
            if case.window:
                scores_T[: max(length - case.window, 0)] = -torch.inf
            out[row, head] = scores_T.softmax(0) @ v_TKD[:, head // case.queries]
    return out


def named(kind: str, **changes: object) -> KVFormat:
    return KVFormat(**{"kind": kind, **changes})  # type: ignore[arg-type]


CASES = [
    *(Case(form=KVFormat.named(kind)) for kind in ("bf16", "fp16", "fp8", "int8", "int4")),
    Case(form=named("int4", group_size=128), lengths=(130, 0)),
    Case(
        form=named("int4", rotates_keys=True, rotates_values=True),
        head_dim=64,
        queries=8,
        page_tokens=16,
        lengths=(33, 7),
    ),
    Case(
        form=named("int4", rotates_values=True),
        head_dim=80,
        queries=3,
        kv_heads=1,
        page_tokens=32,
        lengths=(50,),
        splits=1,
    ),
    Case(form=named("int8", rotates_keys=True), head_dim=96, queries=1, lengths=(100, 40), page_tokens=16, splits=4),
    Case(form=named("fp8", group_size=128), head_dim=192, queries=5, kv_heads=1, lengths=(65,), page_tokens=32),
    Case(form=named("bf16", rotates_keys=True), head_dim=256, queries=2, kv_heads=1, lengths=(70,)),
    Case(form=named("int4"), head_dim=256, queries=16, kv_heads=1, lengths=(9,), splits=None),
    Case(form=named("int4"), window=20, lengths=(70, 3, 64, 84)),
    Case(form=named("bf16"), window=64, page_tokens=32, lengths=(129, 64), splits=3),
    Case(form=named("fp16"), window=1, lengths=(65, 64)),
    Case(form=named("int8"), softcap=2.0, lengths=(90,)),
    Case(form=named("fp8"), softcap=30.0, window=33, page_tokens=16, lengths=(50, 34), splits=8),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.form.kind}-{case.head_dim}-{case.lengths}")
def test_decoding_attends_as_float64_does_and_reads_no_poison(case: Case) -> None:
    one = filled(case)
    out = one.decode().double().cpu()
    # bfloat16 keeps 8 bits of an output, and so do weights of 16-bit values; both are of the size of what is summed.
    torch.testing.assert_close(out, attention_float64(one), rtol=2**-7, atol=2**-7)


@pytest.mark.parametrize("kind", ["fp16", "fp8", "int8", "int4"])
@pytest.mark.parametrize("head_dim", [64, 80, 128])
def test_appending_writes_what_the_reference_writes(kind: str, head_dim: int) -> None:
    case = Case(form=KVFormat.named(kind), head_dim=head_dim, lengths=(20, 3), page_tokens=16)
    one, reference = filled(case), filled(case, with_reference=True)
    for row, length in enumerate(case.lengths):
        both = [read_reference(it.pages, it.layout, it.table[row], 0, length) for it in (one, reference)]
        for mine, theirs in zip(*both, strict=True):
            # Sums in another order can round to the next code, seldom.
            step = theirs.abs().amax() * {"fp16": 2**-10, "fp8": 2**-3, "int8": 2 / 255, "int4": 2 / 15}[kind]
            assert bool(((mine - theirs).abs() <= step * 1.01).all())
            assert ((mine - theirs).abs() > step * 0.01).float().mean() < 0.02


def test_a_token_whose_place_has_no_page_is_left_out() -> None:
    case = Case(form=KVFormat.named("int4"), lengths=(5,), page_tokens=16)
    one = filled(case)
    one.table[0, 0] = -1
    before = one.pages.clone()
    append_kv(one.k_TKD, one.v_TKD, one.pages, one.layout, one.table, one.rows, one.positions)
    assert torch.equal(one.pages, before)


@pytest.mark.parametrize("kind", ["bf16", "int4"])
def test_the_reference_path_attends_as_float64_does(kind: str) -> None:
    one = filled(Case(form=KVFormat.named(kind), lengths=(33, 0), window=20), with_reference=True)
    out = decode_reference(
        one.q_BHD, one.pages, one.layout, one.table, one.lengths, scale=128**-0.5, softcap=0.0, window=20
    )
    torch.testing.assert_close(out.double().cpu(), attention_float64(one), rtol=2**-7, atol=2**-7)


@pytest.mark.skipif(DEVICE == "cuda", reason="on a GPU it tunes")
def test_tuning_says_that_it_needs_a_gpu() -> None:
    one = filled(Case(form=KVFormat.named("int4"), lengths=(5,)))
    with pytest.raises(DeviceError, match="tuning measures on a GPU"):
        tune_decode(one.q_BHD, one.pages, one.layout, one.table, one.lengths)


def test_shapes_that_do_not_fit_are_refused() -> None:
    one = filled(Case(form=KVFormat.named("int4"), lengths=(5,)))
    with pytest.raises(ValueError, match="do not fit 2 heads of 128"):
        append_kv(one.k_TKD[:, :1], one.v_TKD, one.pages, one.layout, one.table, one.rows, one.positions)
    with pytest.raises(ValueError, match="do not fit 2 KV heads of 128"):
        decode_attention(one.q_BHD[:, :3], one.pages, one.layout, one.table, one.lengths)
