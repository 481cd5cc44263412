"""Where the kernels' tests run: on a GPU, or on a CPU under Triton's interpreter (`tests/conftest.py` turns it on)."""

from __future__ import annotations

import pytest

from tests.conftest import num_gpus
from ullage.runtime.kv import attention

DEVICE = "cuda" if num_gpus() else "cpu"


@pytest.fixture
def plain_pytorch(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run without kernels on a CPU, where Triton interprets them slowly; a test marked `with_kernels` runs them."""
    if request.node.get_closest_marker("with_kernels") is None:
        monkeypatch.setattr(attention, "uses_kernels", lambda pages: pages.device.type == "cuda")
