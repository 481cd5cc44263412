"""Managed tensors carry their role's advice, are seen by host and GPU, and are freed with the last of their views."""

from __future__ import annotations

import gc
import mmap
from collections.abc import Callable

import pytest
import torch

from tests.unit.runtime.managed.fake_cuda import STREAM, FakeCalls
from ullage.errors import DeviceError, RuntimeMemoryError
from ullage.runtime.managed import (
    ReadGuard,
    Role,
    discard,
    discard_and_prefetch,
    host_view,
    managed_bytes,
    managed_tensor,
    prefetch,
    written,
)
from ullage.runtime.managed.cuda_calls import calls_for
from ullage.runtime.managed.memory import range_of
from ullage.runtime.managed.roles import HOST, RULES, Advice

PAGE = mmap.PAGESIZE


def test_a_tensor_is_freed_with_the_last_view(calls: FakeCalls) -> None:
    whole = managed_tensor((4, 8), torch.bfloat16)
    part = whole[2:].t()
    part.fill_(3)
    del whole
    gc.collect()
    assert list(calls.sizes.values()) == [PAGE]
    assert part.sum().item() == 48
    assert managed_bytes() == PAGE
    del part
    gc.collect()
    assert calls.sizes == {}
    assert managed_bytes() == 0


def test_a_host_view_keeps_the_memory_and_shares_it(calls: FakeCalls) -> None:
    tensor = managed_tensor((3, 5), torch.float32)
    seen = host_view(tensor[1:, 2:])
    tensor.copy_(torch.arange(15.0).view(3, 5))
    assert seen.tolist() == [[7, 8, 9], [12, 13, 14]]
    del tensor
    gc.collect()
    assert len(calls.sizes) == 1
    assert seen[1, 1].item() == 13


@pytest.mark.parametrize(
    ("role", "advice"),
    [
        ("moved", []),
        ("lookup", [(Advice.READ_MOSTLY, 0)]),
        ("cache", [(Advice.PREFERRED_LOCATION, 0)]),
        ("shared", [(Advice.ACCESSED_BY, 0), (Advice.ACCESSED_BY, 2)]),
        ("seldom", [(Advice.PREFERRED_LOCATION, HOST), (Advice.ACCESSED_BY, 0), (Advice.ACCESSED_BY, 2)]),
        ("scratch", [(Advice.PREFERRED_LOCATION, 0)]),
    ],
)
def test_each_role_gives_its_advice(calls: FakeCalls, role: str, advice: list[tuple[Advice, int]]) -> None:
    managed_tensor((8,), torch.uint8, role=role, readers=(0, 2))
    assert calls.log == [("advise", *one) for one in advice]


def test_every_role_has_rules() -> None:
    assert set(RULES) == set(Role)


def test_a_tensor_of_nothing_takes_nothing(calls: FakeCalls) -> None:
    assert managed_tensor((0, 4), torch.float32).shape == (0, 4)
    assert calls.sizes == {}


def test_what_does_not_fit_leaves_nothing(calls: FakeCalls) -> None:
    calls.most_bytes = 100
    with pytest.raises(RuntimeMemoryError, match="full"):
        managed_tensor((1000,), torch.uint8)
    assert managed_bytes() == 0


def test_an_unknown_role_is_named(calls: FakeCalls) -> None:
    with pytest.raises(RuntimeMemoryError, match=r"no role 'hot'.*lookup"):
        managed_tensor((8,), torch.uint8, role="hot")


def test_moves_go_in_one_call_on_a_stream_in_order(calls: FakeCalls) -> None:
    one, other = (managed_tensor((PAGE,), torch.uint8) for _ in range(2))
    prefetch([one, other[:100]])
    prefetch([one], to="host")
    assert calls.log == [
        "ordered",
        ("prefetch", [PAGE, 100], 0, STREAM),
        "ordered",
        ("prefetch", [PAGE], HOST, STREAM),
    ]
    prefetch([])
    with pytest.raises(RuntimeMemoryError, match="no place"):
        prefetch([one], to="disk")
    with pytest.raises(RuntimeMemoryError, match="not over managed memory"):
        prefetch([one, torch.zeros(3)])
    assert len(calls.log) == 4


