"""Where kernels read which pages a batch's sequences have: tensors that stay in place from step to step.

That their addresses stay lets a captured CUDA graph read them; that only what changed is written keeps the host's work for a
step from growing with the sequences' lengths.

Shapes: B sequences.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from ullage.runtime.kv.recent import RecentTables

if TYPE_CHECKING:
    from collections.abc import Sequence as List

    from ullage.runtime.kv.recent import RecentTokens
    from ullage.runtime.kv.sequence import Sequence


class StepTables:
    """What the kernels of a step of one token a sequence read.

    Attributes:
        table: Each sequence's pages, int32 [B, width]; unused places are -1.
        lengths: The tokens of each, int32 [B].
        rows: 0 .. B - 1, int32 [B]: the sequence of each new token.
        positions: The place of each new token in its sequence, int32 [B].
        recent: Where recent tokens are; None where there are none.
    """

    def __init__(
        self, num_batch: int, num_pages: int, device: torch.device, recent: RecentTokens | None = None
    ) -> None:
        """Make tables for sequences of so many pages, and some more.

        Args:
            num_batch: B.
            num_pages: The most pages of a sequence; the width is the next power of two.
            device: Where kernels read them.
            recent: The rings that the sequences have; None: none.
        """
        width = 1 << max(num_pages - 1, 0).bit_length()
        self._host = torch.full((num_batch, width), -1, dtype=torch.int32)
        self._host_rows = self._host.numpy()
        self._filled = [-1] * num_batch
        self._moves = [0] * num_batch
        self.table = self._host.to(device, copy=True)
        self.lengths = torch.zeros(num_batch, dtype=torch.int32, device=device)
        self.positions = torch.zeros(num_batch, dtype=torch.int32, device=device)
        self.rows = torch.arange(num_batch, dtype=torch.int32, device=device)
        self.recent: RecentTables | None = None
        self._rings = recent
        if recent is not None:
            figures = (torch.zeros(num_batch, dtype=torch.int32, device=device) for _ in range(4))
            self.recent = RecentTables(
                torch.zeros((num_batch, recent.pages_each), dtype=torch.int32, device=device), *figures
            )

    def fits(self, num_batch: int, num_pages: int) -> bool:
        """Tell whether they do for such a batch."""
        return len(self._filled) == num_batch and num_pages <= self._host.shape[1]

    def update(self, sequences: List[Sequence]) -> None:
        """Write what changed since the last time.

        Args:
            sequences: The same as the last time, with more tokens; after anything else, `forget` first.

        Cost: two small copies, and one of the table where a sequence has a new page. The driver takes pageable memory aside
            before it returns, so that nothing waits for the GPU, and the host's memory may change at once.
        """
        is_changed = False
        for index, (sequence, filled) in enumerate(zip(sequences, self._filled, strict=True)):
            pages, row = sequence.pages, self._host_rows[index]
            if self._moves[index] != sequence.num_moves:
                filled, self._moves[index] = -1, sequence.num_moves
            first = max(filled - 1, 0)  # a last page that others hold too is replaced when it is written to
            if len(pages) != filled or (pages and row[first] != pages[first]):
                row[first : len(pages)] = pages[first:]
                row[len(pages) :] = -1
                self._filled[index] = len(pages)
                is_changed = True
        if is_changed:
            self.table.copy_(self._host, non_blocking=True)
        lengths = torch.tensor([one.num_tokens for one in sequences], dtype=torch.int32)
        self.lengths.copy_(lengths, non_blocking=True)
        self.positions.copy_(lengths - 1, non_blocking=True)
        if self.recent is not None and self._rings is not None:
            for place, rows in zip(self.recent, self._rings.rows(sequences), strict=True):
                place.copy_(rows, non_blocking=True)

    def forget(self) -> None:
        """Take nothing for known: the next update writes all."""
        self._filled = [-1] * len(self._filled)
