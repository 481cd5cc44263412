"""Which pages of a pool are free, and how many sequences hold each of the others."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from ullage.errors import OutOfPagesError, PageAccountError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


class PageAllocator:
    """Hands out pages by number, and counts who holds them. A call does all of what is asked, or nothing."""

    def __init__(self, num_pages: int) -> None:
        self.num_pages = num_pages
        self._free = list(range(num_pages - 1, -1, -1))  # the lowest number goes first
        self._holders = [0] * num_pages

    @property
    def num_free(self) -> int:
        """The pages that nobody holds."""
        return len(self._free)

    def holders(self, page: int) -> int:
        """Return how many hold a page.

        Raises:
            PageAccountError: There is no such page.
        """
        self._known(page)
        return self._holders[page]

    def take(self, num_pages: int, what: str) -> list[int]:
        """Take free pages for one holder.

        Args:
            num_pages: How many.
            what: What they are for, as an error says it.

        Raises:
            OutOfPagesError: There are too few.
        """
        if num_pages > len(self._free):
            raise OutOfPagesError(asked=num_pages, free=len(self._free), total=self.num_pages, what=what)
        if num_pages <= 0:
            return []
        taken = self._free[-num_pages:][::-1]
        del self._free[-num_pages:]
        for page in taken:
            self._holders[page] = 1
        return taken

    def hold(self, pages: Sequence[int]) -> None:
        """Add a holder to pages that have one.

        Raises:
            PageAccountError: One of them is free, or none of this pool.
        """
        self._held(pages)
        for page in pages:
            self._holders[page] += 1

    def release(self, pages: Sequence[int]) -> list[int]:
        """Take a holder from each page, and return those that became free.

        Raises:
            PageAccountError: One of them is free already (or would be released more often than it is held), or is none of
                this pool.
        """
        for page, times in Counter(pages).items():
            self._known(page)
            if self._holders[page] < times:
                raise PageAccountError(
                    f"page {page} is released {times} times and held {self._holders[page]} times: a double free"
                )
        freed = []
        for page in pages:
            self._holders[page] -= 1
            if not self._holders[page]:
                self._free.append(page)
                freed.append(page)
        return freed

    def differences(self, expected: Iterable[int]) -> dict[int, int]:
        """Compare the holders of each page with those that there should be.

        Args:
            expected: The pages that are held, each as often as it is held.

        Returns:
            By page, how many holders too many (a leak) or, below 0, too few (a double free); equal ones are left out.
        """
        counted = Counter(expected)
        return {page: holders - counted[page] for page, holders in enumerate(self._holders) if holders != counted[page]}

    def _held(self, pages: Sequence[int]) -> None:
        for page in pages:
            self._known(page)
            if not self._holders[page]:
                raise PageAccountError(f"page {page} is free: it was used after its free")

    def _known(self, page: int) -> None:
        if not 0 <= page < self.num_pages:
            raise PageAccountError(f"page {page} is none of this pool's {self.num_pages:,}")
