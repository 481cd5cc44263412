"""What all tests share: the one probe for a GPU, and what follows where there is none."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator

import pytest

CUDA_SUCCESS = 0


def num_gpus() -> int:
    """Count the GPUs that the CUDA driver offers; 0 where there is no driver. Creates no context."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 0
    count = ctypes.c_int(0)
    if driver.cuInit(0) != CUDA_SUCCESS or driver.cuDeviceGetCount(ctypes.byref(count)) != CUDA_SUCCESS:
        return 0
    return count.value


if num_gpus() == 0:
    # Triton has to be told before it is first imported that it is to interpret its kernels.
    os.environ["TRITON_INTERPRET"] = "1"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip the tests marked `gpu` where there is no GPU."""
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if marked and num_gpus() == 0:
        for item in marked:
            item.add_marker(pytest.mark.skip(reason="no NVIDIA GPU"))


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """Run torch on one thread: over so few values, threads wait for each other longer than they compute."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
