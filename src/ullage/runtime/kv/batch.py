"""The sequences of a model's batch: which of the columns that the model counts are tokens in a pool's pages.

A model says by its mask which columns are padding; a mask shows a column to a query, or not.

Columns include padding, which no page holds::

    columns   0 1 2 3 4 5        held, of sequence 0   - - x x x x   ->  tokens 0..3 in its pages
                                 held, of sequence 1   x x x x x x   ->  tokens 0..5

Shapes: B sequences, Q new columns, C columns, T new tokens.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch

from ullage.errors import RuntimeMemoryError
from ullage.runtime.kv.forward_pass import ForwardPass, shown_by
from ullage.runtime.kv.tables import StepTables

if TYPE_CHECKING:
    from collections.abc import Iterator
    from collections.abc import Sequence as List

    from ullage.runtime.kv.pool import KVPool
    from ullage.runtime.kv.sequence import Sequence

_HALF_WAY = "the forward pass before stopped half way: reset() the cache, or crop() to before it"


class Batch:
    """Sequences in a pool, in a model's order, and the columns that they hold."""

    def __init__(self, pool: KVPool) -> None:
        self.pool = pool
        self.sequences: list[Sequence] = []
        self.num_columns = 0
        self.columns_of = [0] * len(pool.layouts)  # by layer; below num_columns where a forward pass has not come yet
        self.is_graphed = False  # whether somebody replays its steps
        self.waiting: set[int] = set()  # layers whose new keys have not come to attention yet
        self._held: torch.Tensor | None = None
        self._pass: ForwardPass | None = None
        self._tables: StepTables | None = None
        self._is_captured = False

    def enter(self, layer: int, num_batch: int, num_new: int, mask: torch.Tensor | None) -> ForwardPass:
        """Return the forward pass that comes to a layer; the first layer makes room for all its tokens.

        Args:
            layer: The layer, which has its columns from then on.
            num_batch: The sequences; what a batch begins with stays until it is cleared.
            num_new: The new columns of each.
            mask: [B, 1, num_new, C], bool or to be added to scores; a column that does not see itself is padding. None: all do.

        Raises:
            OutOfPagesError: There are too few pages for its tokens; nothing changed.
            RuntimeMemoryError: The pass before did not reach all layers, or the batch has another size.
        """
        if self._is_captured and self._pass is not None:
            return self._pass
        if self.columns_of[layer] == self.num_columns:
            self._begin(num_batch, num_new, mask)
        passing = self._pass
        if passing is None or self.columns_of[layer] != passing.num_past or num_new != passing.num_new:
            raise RuntimeMemoryError(_HALF_WAY)
        self.columns_of[layer] += num_new
        return passing

    def sees_all_held(self, mask: torch.Tensor | None) -> bool:
        """Tell whether a model's mask of columns shows just what is held, and one new column of each sequence.

        Args:
            mask: [B, C], not 0 where a column is a token, as a model takes it; None: all are.

        Cost: waits for the GPU, where there is a mask.
        """
        if mask is None:
            return self._held is None
        if mask.shape != (len(self.sequences), self.num_columns + 1):
            return False
        if self._held is None:
            return bool(mask.all())
        wanted = torch.cat([self._held, torch.ones((len(self.sequences), 1), dtype=torch.bool)], 1)
        return bool(torch.equal(mask.bool().cpu(), wanted))

    def step(self) -> ForwardPass:
        """Make room for one new token of each sequence, in all layers at once.

        Returns:
            The forward pass, whose tensors are the same from step to step until the batch or a sequence's pages outgrow them.

        Raises:
            OutOfPagesError: There are too few pages; nothing changed.
            RuntimeMemoryError: The pass before did not reach all layers, or there are no sequences yet.
        """
        if not self.sequences:
            raise RuntimeMemoryError("a step goes on with a prompt, and none was read")
        passing = self._begin(len(self.sequences), 1, None)
        self.columns_of = [self.num_columns] * len(self.columns_of)
        return passing

    @contextmanager
    def captured(self) -> Iterator[None]:
        """Let layers find the step that was made, and account for nothing, while a model runs to be captured."""
        self._is_captured = True
        try:
            yield
        finally:
            self._is_captured = False

    def select(self, indices: List[int]) -> None:
        """Go on with some of the sequences, in this order; one that is named again is forked, and shares its pages.

        Args:
            indices: The places of the sequences.

        Raises:
            IndexError: There is no such sequence; nothing changed.
        """
        if not self.sequences:
            return
        sources = [self.sequences[index] for index in indices]
        kept: set[int] = set()
        chosen: list[Sequence] = []
        with self._or_freed(chosen):
            for one in sources:
                chosen.append(self.pool.fork(one) if id(one) in kept else one)
                kept.add(id(one))
        for one in self.sequences:
            if id(one) not in kept:
                self.pool.free(one)
        self._held = None if self._held is None else self._held[list(indices)]
        self.sequences = chosen
        self._stop()

    def crop(self, num_columns: int) -> None:
        """Keep the first columns; also what a forward pass that stopped half way left is put right by this.

        Args:
            num_columns: How many; 0 clears.
        """
        if num_columns <= 0:
            self.clear()
            return
        for row, one in enumerate(self.sequences):
            dropped = self.num_columns - num_columns if self._held is None else int(self._held[row, num_columns:].sum())
            self.pool.truncate(one, one.num_tokens - dropped)
        self._held = None if self._held is None else self._held[:, :num_columns]
        self.num_columns = num_columns
        self.waiting.clear()
        self._stop()
        self.columns_of = [min(columns, num_columns) for columns in self.columns_of]

    def copy(self) -> Batch:
        """Return a batch of forks, which shares pages until one of the two writes."""
        other = Batch(self.pool)
        with self._or_freed(other.sequences):
            for one in self.sequences:
                other.sequences.append(self.pool.fork(one))
        other.num_columns, other.columns_of, other._held = self.num_columns, list(self.columns_of), self._held
        return other

    def clear(self) -> None:
        """Give all pages back."""
        for one in self.sequences:
            self.pool.free(one)
        self.sequences, self.num_columns, self._held = [], 0, None
        self.columns_of = [0] * len(self.columns_of)
        self.waiting.clear()
        self._stop()

    @contextmanager
    def _or_freed(self, sequences: list[Sequence]) -> Iterator[None]:
        """Free those of some sequences that are not the batch's own, where what is inside fails."""
        try:
            yield
        except BaseException:
            own = {id(one) for one in self.sequences}
            for one in sequences:
                if id(one) not in own:
                    self.pool.free(one)
            raise

    def _stop(self) -> None:
        """Let the next pass find out anew which pages there are."""
        self._pass = None
        if self._tables is not None:
            self._tables.forget()

    def _begin(self, num_batch: int, num_new: int, mask: torch.Tensor | None) -> ForwardPass:
        if any(columns != self.num_columns for columns in self.columns_of):
            raise RuntimeMemoryError(_HALF_WAY)
        if self.sequences and len(self.sequences) != num_batch:
            raise RuntimeMemoryError(
                f"the cache holds {len(self.sequences)} sequences, the model runs {num_batch}: reset() it first"
            )
        new_held = _held_by(mask, num_batch, num_new)
        counts = [num_new] * num_batch if new_held is None else new_held.sum(1).tolist()
        sequences = list(self.sequences)
        before = [one.num_tokens for one in sequences]
        with self._or_freed(sequences):
            while len(sequences) < num_batch:
                sequences.append(self.pool.new_sequence())
            self.pool.append(sequences, counts)
            try:
                passing = self._pass_of(sequences, counts, num_new, new_held)
            except BaseException:
                for one, tokens in zip(sequences, before, strict=False):
                    self.pool.truncate(one, tokens)
                self._stop()
                raise
        self.sequences, self._pass = sequences, passing
        self.num_columns += num_new
        self._held = passing.held(self.num_columns)
        return passing

    def _pass_of(
        self, sequences: list[Sequence], counts: list[int], num_new: int, new_held: torch.Tensor | None
    ) -> ForwardPass:
        """Return the forward pass of sequences that have grown by so many tokens."""
        device = self.pool.device
        tables = self._updated_tables(sequences)
        rows, positions = tables.rows, tables.positions
        starts = past = None
        if num_new != 1 or new_held is not None:
            rows, positions = (places.to(device) for places in _places(counts, [one.num_tokens for one in sequences]))
        if num_new != 1:
            starts = torch.tensor([0, *counts]).cumsum(0).int().to(device)
            past = tables.lengths - torch.tensor(counts, dtype=torch.int32).to(device)
        return ForwardPass(
            num_past=self.num_columns,
            num_new=num_new,
            past_held=self._held,
            new_held=new_held,
            tokens=[one.num_tokens for one in sequences],
            table=tables.table,
            lengths=tables.lengths,
            rows=rows,
            positions=positions,
            kept=None if new_held is None else new_held.flatten().nonzero().flatten().to(device),
            starts=starts,
            past=past,
            recent=tables.recent,
        )

    def _updated_tables(self, sequences: list[Sequence]) -> StepTables:
        most = max(len(one.pages) for one in sequences)
        if self._tables is None or not self._tables.fits(len(sequences), most):
            self._tables = StepTables(len(sequences), most, self.pool.device, self.pool.recent)
        self._tables.update(sequences)
        return self._tables


def _places(counts: list[int], tokens: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the sequence of each new token and its place in it, int32 [T], from how many are new and how many there are."""
    counted = torch.tensor(counts)
    rows = torch.arange(len(counts)).repeat_interleave(counted)
    firsts = torch.tensor(tokens) - counted.cumsum(0)
    return rows.int(), (firsts[rows] + torch.arange(len(rows))).int()


def _held_by(mask: torch.Tensor | None, num_batch: int, num_new: int) -> torch.Tensor | None:
    """Return which new columns see themselves, bool [B, num_new] on the host; None: all."""
    if mask is None:
        return None
    own = shown_by(mask)[:, 0, :, mask.shape[-1] - num_new :].diagonal(dim1=-2, dim2=-1)
    held = own.expand(num_batch, -1).cpu()
    return None if bool(held.all()) else held