def test_only_a_whole_tensor_is_discarded(calls: FakeCalls) -> None:
    tensor = managed_tensor((PAGE + 100,), torch.uint8)
    for part in (tensor[:PAGE], tensor[1:], tensor[::2]):
        with pytest.raises(RuntimeMemoryError, match="whole"):
            discard([part])
    discard([tensor.view(2, -1)])
    assert calls.log == ["ordered", ("discard", [2 * PAGE], STREAM)]


def test_a_read_of_what_was_discarded_raises_until_it_is_written(calls: FakeCalls) -> None:
    tensor = managed_tensor((4, 4), torch.float32).fill_(1)
    with ReadGuard():
        discard([tensor])
        with pytest.raises(RuntimeMemoryError, match="discarded"):
            tensor.view(16).sum()
        with pytest.raises(RuntimeMemoryError, match="discarded"):
            tensor.add_(1)
        tensor.zero_()
        assert tensor.sum().item() == 0
        discard_and_prefetch([tensor])
        torch.add(torch.ones(4, 4), 1, out=tensor)
        assert tensor.sum().item() == 32
        discard([tensor])
        torch.zeros(4, 4).copy_(torch.ones(4, 4))
        with pytest.raises(RuntimeMemoryError, match="discarded"):
            torch.zeros(4, 4).copy_(tensor)
        written([tensor, torch.zeros(1)])
        tensor.sum()
    assert ("discard and prefetch", [PAGE], 0, STREAM) in calls.log


def test_what_reads_nothing_of_a_discarded_tensor_does_not_raise(calls: FakeCalls) -> None:
    tensor = managed_tensor((4, 4), torch.float32).fill_(1)
    discard([tensor])
    with ReadGuard():
        for like in (torch.empty_like, torch.zeros_like, torch.ones_like, torch.rand_like, torch.randn_like):
            like(tensor)
        torch.full_like(tensor, 3)
        torch.randint_like(tensor, 3)
        tensor.new_empty(2), tensor.new_zeros(2), tensor.new_ones(2), tensor.new_full((2,), 3)
        tensor.new_empty_strided((2,), (1,))
        with pytest.raises(RuntimeMemoryError, match="discarded"):
            tensor.clone()


@pytest.mark.parametrize(
    "fill",
    [
        lambda one: one.exponential_(),
        lambda one: one.bernoulli_(0.5),
        lambda one: one.cauchy_(),
        lambda one: one.geometric_(0.5),
        lambda one: one.log_normal_(),
        lambda one: torch._foreach_zero_([one]),
        lambda one: torch._foreach_copy_([one], [torch.ones(4, 4)]),
    ],
)
def test_what_overwrites_a_discarded_tensor_makes_it_readable(
    calls: FakeCalls, fill: Callable[[torch.Tensor], object]
) -> None:
    tensor = managed_tensor((4, 4), torch.float32).fill_(1)
    discard([tensor])
    with ReadGuard():
        fill(tensor)
        tensor.sum()
        discard([tensor])
        with pytest.raises(RuntimeMemoryError, match="discarded"):
            torch._foreach_copy_([torch.ones(4, 4)], [tensor])


def test_plain_tensors_are_not_managed(calls: FakeCalls) -> None:
    managed = managed_tensor((8,), torch.uint8)
    assert range_of(managed) is not None
    assert range_of(torch.zeros(3)) is None
    assert range_of(torch.zeros(3, device="meta")) is None
    with pytest.raises(RuntimeMemoryError, match="managed_tensor"):
        host_view(torch.zeros(3))


def test_a_device_that_is_no_gpu_is_refused() -> None:
    with pytest.raises(DeviceError, match="cpu is none"):
        calls_for("cpu")
