"""What all layers share of one forward pass of a model, and what its masks show of it.

Shapes: B sequences, Q new columns, C columns, T new tokens.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

from ullage.errors import RuntimeMemoryError

if TYPE_CHECKING:
    from ullage.runtime.kv.recent import RecentTables


@dataclass(frozen=True, kw_only=True)
class ForwardPass:
    """What all layers share of one forward pass.

    Attributes:
        num_past: The columns before it.
        num_new: Its columns.
        past_held: Which of those before are held, bool [B, num_past] on the host; None: all.
        new_held: The same of its own, bool [B, num_new].
        tokens: The tokens of each sequence, its own included.
        table: The sequences' pages, int32 [B, pages].
        lengths: `tokens` where the pages are, int32 [B].
        rows: The sequence of each new token, int32 [T].
        positions: The place of each in its sequence, int32 [T].
        kept: The place of each among the B * Q new columns, int64 [T]; None: all of them.
        starts: Where each sequence's tokens begin among the T, and where the last ones end, int32 [B + 1]; None where Q is 1.
        past: The tokens of each sequence before it, int32 [B]; None where Q is 1.
        recent: Where recent tokens are; None where the pool keeps none.
        looked_at: By a mask's id and a window, the mask (which keeps its id its own) and what `shows_all` found.
    """

    num_past: int
    num_new: int
    past_held: torch.Tensor | None
    new_held: torch.Tensor | None
    tokens: list[int]
    table: torch.Tensor
    lengths: torch.Tensor
    rows: torch.Tensor
    positions: torch.Tensor
    kept: torch.Tensor | None
    starts: torch.Tensor | None
    past: torch.Tensor | None
    recent: RecentTables | None = None
    looked_at: dict[tuple[int, int], tuple[torch.Tensor, bool]] = field(default_factory=dict)

    @property
    def num_columns(self) -> int:
        """The columns before it and its own."""
        return self.num_past + self.num_new

    def recent_positions(self) -> torch.Tensor:
        """Return the place of each new token in its ring's table, int32 [T]; below 0 where the ring has moved on.

        Raises:
            ValueError: The pool keeps no recent tokens.
        """
        if self.recent is None:
            raise ValueError("the pool keeps no recent tokens")
        return self.positions - self.recent.bases[self.rows]

    def held(self, num_columns: int) -> torch.Tensor | None:
        """Return which of the last columns, its own included, are held, bool [B, num_columns]; None: all."""
        if self.past_held is None and self.new_held is None:
            return None
        pairs = ((self.past_held, self.num_past), (self.new_held, self.num_new))
        both = [
            torch.ones((len(self.tokens), count), dtype=torch.bool) if held is None else held for held, count in pairs
        ]
        return torch.cat(both, 1)[:, self.num_columns - num_columns :]

    def shows_all(self, mask: torch.Tensor | None, window: int) -> bool:
        """Tell whether a mask shows each new token all that its sequence holds up to it, or a window of the last of that.

        Args:
            mask: [B, 1, Q, C], bool or to be added to scores; None, where one query is new, shows all.
            window: How many tokens, a query's own included; 0: all.

        Cost: waits for the GPU once for each mask; what transformers makes for one query without padding is None.
        """
        if mask is None:
            return self.num_new == 1
        known = self.looked_at.get((id(mask), window))
        if known is None:
            looks = self._shows_last if self.num_new == 1 else self._shows_causally
            known = self.looked_at[id(mask), window] = (mask, mask.shape[1] == 1 and looks(mask, window))
        return known[1]

    def _shows_last(self, mask: torch.Tensor, window: int) -> bool:
        """Tell it of one query, whose shown tokens need only be counted."""
        held = self.held(mask.shape[-1])
        shown = shown_by(mask).expand(len(self.tokens), -1, -1, -1)[:, 0, -1].cpu()
        counts = (shown if held is None else shown & held).sum(1).tolist()
        is_new = [True] * len(counts) if self.new_held is None else self.new_held[:, -1].tolist()
        wanted = [min(tokens, window or tokens) for tokens in self.tokens]
        return all(count == want or not new for count, want, new in zip(counts, wanted, is_new, strict=True))

    def _shows_causally(self, mask: torch.Tensor, window: int) -> bool:
        """Tell it of several queries."""
        shape = (len(self.tokens), mask.shape[-1])
        held = self.held(mask.shape[-1])
        is_held = torch.ones(shape, dtype=torch.bool) if held is None else held
        hidden = self.num_columns - mask.shape[-1]  # columns that a window's mask leaves out
        if hidden and (not window or mask.shape[-1] < window - 1 + self.num_new):
            return False
        is_held = is_held.to(mask.device)
        place = is_held.cumsum(1)
        distance = place[:, -self.num_new :, None] - place[:, None]
        wanted = (distance >= 0) & is_held[:, None]
        if window:
            wanted &= distance < window
        differs = (shown_by(mask)[:, 0] & is_held[:, None]) != wanted
        return not bool((differs & is_held[:, -self.num_new :, None]).any())

    def without_padding(self, mask: torch.Tensor | None, num_columns: int) -> torch.Tensor | None:
        """Return a mask that hides the columns that are not held, whatever the model's own shows of them.

        Args:
            mask: [B, 1, Q, C], bool or to be added to scores; None where one query sees all.
            num_columns: C.

        Raises:
            RuntimeMemoryError: Several queries over a history came without a mask.
        """
        if mask is None and self.num_new > 1:
            raise RuntimeMemoryError(f"{self.num_new} new columns over {self.num_past} others came without a mask")
        held = self.held(num_columns)
        if held is None:
            return mask
        shown = held[:, None, None].to(self.table.device)
        if mask is None:
            return shown
        return mask & shown if mask.dtype == torch.bool else mask.masked_fill(~shown, torch.finfo(mask.dtype).min)


def shown_by(mask: torch.Tensor) -> torch.Tensor:
    """Return where a mask shows a column: bool, from bool or from what is added to scores."""
    return mask if mask.dtype == torch.bool else mask == 0
