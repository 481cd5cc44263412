"""Allocators other than PyTorch's own, by name, as policies of the core's model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ullage.errors import ReplayError
from ullage.replay.policy import Policy, parse_conf, split_conf

if TYPE_CHECKING:
    from ullage import _core

_MIB = 1 << 20


@dataclass(frozen=True, kw_only=True)
class GrowingPool:
    """A pool in one growing range: best fit, free neighbours merge, the driver is asked for whole granules.

    Attributes:
        name: What the policy is called.
        granule_bytes: The driver's unit.
        parts_streams: Whether a block freed on one stream serves only that stream.
        counts_requested: Whether allocated counts what was asked for, as the driver's own pool does.
        error_share: How far off a peak can be, as a share of it: the driver's own rules are not published.
        source: Where the rules come from, and how near they are.
    """

    name: str
    granule_bytes: int
    parts_streams: bool
    counts_requested: bool
    error_share: float
    source: str

    def conf(self) -> str:
        """Return the name, which is how an outcome calls the policy."""
        return self.name

    def to_core(self, cap_bytes: int | None = None) -> _core.CachingPolicy:
        """Return the core's form of the policy, under a cap on reserved memory."""
        from ullage import _core

        policy = _core.CachingPolicy()
        policy.expandable_segments = True
        policy.has_small_pool = False
        policy.parts_streams = self.parts_streams
        policy.counts_requested = self.counts_requested
        policy.large_segment_size = self.granule_bytes
        if cap_bytes is not None:
            policy.cap = cap_bytes
        return policy


MODELS = {
    model.name: model
    for model in (
        GrowingPool(
            name="cudaMallocAsync",
            granule_bytes=32 * _MIB,
            parts_streams=True,
            counts_requested=True,
            error_share=0.05,
            source="reserved in steps of 32 MiB (measured: torch 2.11, driver 580, H200), within 4 % of the measured runs",
        ),
        GrowingPool(
            name="arena",
            granule_bytes=2 * _MIB,
            parts_streams=False,
            counts_requested=False,
            error_share=0.0,
            source="a pool with best fit and coalescing, as RMM's, that the driver grows in pages of 2 MiB",
        ),
    )
}


def policy_from(conf: str) -> Policy | GrowingPool:
    """Read a configuration string, which can also ask for the driver's own pool (`backend:cudaMallocAsync`).

    Args:
        conf: A value of PYTORCH_CUDA_ALLOC_CONF.

    Raises:
        ReplayError: As `parse_conf`.
    """
    if ("backend", "cudaMallocAsync") in split_conf(conf):
        return MODELS["cudaMallocAsync"]
    return parse_conf(conf)


def model_named(name: str) -> GrowingPool:
    """Return a model by its name.

    Args:
        name: One of `MODELS`.

    Raises:
        ReplayError: There is no such model.
    """
    if name not in MODELS:
        raise ReplayError(f"no model is called {name!r} (there are: {', '.join(MODELS)})")
    return MODELS[name]
