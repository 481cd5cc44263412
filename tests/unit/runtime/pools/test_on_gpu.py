"""On a GPU: a warm pool serves a step without the driver."""

from __future__ import annotations

import gc

import pytest
import torch

from ullage.errors import RuntimeMemoryError
from ullage.runtime.pools import allocations_of, learn_needs, prewarm, prewarm_driver_pool

pytestmark = pytest.mark.gpu
MIB = 1 << 20


@pytest.fixture(autouse=True)
def _empty_pool() -> None:
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()


def step() -> None:
    held = [torch.empty(size, dtype=torch.uint8, device="cuda") for size in (40 * MIB, 12 * MIB, 700_000)]
    assert len(held) == 3


def test_a_learned_step_runs_without_the_driver() -> None:
    needs = learn_needs(step)
    torch.cuda.empty_cache()
    assert allocations_of(step).num_device_allocs > 0
    torch.cuda.empty_cache()
    assert prewarm(needs).reserved_bytes == needs.size_bytes
    assert allocations_of(step).num_device_allocs == 0


def test_another_streams_pool_is_filled_on_it() -> None:
    stream = torch.cuda.Stream()
    prewarm([100 * MIB, MIB], streams=[stream])
    with torch.cuda.stream(stream):
        assert allocations_of(step).num_device_allocs == 0


def test_what_does_not_fit_leaves_nothing() -> None:
    before = torch.cuda.memory_reserved()
    with pytest.raises(RuntimeMemoryError, match="do not fit"):
        prewarm(1 << 50)
    assert torch.cuda.memory_reserved() == before


def test_a_drivers_pool_keeps_what_it_was_filled_with() -> None:
    pytest.importorskip("cuda.bindings")
    assert prewarm_driver_pool(64 * MIB).reserved_bytes >= 64 * MIB
    assert prewarm_driver_pool(64 * MIB).reserved_bytes == 0
