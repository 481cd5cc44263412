"""Where models are streamed: to a GPU, or on a CPU, where all is the same but that copies do not overlap."""

from __future__ import annotations

from tests.conftest import num_gpus

DEVICE = "cuda" if num_gpus() else "cpu"
