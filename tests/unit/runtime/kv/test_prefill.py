"""Many new tokens attend over pages and over each other as float64 does, and read no page that they do not see.

On a CPU the kernel runs under Triton's interpreter.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
import torch

from tests.unit.runtime.kv.conftest import DEVICE
from ullage.runtime.kv import KVFormat, PageLayout, append_kv
from ullage.runtime.kv.prefill import PrefillConfig, prefill_attention
from ullage.runtime.kv.reference import prefill_reference, read_reference

pytestmark = [
    # NumPy, under the interpreter, speaks up where infinities are meant.
    pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:divide by zero encountered:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:All-NaN slice:RuntimeWarning"),
]

POISON = 0xFF  # NaN as float16, bfloat16 and e4m3, and as a scale


@dataclass(frozen=True, kw_only=True)
class Case:
    """New tokens of sequences, and how many tokens each had before."""

    form: KVFormat
    new: tuple[int, ...] = (40, 0, 5)
    past: tuple[int, ...] = (70, 3, 64)
    head_dim: int = 64
    kv_heads: int = 1
    queries: int = 4
    page_tokens: int = 64
    window: int = 0
    softcap: float = 0.0
    dtype: torch.dtype = torch.bfloat16
    rows: int = 64
    splits: int = 1


@dataclass
class Filled:
    case: Case
    layout: PageLayout
    pages: torch.Tensor
    table: torch.Tensor
    starts: torch.Tensor
    past: torch.Tensor
    q_THD: torch.Tensor
    k_TKD: torch.Tensor
    v_TKD: torch.Tensor

    def attend(self) -> torch.Tensor:
        case = self.case
        return prefill_attention(
            *(self.q_THD, self.k_TKD, self.v_TKD, self.pages, self.layout, self.table, self.starts, self.past),
            window=case.window,
            softcap=case.softcap,
            config=PrefillConfig(block_rows=case.rows, num_warps=4, num_stages=2, num_splits=case.splits),
        )


def filled(case: Case) -> Filled:
    """Fill pages in random order with the history; whatever no token sees is poison, also before a window."""
    generator = torch.Generator().manual_seed(1)
    layout = PageLayout(
        format=case.form, num_kv_heads=case.kv_heads, head_dim=case.head_dim, page_tokens=case.page_tokens
    )
    needed = [-(-past // case.page_tokens) for past in case.past]
    order = iter(torch.randperm(sum(needed) + 3, generator=generator).tolist())
    table = torch.full((len(case.past), max(*needed, 1) + 1), -1, dtype=torch.int32)
    for row, count in enumerate(needed):
        table[row, :count] = torch.tensor([next(order) for _ in range(count)])
    poisoned = next(order)

    def random(num_tokens: int, num_heads: int) -> torch.Tensor:
        return torch.randn(num_tokens, num_heads, case.head_dim, generator=generator).to(DEVICE, case.dtype)

    num_new, num_past = sum(case.new), sum(case.past)
    one = Filled(
        case=case,
        layout=layout,
        pages=torch.full((sum(needed) + 3, layout.page_bytes), POISON, dtype=torch.uint8, device=DEVICE),
        table=table.to(DEVICE),
        starts=torch.tensor([0, *case.new], dtype=torch.int32, device=DEVICE).cumsum(0, dtype=torch.int32),
        past=torch.tensor(case.past, dtype=torch.int32, device=DEVICE),
        q_THD=random(num_new, case.kv_heads * case.queries),
        k_TKD=random(num_new, case.kv_heads),
        v_TKD=random(num_new, case.kv_heads),
    )
    rows = [row for row, past in enumerate(case.past) for _ in range(past)]
    positions = [at for past in case.past for at in range(past)]
    places = (torch.tensor(numbers, dtype=torch.int32, device=DEVICE) for numbers in (rows, positions))
    k_PKD, v_PKD = random(num_past, case.kv_heads), random(num_past, case.kv_heads)
    if case.window:
        unseen = [at < past + 1 - case.window for past in case.past for at in range(past)]
        k_PKD[unseen] = v_PKD[unseen] = torch.nan
    append_kv(k_PKD, v_PKD, one.pages, layout, one.table, *places)
    if case.window:
        for row, past in enumerate(case.past):
            one.table[row, : max(past + 1 - case.window, 0) // case.page_tokens] = poisoned
    return one


def attention_float64(one: Filled) -> torch.Tensor:
    """Attend in float64, token by token, over what the pages hold and the new tokens as they are."""
    case, out = one.case, torch.zeros(one.q_THD.shape, dtype=torch.float64)
    starts = one.starts.tolist()
    for row, past in enumerate(case.past):
        low = min(max(past + 1 - case.window, 0), past) if case.window else 0
        history = read_reference(one.pages, one.layout, one.table[row], low, past)
        new = slice(starts[row], starts[row + 1])
        k_CKD, v_CKD = (
            torch.cat([old.double().cpu(), x[new].double().cpu()])
            for old, x in zip(history, (one.k_TKD, one.v_TKD), strict=True)
        )
        for index in range(case.new[row]):
            last = past + index + 1 - low
            first = max(last - case.window, 0) if case.window else 0
            q_KGD = one.q_THD[starts[row] + index].double().cpu().unflatten(0, (case.kv_heads, case.queries))
            scores = torch.einsum("kgd,ckd->kgc", q_KGD, k_CKD[first:last]) / case.head_dim**0.5
            if case.softcap:
                scores = case.softcap * torch.tanh(scores / case.softcap)
            out[starts[row] + index] = torch.einsum("kgc,ckd->kgd", scores.softmax(-1), v_CKD[first:last]).flatten(0, 1)
    return out


def assert_close(out: torch.Tensor, wanted: torch.Tensor) -> None:
    """Allow what bfloat16's 8 bits lose of an output and of weights; both are of the size of what is summed."""
    torch.testing.assert_close(out.double().cpu(), wanted, rtol=2**-7, atol=2**-7)


