"""Pools that are filled before the first step, so that the step finds its memory there."""

from ullage.runtime.pools.driver_pool import prewarm_driver_pool
from ullage.runtime.pools.needs import PoolNeeds, SegmentNeed, learn_needs
from ullage.runtime.pools.warming import Prewarmed, StepAllocations, allocations_of, prewarm

__all__ = [
    "PoolNeeds",
    "Prewarmed",
    "SegmentNeed",
    "StepAllocations",
    "allocations_of",
    "learn_needs",
    "prewarm",
    "prewarm_driver_pool",
]
