"""Fleet: many ranks, many traces."""

from ullage.fleet.ranks import Rank, odd_first, rank_of

__all__ = ["Rank", "odd_first", "rank_of"]
