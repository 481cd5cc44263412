"""Gives tests a fake allocator, and puts it where the room asks for PyTorch's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.unit.runtime.pools.fake_allocator import FakeAllocator
from ullage.runtime.pools import needs, warming


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> Callable[..., FakeAllocator]:
    """Return what makes an allocator that the room takes for PyTorch's."""

    def make(**settings: Any) -> FakeAllocator:
        fake = FakeAllocator(**settings)
        for module in (needs, warming):
            monkeypatch.setattr(module, "allocator_of", lambda device: fake)
        return fake

    return make
