"""Allocators other than PyTorch's own, by name, as policies of the core's model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ullage.errors import ReplayError
from ullage.replay.policy import Policy, parse_conf, split_conf

if TYPE_CHECKING:
    from ullage import _core

_KIB = 1 << 10
_MIB = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Slabs:
    """A front for small requests: slabs cut into equal slots, four sizes of slot to each doubling from 512 bytes.

    Attributes:
        largest_bytes: Larger requests go past it.
        slab_bytes: What a slab takes from the pool; an empty slab goes back there.
    """

    largest_bytes: int
    slab_bytes: int

    def put_before(self, policy: _core.ModelPolicy) -> None:
        """Make it a policy's front."""
        policy.put_slabs_in_front(largest=self.largest_bytes, slab_bytes=self.slab_bytes)


@dataclass(frozen=True, kw_only=True)
class Bins:
    """A front of bins for powers of two. A bin takes so many slots at once, and never gives them back.

    Attributes:
        smallest_bytes: The first bin.
        largest_bytes: The last bin; larger requests go past it.
        slots_per_chunk: How many slots a bin takes from the pool when it has none left.
    """

    smallest_bytes: int
    largest_bytes: int
    slots_per_chunk: int

    def put_before(self, policy: _core.ModelPolicy) -> None:
        """Make it a policy's front."""
        policy.put_bins_in_front(
            smallest=self.smallest_bytes, largest=self.largest_bytes, slots_per_chunk=self.slots_per_chunk
        )


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
        front: What serves the smaller requests out of chunks of the pool; None: nothing does.
    """

    name: str
    granule_bytes: int
    parts_streams: bool
    counts_requested: bool
    error_share: float
    source: str
    front: Slabs | Bins | None = None

    def conf(self) -> str:
        """Return the name, which is how an outcome calls the policy."""
        return self.name

    def to_core(self, cap_bytes: int | None = None) -> _core.ModelPolicy:
        """Return the core's form of the policy, under a cap on reserved memory."""
        from ullage import _core

        policy = _core.ModelPolicy()
        policy.expandable_segments = True
        policy.has_small_pool = False
        policy.parts_streams = self.parts_streams
        policy.counts_requested = self.counts_requested
        policy.large_segment_size = self.granule_bytes
        if self.front is not None:
            self.front.put_before(policy)
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
        GrowingPool(
            name="slabs",
            granule_bytes=2 * _MIB,
            parts_streams=True,
            counts_requested=False,
            error_share=0.0,
            source="two levels: pages of 2 MiB from the driver, slabs of one page for requests up to 64 KiB",
            front=Slabs(largest_bytes=64 * _KIB, slab_bytes=2 * _MIB),
        ),
        GrowingPool(
            name="binning",
            granule_bytes=2 * _MIB,
            parts_streams=False,
            counts_requested=False,
            error_share=0.0,
            source="the arena behind bins of 256 KiB to 4 MiB, 128 slots at a time, as RMM's binning_memory_resource",
            front=Bins(smallest_bytes=256 * _KIB, largest_bytes=4 * _MIB, slots_per_chunk=128),
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
