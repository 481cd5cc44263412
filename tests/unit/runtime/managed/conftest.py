"""Gives tests a fake GPU, and puts it where the room asks for a real one."""

from __future__ import annotations

import pytest

from tests.unit.runtime.managed.fake_cuda import FakeCalls
from ullage.runtime.managed import memory, model


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> FakeCalls:
    """Return the calls of the fake GPU, which all that is made in the test is made on."""
    fake = FakeCalls()
    for module in (memory, model):
        monkeypatch.setattr(module, "calls_for", lambda device: fake)
    return fake