def form(kind: str, **changes: object) -> KVFormat:
    return replace(KVFormat.named(kind), **changes)  # type: ignore[arg-type]


CASES = [
    *(Case(form=form(kind), head_dim=128) for kind in ("bf16", "fp16", "fp8", "int8", "int4")),
    *(Case(form=form(kind), splits=3, rows=16, new=(5, 1), past=(200, 33)) for kind in ("bf16", "fp8", "int8", "int4")),
    Case(form=form("int4", rotates_values=True), kv_heads=2, queries=3, page_tokens=16, splits=2),
    Case(form=form("fp8", rotates_values=True, rotates_keys=True), head_dim=80, page_tokens=32, rows=128),
    Case(form=form("bf16", rotates_values=True, rotates_keys=True), head_dim=96, queries=1, splits=4),
    Case(form=form("int8", rotates_values=True), head_dim=192, queries=5, rows=32, new=(9, 2), past=(17, 0)),
    Case(form=form("int4", group_size=128), head_dim=128, queries=16, new=(9,), past=(65,)),
    Case(form=form("int4"), head_dim=256, queries=8, new=(70,), past=(10,), rows=128),
    Case(form=form("fp8", group_size=32), head_dim=80, queries=2, new=(0, 33), past=(5, 31), page_tokens=32),
    Case(form=form("int8", group_size=32), head_dim=96, kv_heads=2, queries=1, new=(66,), past=(1,), page_tokens=16),
    Case(form=form("bf16"), new=(150,), past=(0,), queries=1, rows=128),
    Case(form=form("int4"), new=(150, 3), past=(0, 0), queries=2, splits=3),
    Case(form=form("int4"), window=20, new=(70, 4), past=(130, 8), page_tokens=16),
    Case(form=form("bf16"), window=100, new=(40, 1), past=(200, 99), page_tokens=32, splits=3),
    Case(form=form("int8"), window=1, new=(70,), past=(64,), rows=128),
    Case(form=form("fp8"), window=64, new=(150,), past=(65,), queries=1, rows=16, softcap=3.0),
    Case(form=form("int8"), softcap=2.0, dtype=torch.float16, splits=2),
    Case(form=form("fp16"), softcap=30.0, dtype=torch.float32, head_dim=80, page_tokens=16),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.form.kind}-{case.head_dim}-{case.new}-{case.past}")
def test_new_tokens_attend_as_float64_does_and_read_no_poison(case: Case) -> None:
    one = filled(case)
    assert_close(one.attend(), attention_float64(one))


@pytest.mark.parametrize("kind", ["bf16", "int4"])
@pytest.mark.parametrize("window", [0, 20])
def test_the_reference_path_attends_as_float64_does(kind: str, window: int) -> None:
    one = filled(Case(form=form(kind), new=(300, 0, 5), past=(33, 9, 0), window=window, softcap=5.0))
    tensors = (one.q_THD, one.k_TKD, one.v_TKD, one.pages, one.layout, one.table, one.starts, one.past)
    out = prefill_reference(*tensors, scale=64**-0.5, softcap=5.0, window=window)
    assert_close(out, attention_float64(one))


