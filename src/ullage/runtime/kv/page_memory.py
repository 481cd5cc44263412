"""The memory of a pool's pages: one allocation for the layers of each format. It does not know who holds which page."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch

from ullage.errors import RuntimeMemoryError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from collections.abc import Sequence as List

    from ullage.runtime.kv.formats import PageLayout


class PageMemory:
    """Pages of all layers.

    Attributes:
        layers: Each layer's pages, uint8 [num_pages, page_bytes].
    """

    def __init__(self, layouts: List[PageLayout], num_pages: int, device: torch.device) -> None:
        """Allocate once for each layout.

        Args:
            layouts: What a page looks like, for each layer.
            num_pages: The pages of each.
            device: Where they are.

        Raises:
            RuntimeMemoryError: They do not fit.
        """
        self.layers: list[torch.Tensor] = [torch.empty(0)] * len(layouts)
        self._device = device
        self._aside: torch.cuda.Stream | None = None
        groups: dict[PageLayout, list[int]] = {}
        for index, layout in enumerate(layouts):
            groups.setdefault(layout, []).append(index)
        for layout, indices in groups.items():
            try:
                whole = torch.empty((len(indices), num_pages, layout.page_bytes), dtype=torch.uint8, device=device)
            except torch.OutOfMemoryError as error:
                size = len(indices) * num_pages * layout.page_bytes
                raise RuntimeMemoryError(f"the pool's {size:,} bytes do not fit: {error}") from None
            for place, index in enumerate(indices):
                self.layers[index] = whole[place]

    def copy_page(self, old: int, new: int) -> None:
        """Copy a page to another, in all layers."""
        for layer in self.layers:
            layer[new].copy_(layer[old])

    def to_host(self, pages: List[int]) -> list[torch.Tensor]:
        """Copy pages to pinned host memory.

        Returns:
            For each layer, uint8 [pages, page_bytes].

        Cost: waits for the copy.
        """
        rows = torch.tensor(pages, dtype=torch.long, device=self._device)
        saved = [_to_host(layer[rows]) for layer in self.layers]
        if self._device.type == "cuda":
            torch.cuda.current_stream(self._device).synchronize()
        return saved

    def from_host(self, saved: List[torch.Tensor], pages: List[int]) -> None:
        """Copy to pages what `to_host` returned, on the current stream."""
        rows = torch.tensor(pages, dtype=torch.long, device=self._device)
        for layer, one in zip(self.layers, saved, strict=True):
            layer[rows] = one.to(self._device, non_blocking=True)

    @contextmanager
    def aside(self) -> Iterator[torch.cuda.Event | None]:
        """Do what is inside beside what the current stream does, after what it was given so far.

        Yields:
            An event that is there when it is done; None where there is no GPU, and it is done at once.
        """
        if self._device.type != "cuda":
            yield None
            return
        self._aside = self._aside or torch.cuda.Stream(self._device)
        self._aside.wait_stream(torch.cuda.current_stream(self._device))  # pages that were given back may still be read
        done = torch.cuda.Event()
        with torch.cuda.stream(self._aside):
            yield done
            done.record()


def _to_host(pages: torch.Tensor) -> torch.Tensor:
    if pages.device.type != "cuda":
        return pages.clone()
    host = torch.empty(pages.shape, dtype=pages.dtype, pin_memory=True)
    host.copy_(pages, non_blocking=True)
    return host
