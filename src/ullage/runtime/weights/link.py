"""How fast the link between host and GPU copies, measured where the weights lie."""

from __future__ import annotations

import statistics
import time

import torch

_NUM_TIMED = 5


def measure_link(source: torch.Tensor, slot: torch.Tensor) -> float:
    """Measure copies to a buffer.

    Args:
        source: What is copied, uint8 on the host; pinned where there is a GPU.
        slot: Where to, uint8, as long or longer.

    Returns:
        Bytes a second, the median of five copies.

    Cost: waits for the GPU; the time of six copies.
    """
    times = []
    for _ in range(_NUM_TIMED + 1):
        _wait(slot)
        start = time.perf_counter()
        slot[: len(source)].copy_(source, non_blocking=True)
        _wait(slot)
        times.append(time.perf_counter() - start)
    return len(source) / statistics.median(times[1:])


def _wait(tensor: torch.Tensor) -> None:
    if tensor.device.type == "cuda":
        torch.cuda.synchronize(tensor.device)