def test_pages_that_hold_the_new_tokens_too_are_read_up_to_the_past_alone() -> None:
    one = filled(Case(form=form("int4"), new=(30,), past=(40,), page_tokens=16))
    one.table[0, 3] = next(page for page in range(len(one.pages)) if page not in one.table[0].tolist())
    wanted = attention_float64(one)
    positions = torch.arange(40, 64, dtype=torch.int32, device=DEVICE)
    others = torch.full((24, 1, 64), 50.0, dtype=torch.bfloat16, device=DEVICE)
    append_kv(others, others, one.pages, one.layout, one.table, torch.zeros_like(positions), positions)
    assert_close(one.attend(), wanted)


# Of 149 tokens in pages of 16 the last page holds 5, from the 144th on. 160 new ones are ten programs of 16 tokens each.
@pytest.mark.skipif(DEVICE == "cuda", reason="steps are counted where they are interpreted")
@pytest.mark.parametrize(
    ("past", "new", "window", "splits", "num_steps"),
    [
        (149, 4, 0, 3, 10 + 1),
        (149, 4, 20, 1, 2 + 1),
        (149, 4, 20, 3, 2 + 1),
        (149, 4, 6, 1, 1 + 1),
        (149, 4, 5, 3, 1 + 1),
        (149, 4, 1, 1, 0 + 1),
        (0, 160, 30, 1, 4 * 1 + 2 * 2 + 2 * 1 + 2 * 2),
    ],
)
def test_a_window_skips_what_no_row_sees(
    monkeypatch: pytest.MonkeyPatch, past: int, new: int, window: int, splits: int, num_steps: int
) -> None:
    from ullage.runtime.kv import prefill_kernel

    steps = []
    step = prefill_kernel._softmax_step
    monkeypatch.setattr(prefill_kernel, "_softmax_step", lambda *args: steps.append(1) or step(*args))
    filled(Case(form=form("fp8"), new=(new,), past=(past,), page_tokens=16, window=window, splits=splits)).attend()
    assert len(steps) == num_steps


def test_queries_keys_and_values_may_be_slices_of_one_tensor() -> None:
    one = filled(Case(form=form("fp8"), kv_heads=2, queries=2, new=(20, 3), past=(30, 5)))
    wanted = attention_float64(one)
    whole = torch.cat([one.q_THD, one.k_TKD, one.v_TKD], 1)
    one.q_THD, one.k_TKD, one.v_TKD = whole[:, :4], whole[:, 4:6], whole[:, 6:]
    assert_close(one.attend(), wanted)


def test_of_many_sequences_each_token_finds_its_own() -> None:
    new = tuple(3 if row % 87 == 86 else 0 for row in range(262))
    one = filled(Case(form=form("int8"), new=new, past=tuple(row % 2 for row in range(262)), rows=16, queries=8))
    assert_close(one.attend(), attention_float64(one))


def test_a_default_is_found_for_any_shape() -> None:
    one = filled(Case(form=form("int4"), new=(6, 20), past=(400, 3)))
    tensors = (one.q_THD, one.k_TKD, one.v_TKD, one.pages, one.layout, one.table, one.starts, one.past)
    assert_close(prefill_attention(*tensors, max_new=20), attention_float64(one))


def test_no_new_tokens_give_nothing() -> None:
    one = filled(Case(form=form("int4"), new=(0, 0), past=(3, 4)))
    assert one.attend().shape == (0, 4, 64)


def test_what_does_not_fit_is_refused() -> None:
    one = filled(Case(form=form("int4"), new=(5,), past=(3,), kv_heads=2))
    rest = (one.pages, one.layout, one.table, one.starts, one.past)
    with pytest.raises(ValueError, match="do not fit 2 KV heads of 64"):
        prefill_attention(one.q_THD[:, :3], one.k_TKD, one.v_TKD, *rest)
    with pytest.raises(ValueError, match="use one type"):
        prefill_attention(one.q_THD, one.k_TKD, one.v_TKD.half(), *rest)
    with pytest.raises(ValueError, match="2 starts, 2 histories and a table of 1"):
        prefill_attention(one.q_THD, one.k_TKD, one.v_TKD, *rest[:-1], one.past.repeat(2))
    with pytest.raises(ValueError, match="above 0"):
        prefill_attention(one.q_THD, one.k_TKD, one.v_TKD, *rest, scale=-1.0)
    with pytest.raises(ValueError, match="block_rows is 48"):
        PrefillConfig(block_rows=48, num_warps=4, num_stages=2, num_splits=1)
    with pytest.raises(ValueError, match="num_splits is 0"):
        PrefillConfig(block_rows=64, num_warps=4, num_stages=2, num_splits=0)
