"""A pool of pages for the keys and values of many sequences.

All layers share the page numbers: page p of a sequence is page p in each layer's own stretch of memory. Layers of one format
lie in one allocation, [layers, pages, page_bytes].
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from ullage.errors import PageAccountError
from ullage.runtime.kv.formats import KVFormat, PageLayout
from ullage.runtime.kv.page_memory import PageMemory
from ullage.runtime.kv.pages import PageAllocator
from ullage.runtime.kv.plan import plan_tokens
from ullage.runtime.kv.recent import RecentTables, RecentTokens
from ullage.runtime.kv.sequence import PoolStats, Sequence

if TYPE_CHECKING:
    from collections.abc import Sequence as List


class KVPool:
    """Pages for keys and values, handed out to sequences.

    A call that cannot be served raises, and changes nothing.
    """

    def __init__(
        self,
        *,
        num_layers: int,
        num_kv_heads: int,
        head_dim: int,
        formats: KVFormat | List[KVFormat] = KVFormat(),  # noqa: B008 (frozen)
        page_tokens: int = 64,
        num_pages: int | None = None,
        size_bytes: int | None = None,
        recent_tokens: int = 0,
        max_sequences: int = 16,
        device: torch.device | str = "cuda",
    ) -> None:
        """Make a pool.

        Args:
            num_layers: The model's layers.
            num_kv_heads: The KV heads of each.
            head_dim: The values of a head's vector.
            formats: One for all layers, or one for each.
            page_tokens: 16, 32 or 64.
            num_pages: How many pages; or
            size_bytes: how many bytes at most, which rings and whole pages are taken of.
            recent_tokens: How many of each sequence's last tokens are held in 16 bits too, and read from there: a multiple of
                page_tokens; 0: none.
            max_sequences: How many sequences there are rings for; without recent tokens there may be any number.
            device: Where the pages are.

        Raises:
            ValueError: Not exactly one of num_pages and size_bytes is given, or a figure is out of its range.
        """
        listed = [formats] * num_layers if isinstance(formats, KVFormat) else list(formats)
        if len(listed) != num_layers:
            raise ValueError(f"{len(listed)} formats for {num_layers} layers")
        if (num_pages is None) == (size_bytes is None):
            raise ValueError("give either num_pages or size_bytes")
        self.layouts = [
            PageLayout(format=one, num_kv_heads=num_kv_heads, head_dim=head_dim, page_tokens=page_tokens)
            for one in listed
        ]
        self.page_tokens = page_tokens
        self.device = torch.device(device)
        self.recent: RecentTokens | None = None
        if recent_tokens:
            self.recent = RecentTokens(self.layouts, recent_tokens, max_sequences, self.device)
        bytes_per_page = sum(layout.page_bytes for layout in self.layouts)
        if num_pages is None:
            num_pages = ((size_bytes or 0) - (self.recent.size_bytes if self.recent else 0)) // bytes_per_page
        if num_pages < 1:
            raise ValueError(f"no page fits: one takes {bytes_per_page:,} bytes over all layers")
        self.pages = PageAllocator(num_pages)
        self._memory = PageMemory(self.layouts, num_pages, self.device)
        self._sequences: list[Sequence] = []

    plan = staticmethod(plan_tokens)

    @property
    def page_bytes(self) -> int:
        """The bytes of a page over all layers."""
        return sum(layout.page_bytes for layout in self.layouts)

    def layer(self, index: int) -> torch.Tensor:
        """Return a layer's pages, uint8 [num_pages, page_bytes]."""
        return self._memory.layers[index]

    # --- sequences ---

    def new_sequence(self, num_tokens: int = 0) -> Sequence:
        """Begin a sequence with room for some tokens, whose contents the caller writes.

        Raises:
            OutOfPagesError: There are too few free pages.
            RuntimeMemoryError: There is no free ring for its recent tokens.
        """
        self._check_rings()
        sequence = Sequence(self, self.pages.take(self._pages_for(num_tokens), f"a sequence of {num_tokens:,} tokens"))
        self._take_ring(sequence)
        self._grow(sequence, num_tokens)
        self._sequences.append(sequence)
        return sequence

    def append(self, sequences: List[Sequence], num_tokens: int | List[int] = 1) -> None:
        """Make room for more tokens in each of some sequences, all or none.

        A last page that others hold too is copied first.

        Args:
            sequences: Each once.
            num_tokens: How many for each, or one figure for all.

        Raises:
            OutOfPagesError: There are too few free pages for all of them.
            PageAccountError: One was freed, is given twice, or is another pool's.
        """
        counts = [num_tokens] * len(sequences) if isinstance(num_tokens, int) else list(num_tokens)
        if len(counts) != len(sequences) or any(count < 0 for count in counts):
            raise ValueError(f"{len(counts)} counts for {len(sequences)} sequences, or one below 0")
        if len({id(one) for one in sequences}) != len(sequences):
            raise PageAccountError("a sequence is given twice")
        for sequence in sequences:
            self._usable(sequence)
        # A page that several of these share is copied for all but the last that writes to it.
        writers: dict[int, int] = {}
        copies: list[bool] = []
        for sequence, count in zip(sequences, counts, strict=True):
            copies.append(count > 0 and self._writes_to_shared(sequence, writers))
        news = [
            self._pages_for(one.num_tokens + count) - len(one.pages)
            for one, count in zip(sequences, counts, strict=True)
        ]
        taken = self.pages.take(sum(news) + sum(copies), f"{sum(counts):,} more tokens in {len(sequences):,} sequences")
        for sequence, count, new, copy in zip(sequences, counts, news, copies, strict=True):
            if copy:
                self._copy_last(sequence, taken.pop())
            if new:
                sequence.pages += [taken.pop() for _ in range(new)]
            self._grow(sequence, count)

    def fork(self, sequence: Sequence, num_tokens: int | None = None) -> Sequence:
        """Begin a sequence that shares another one's first tokens. Neither sees what is appended to the other.

        Args:
            sequence: The other one.
            num_tokens: How many tokens to share; None: all.

        Raises:
            PageAccountError: It was freed, or is another pool's.
            RuntimeMemoryError: There is no free ring for its recent tokens.
            ValueError: It does not have so many tokens.

        Cost: a copy of the recent tokens, where there are such; pages are not copied.
        """
        self._usable(sequence)
        shared = sequence.num_tokens if num_tokens is None else num_tokens
        if not 0 <= shared <= sequence.num_tokens:
            raise ValueError(f"{shared:,} tokens of a sequence of {sequence.num_tokens:,}")
        self._check_rings()
        pages = sequence.pages[: self._pages_for(shared)]
        self.pages.hold(pages)
        forked = Sequence(self, list(pages), shared, recent_from=min(sequence.recent_from, shared))
        self._take_ring(forked)
        if self.recent is not None and sequence.ring is not None and forked.ring is not None:
            self.recent.copy(sequence.ring, forked.ring)
        self._sequences.append(forked)
        return forked

    def truncate(self, sequence: Sequence, num_tokens: int) -> None:
        """Keep a sequence's first tokens, and give back the pages behind them.

        Raises:
            PageAccountError: It was freed, or is another pool's.
            ValueError: It does not have so many tokens.
        """
        self._usable(sequence)
        if not 0 <= num_tokens <= sequence.num_tokens:
            raise ValueError(f"{num_tokens:,} tokens of a sequence of {sequence.num_tokens:,}")
        keep = self._pages_for(num_tokens)
        self.pages.release(sequence.pages[keep:])
        del sequence.pages[keep:]
        sequence.num_tokens = num_tokens
        sequence.recent_from = min(sequence.recent_from, num_tokens)

    def free(self, sequence: Sequence) -> None:
        """Give back a sequence's pages.

        Raises:
            PageAccountError: It was freed before, or is another pool's.
        """
        self._own(sequence)
        if sequence.arrives is not None:
            self._usable(sequence)  # its pages are not handed on before the copies to them are done
        self.pages.release(sequence.pages)
        self._release_ring(sequence)
        sequence.pages, sequence.num_tokens, sequence.is_freed = [], 0, True
        sequence.host = sequence.host_ring = None
        self._sequences.remove(sequence)

    # --- host memory ---

    def swap_out(self, sequence: Sequence) -> None:
        """Move a sequence's pages to pinned host memory and give them back.

        Raises:
            PageAccountError: It was freed, or is another pool's.

        Cost: waits for the copy.
        """
        self._usable(sequence)
        host = self._memory.to_host(sequence.pages)
        if self.recent is not None and sequence.ring is not None:
            sequence.host_ring = self.recent.to_host(sequence.ring)
        sequence.host = host
        self._release_ring(sequence)
        self.pages.release(sequence.pages)
        sequence.pages = []

    def swap_in(self, sequence: Sequence) -> None:
        """Bring a sequence's pages back, by copies on the current stream.

        Raises:
            OutOfPagesError: There are too few free pages; it stays in host memory.
            PageAccountError: It was freed, is another pool's, or is not swapped out.
        """
        self._own(sequence)
        if sequence.host is None:
            raise PageAccountError("the sequence is not swapped out")
        self._check_rings()
        pages = self.pages.take(self._pages_for(sequence.num_tokens), "bringing back a sequence")
        self._take_ring(sequence)
        try:
            self._memory.from_host(sequence.host, pages)
            if self.recent is not None and sequence.ring is not None and sequence.host_ring is not None:
                self.recent.from_host(sequence.host_ring, sequence.ring)
        except BaseException:
            self.pages.release(pages)
            self._release_ring(sequence)
            raise
        sequence.pages, sequence.host, sequence.host_ring = pages, None, None
        sequence.num_moves += 1

    def prefetch(self, sequence: Sequence) -> None:
        """Bring a sequence's pages back beside what runs; whoever uses the sequence next waits for them, on the GPU alone.

        Raises:
            OutOfPagesError: There are too few free pages; it stays in host memory.
            PageAccountError: It was freed, is another pool's, or is not swapped out.
        """
        with self._memory.aside() as arrives:
            self.swap_in(sequence)
        sequence.arrives = arrives

    # --- what kernels read ---

    def table(self, sequences: List[Sequence], max_pages: int | None = None) -> torch.Tensor:
        """Return the pages of some sequences, int32 [sequences, max_pages]; unused places are -1.

        Args:
            sequences: The sequences.
            max_pages: The width; None: as wide as the longest. A fixed one keeps shapes static for CUDA graphs.

        Raises:
            PageAccountError: One was freed, is swapped out, or is another pool's.
            ValueError: One has more pages than that.
        """
        for sequence in sequences:
            self._usable(sequence)
        longest = max((len(one.pages) for one in sequences), default=0)
        width = max(longest, 1) if max_pages is None else max_pages
        if longest > width:
            raise ValueError(f"a sequence has {longest} pages, the table {width}")
        rows = [one.pages + [-1] * (width - len(one.pages)) for one in sequences]
        return torch.tensor(rows, dtype=torch.int32).reshape(len(sequences), width).to(self.device)

    def lengths(self, sequences: List[Sequence]) -> torch.Tensor:
        """Return the tokens of some sequences, int32 [sequences]."""
        for sequence in sequences:
            self._usable(sequence)
        return torch.tensor([one.num_tokens for one in sequences], dtype=torch.int32).to(self.device)

    def recent_tables(self, sequences: List[Sequence]) -> RecentTables:
        """Return where the recent tokens of some sequences are.

        Raises:
            PageAccountError: One was freed, is swapped out, or is another pool's.
            ValueError: The pool keeps no recent tokens.
        """
        if self.recent is None:
            raise ValueError("the pool was made without recent_tokens")
        for sequence in sequences:
            self._usable(sequence)
        return RecentTables(*(one.to(self.device) for one in self.recent.rows(sequences)))

    # --- accounts ---

    def stats(self) -> PoolStats:
        """Return what the pool holds."""
        held: dict[int, int] = {}  # tokens in each page, at most
        for one in self._sequences:
            for place, page in enumerate(one.pages):
                inside = min(self.page_tokens, one.num_tokens - place * self.page_tokens)
                held[page] = max(held.get(page, 0), inside)
        empty_tokens = sum(self.page_tokens - inside for inside in held.values())
        return PoolStats(
            num_pages=self.pages.num_pages,
            num_free=self.pages.num_free,
            num_shared=sum(self.pages.holders(page) > 1 for page in held),
            num_sequences=len(self._sequences),
            num_tokens=sum(one.num_tokens for one in self._sequences),
            pool_bytes=self.pages.num_pages * self.page_bytes,
            empty_bytes=empty_tokens * self.page_bytes // self.page_tokens,
            host_bytes=sum(
                part.numel() for one in self._sequences for part in (*(one.host or ()), *(one.host_ring or ()))
            ),
            recent_bytes=0 if self.recent is None else self.recent.size_bytes,
        )

    def account(self) -> str:
        """Say whether each page is held as often as sequences hold it; "" where it is.

        A page held too often is leaked, one held too seldom was freed twice.
        """
        wrong = self.pages.differences(page for one in self._sequences for page in one.pages)
        leaked = sum(extra for extra in wrong.values() if extra > 0)
        doubled = -sum(extra for extra in wrong.values() if extra < 0)
        said = [f"{leaked} holders too many: pages are leaked"] if leaked else []
        said += [f"{doubled} holders too few: pages were freed twice"] if doubled else []
        return "; ".join(said) + (f" (first: page {min(wrong)})" if wrong else "")

    # --- inside ---

    def _pages_for(self, num_tokens: int) -> int:
        return -(-num_tokens // self.page_tokens)

    def _own(self, sequence: Sequence) -> None:
        if sequence.pool is not self:
            raise PageAccountError("the sequence is another pool's")
        if sequence.is_freed:
            raise PageAccountError("the sequence was freed: a double free, or a use after it")

    def _usable(self, sequence: Sequence) -> None:
        self._own(sequence)
        if sequence.is_swapped_out:
            raise PageAccountError("the sequence is swapped out: bring it back first")
        if sequence.arrives is not None:
            torch.cuda.current_stream(self.device).wait_event(sequence.arrives)
            sequence.arrives = None

    def _check_rings(self) -> None:
        if self.recent is not None:
            self.recent.check()

    def _take_ring(self, sequence: Sequence) -> None:
        if self.recent is not None:
            sequence.ring = self.recent.take()

    def _release_ring(self, sequence: Sequence) -> None:
        if self.recent is not None and sequence.ring is not None:
            self.recent.release(sequence.ring)
            sequence.ring = None

    def _grow(self, sequence: Sequence, num_tokens: int) -> None:
        sequence.num_tokens += num_tokens
        if self.recent is not None:
            sequence.recent_from = self.recent.first_held(sequence.recent_from, sequence.num_tokens)

    def _writes_to_shared(self, sequence: Sequence, writers: dict[int, int]) -> bool:
        """Tell whether appending must copy the last page; `writers` counts those that have left a page so far."""
        if sequence.num_tokens % self.page_tokens == 0:
            return False
        page = sequence.pages[-1]
        left = writers.get(page, 0)
        if self.pages.holders(page) - left <= 1:
            return False
        writers[page] = left + 1
        return True

    def _copy_last(self, sequence: Sequence, new: int) -> None:
        old = sequence.pages[-1]
        self._memory.copy_page(old, new)
        sequence.pages[-1] = new
        self.pages.release([old])
