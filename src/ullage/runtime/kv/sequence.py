"""A sequence's place in a pool, and what a pool holds of all of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import torch

    from ullage.runtime.kv.pool import KVPool


class PoolStats(NamedTuple):
    """What a pool holds.

    Attributes:
        num_pages: All pages.
        num_free: Those that nobody holds.
        num_shared: Those that several sequences hold.
        num_sequences: The sequences in it; those that are swapped out too.
        num_tokens: The tokens of all sequences in it, shared ones as often as they are held.
        pool_bytes: The memory of all pages.
        empty_bytes: What is in pages that are held, and in no token.
        host_bytes: What is swapped out.
        recent_bytes: The memory of all rings for recent tokens.
    """

    num_pages: int
    num_free: int
    num_shared: int
    num_sequences: int
    num_tokens: int
    pool_bytes: int
    empty_bytes: int
    host_bytes: int
    recent_bytes: int


@dataclass(eq=False)
class Sequence:
    """A sequence's place in a pool. Only its pool changes it.

    Attributes:
        pages: Its pages, in the order of its tokens; empty while it is swapped out.
        num_tokens: The tokens that it holds.
        num_moves: How often all its pages became others.
        ring: Its ring of recent tokens; None where the pool has none, and while it is swapped out.
        recent_from: The first token that its ring holds.
    """

    pool: KVPool
    pages: list[int]
    num_tokens: int = 0
    is_freed: bool = False
    num_moves: int = 0
    ring: int | None = None
    recent_from: int = 0
    host: list[torch.Tensor] | None = None
    host_ring: list[torch.Tensor] | None = None
    arrives: torch.cuda.Event | None = None  # when pages that were prefetched are there; nobody has waited for it yet

    @property
    def is_swapped_out(self) -> bool:
        """Whether its pages are in host memory."""
        return self.host is not None
