"""A GPU is found by its name, and one that is not there is one clear error."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from ullage.errors import DeviceError
from ullage.runtime.managed import managed_tensor
from ullage.runtime.managed.gpus import gpu_named
from ullage.runtime.pools import prewarm, prewarm_driver_pool


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)


def test_a_gpu_without_a_number_is_the_current_one(two_gpus: None) -> None:
    assert gpu_named("cuda", "it is wanted", "do without") == torch.device("cuda", 1)
    assert gpu_named(torch.device("cuda", 0), "it is wanted", "do without") == torch.device("cuda", 0)


@pytest.mark.parametrize(
    ("device", "words"),
    [
        ("cuda:2", "it is wanted, and there is no cuda:2: this process sees cuda:0 to cuda:1"),
        ("cuda:x", "'cuda:x' names no device: 'cuda', or"),
        ("gpu", "'gpu' names no device"),
        (None, "None names no device"),
        ("cpu", "it is wanted, and cpu is none; without one, do without"),
    ],
)
def test_what_is_not_there_is_said(two_gpus: None, device: Any, words: str) -> None:
    with pytest.raises(DeviceError, match=words):
        gpu_named(device, "it is wanted", "do without")


def test_one_gpu_is_named_alone(two_gpus: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(DeviceError, match="no cuda:1: this process sees cuda:0 alone"):
        gpu_named("cuda:1", "it is wanted", "do without")


def test_without_any_gpu_it_is_said_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(DeviceError, match="it is wanted, and there is no GPU; without one, do without"):
        gpu_named("cuda", "it is wanted", "do without")


def test_rooms_that_take_a_device_say_so(two_gpus: None) -> None:
    for device, words in (("cuda:7", "there is no cuda:7"), ("cuda:x", "names no device")):
        with pytest.raises(DeviceError, match=words):
            managed_tensor((4,), torch.uint8, device=device)
        with pytest.raises(DeviceError, match=words):
            prewarm(100, device=device)
        with pytest.raises(DeviceError, match=words):
            prewarm_driver_pool(100, device=device)
