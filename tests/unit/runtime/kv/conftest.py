"""Where the kernels' tests run: on a GPU, or on a CPU under Triton's interpreter (`tests/conftest.py` turns it on)."""

from __future__ import annotations

from tests.conftest import num_gpus

DEVICE = "cuda" if num_gpus() else "cpu"
