"""Managed memory that several GPUs use: views of it, who is told of them, and who is waited for."""

from __future__ import annotations

import ctypes
import gc
from typing import Any
from weakref import ref

import pytest
import torch
from torch import nn

from tests.conftest import num_gpus
from tests.unit.runtime.managed.fake_cuda import FakeCalls
from ullage.errors import DeviceError, RuntimeMemoryError
from ullage.runtime.managed import gpu_view, host_view, manage, managed_bytes, managed_tensor, memory, model, prefetch
from ullage.runtime.managed.dlpack import bytes_over
from ullage.runtime.managed.roles import HOST, Advice


class Owner:
    """What keeps memory."""


@pytest.fixture
def both(monkeypatch: pytest.MonkeyPatch) -> dict[str, FakeCalls]:
    """Two GPUs that are fakes; a third is not there."""
    fakes = {"cuda": FakeCalls(), "cuda:1": FakeCalls()}
    fakes["cuda:0"] = fakes["cuda"]

    def calls_for(device: Any) -> FakeCalls:
        if str(device) not in fakes:
            raise DeviceError(f"there is no {device}")
        return fakes[str(device)]

    for module in (memory, model):
        monkeypatch.setattr(module, "calls_for", calls_for)
    return fakes


def test_memory_becomes_a_tensor_that_keeps_its_owner() -> None:
    data = (ctypes.c_ubyte * 100)()
    owner = Owner()
    kept = ref(owner)
    whole = bytes_over(ctypes.addressof(data), 100, torch.device("cpu"), owner)
    part = whole[10:20].view(torch.int16)
    del owner, whole
    gc.collect()
    part.fill_(0x0201)
    assert bytes(data)[9:21] == bytes([0, *([1, 2] * 5), 0])
    assert kept() is not None
    del part
    gc.collect()
    assert kept() is None


def test_a_view_of_another_gpu_shares_the_memory_which_waits_for_both(both: dict[str, FakeCalls]) -> None:
    data = managed_tensor((3, 5), torch.float32)
    other = gpu_view(data[1:, 2:], "cuda:1")
    data.copy_(torch.arange(15.0).view(3, 5))
    assert other.tolist() == [[7, 8, 9], [12, 13, 14]]
    del data
    gc.collect()
    assert managed_bytes() > 0
    del other
    gc.collect()
    assert managed_bytes() == 0
    assert both["cuda:1"].log == ["waited"]
    assert both["cuda"].sizes == {}


def test_only_managed_memory_has_views(both: dict[str, FakeCalls]) -> None:
    with pytest.raises(RuntimeMemoryError, match="only a managed tensor can be seen by another GPU"):
        gpu_view(torch.zeros(3), "cuda:1")
    with pytest.raises(DeviceError, match="no cuda:2"):
        gpu_view(managed_tensor((3,), torch.uint8), "cuda:2")


def test_readers_that_are_not_there_are_refused(both: dict[str, FakeCalls]) -> None:
    with pytest.raises(DeviceError, match="no cuda:2"):
        managed_tensor((3,), torch.uint8, role="shared", readers=(0, 2))
    with pytest.raises(DeviceError, match="no cuda:2"):
        manage(nn.Linear(2, 2), readers=(2,))
    assert managed_bytes() == 0


def test_a_model_s_shared_weights_name_their_readers(both: dict[str, FakeCalls]) -> None:
    with manage(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)), {"0": "shared", "1": "seldom"}, readers=(0, 1)):
        assert both["cuda"].log == [
            ("advise", Advice.ACCESSED_BY, 0),
            ("advise", Advice.ACCESSED_BY, 1),
            ("advise", Advice.PREFERRED_LOCATION, HOST),
            ("advise", Advice.ACCESSED_BY, 0),
            ("advise", Advice.ACCESSED_BY, 1),
        ]


@pytest.mark.gpu
@pytest.mark.skipif(num_gpus() < 2, reason="needs two GPUs")
@pytest.mark.parametrize("role", ["moved", "lookup", "cache", "shared", "seldom"])
def test_two_gpus_and_the_host_see_what_each_wrote(role: str) -> None:
    pytest.importorskip("cuda.bindings")
    data = managed_tensor((4 << 20,), torch.float32, role=role, readers=(0, 1))
    other = gpu_view(data, "cuda:1")
    assert (data.device.index, other.device.index) == (0, 1)
    host_view(data).fill_(2)
    prefetch([data])
    data.mul_(3)
    torch.cuda.synchronize(0)
    assert other.sum().item() == 6 * len(data)
    prefetch([other])
    with torch.cuda.device(1):
        other.add_(1)
        torch.cuda.synchronize(1)
    assert data[-1].item() == 7
    assert host_view(other)[0].item() == 7
    with pytest.raises(RuntimeMemoryError, match="several GPUs"):
        prefetch([data, other])
    del data, other
    gc.collect()
    assert managed_bytes() == 0
