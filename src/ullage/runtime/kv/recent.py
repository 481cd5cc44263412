"""The last tokens of each sequence in 16 bits, beside pages that hold all of them in fewer.

Each sequence has a ring of pages; page p of its tokens lies in place p mod pages of the ring. What the ring holds begins at
`recent_from`: it moves on as pages are overwritten, and what a truncated sequence had before is not taken back::

    tokens     0 ........ recent_from ........ num_tokens
    read from    pages                  ring

Shapes: B sequences, R pages of a ring.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import torch

from ullage.errors import RuntimeMemoryError
from ullage.runtime.kv.page_memory import PageMemory

if TYPE_CHECKING:
    from collections.abc import Sequence as List

    from ullage.runtime.kv.formats import Kind, PageLayout
    from ullage.runtime.kv.sequence import Sequence


class RecentTables(NamedTuple):
    """Where kernels find the last tokens of a batch; a token's place is counted from its ring's first page on.

    Attributes:
        table: Each sequence's ring, from the page of its first token on, int32 [B, R].
        lengths: The tokens from there on, int32 [B].
        begins: The first of those that the ring holds, int32 [B].
        ends: How many tokens are read from pages, int32 [B].
        bases: The token that the table's first page begins with, int32 [B].
    """

    table: torch.Tensor
    lengths: torch.Tensor
    begins: torch.Tensor
    ends: torch.Tensor
    bases: torch.Tensor


class RecentPart(NamedTuple):
    """A layer's last tokens, as `decode_attention` takes them.

    Attributes:
        pages: The layer's rings, uint8 [pages, page_bytes].
        layout: What a page of them looks like.
        tables: Where each sequence's are.
    """

    pages: torch.Tensor
    layout: PageLayout
    tables: RecentTables


class RecentTokens:
    """Rings for a number of sequences.

    Attributes:
        num_tokens: The tokens that a ring holds at least, of a sequence that has so many.
        layouts: What a page looks like, for each layer.
        pages_each: The pages of a ring, R.
    """

    def __init__(self, layouts: List[PageLayout], num_tokens: int, max_sequences: int, device: torch.device) -> None:
        """Allocate rings.

        Args:
            layouts: Those of the pages beside the rings.
            num_tokens: A multiple of a page's tokens.
            max_sequences: How many sequences there are at most.
            device: Where they are.

        Raises:
            ValueError: A figure is out of its range.
            RuntimeMemoryError: They do not fit.
        """
        page = layouts[0].page_tokens
        if num_tokens < 1 or num_tokens % page:
            raise ValueError(f"recent_tokens is {num_tokens}: it must be a multiple of the {page} tokens of a page")
        if max_sequences < 1:
            raise ValueError(f"max_sequences is {max_sequences}")
        self.num_tokens = num_tokens
        self.layouts = [_in_16_bits(layout) for layout in layouts]
        self.pages_each = num_tokens // page + 1
        self._page, self._max = page, max_sequences
        self._memory = PageMemory(self.layouts, max_sequences * self.pages_each, device)
        self._free = list(range(max_sequences))

    @property
    def size_bytes(self) -> int:
        """The bytes of all rings."""
        return self._max * self.pages_each * sum(layout.page_bytes for layout in self.layouts)

    def layer(self, index: int) -> torch.Tensor:
        """Return a layer's rings, uint8 [pages, page_bytes]."""
        return self._memory.layers[index]

    def check(self, num_rings: int = 1) -> None:
        """Check that there are so many free rings.

        Raises:
            RuntimeMemoryError: There are not.
        """
        if num_rings > len(self._free):
            raise RuntimeMemoryError(
                f"all but {len(self._free)} of {self._max} rings for recent tokens are taken and {num_rings} are needed: "
                "free or swap out a sequence, or make the pool with a larger max_sequences"
            )

    def take(self) -> int:
        """Take a ring; `check` comes before."""
        return self._free.pop()

    def release(self, ring: int) -> None:
        """Give a ring back."""
        self._free.append(ring)

    def copy(self, source: int, target: int) -> None:
        """Copy a ring to another, in all layers."""
        for old, new in zip(self.pages_of(source), self.pages_of(target), strict=True):
            self._memory.copy_page(old, new)

    def to_host(self, ring: int) -> list[torch.Tensor]:
        """Copy a ring to pinned host memory; it waits for the copy."""
        return self._memory.to_host(self.pages_of(ring))

    def from_host(self, saved: List[torch.Tensor], ring: int) -> None:
        """Copy to a ring what `to_host` returned, on the current stream."""
        self._memory.from_host(saved, self.pages_of(ring))

    def pages_of(self, ring: int) -> list[int]:
        """Return a ring's pages."""
        return list(range(ring * self.pages_each, (ring + 1) * self.pages_each))

    def first_held(self, recent_from: int, num_tokens: int) -> int:
        """Return the first token that a ring still holds when its sequence has grown to so many."""
        last_page = max(num_tokens - 1, 0) // self._page
        return max(recent_from, (last_page - self.pages_each + 1) * self._page)

    def part(self, index: int, tables: RecentTables) -> RecentPart:
        """Return a layer's recent tokens, as `decode_attention` takes them."""
        return RecentPart(self.layer(index), self.layouts[index], tables)

    def rows(self, sequences: List[Sequence]) -> list[torch.Tensor]:
        """Return what `RecentTables` holds of some sequences, on the host."""
        page, each = self._page, self.pages_each
        bases = [one.recent_from // page * page for one in sequences]
        table = torch.full((len(sequences), each), -1, dtype=torch.int32)
        for row, (one, base) in enumerate(zip(sequences, bases, strict=True)):
            begin = (one.ring or 0) * each
            table[row] = torch.tensor(
                [begin + (base // page + place) % each for place in range(each)], dtype=torch.int32
            )
        figures = (
            [one.num_tokens - base for one, base in zip(sequences, bases, strict=True)],
            [one.recent_from - base for one, base in zip(sequences, bases, strict=True)],
            [one.recent_from for one in sequences],
            bases,
        )
        return [table, *(torch.tensor(one, dtype=torch.int32) for one in figures)]


def _in_16_bits(layout: PageLayout) -> PageLayout:
    """Return a layout whose values are turned as those of another are, so that both can be added up."""
    kind: Kind = "fp16" if layout.format.kind == "fp16" else "bf16"
    return replace(layout, format=replace(layout.format, kind=kind, rotates_keys=False))
