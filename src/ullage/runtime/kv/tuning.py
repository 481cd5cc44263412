"""Which configuration of the decode kernel is fastest on a GPU, measured once and kept on disk."""

from __future__ import annotations

import json
import statistics
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import torch

from ullage.runtime.cache_folder import cache_folder, file_word, keep

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ullage.runtime.kv.formats import PageLayout

_NUM_TIMED = 12
_SPLITS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)
_MOST_WAVES = 24  # programs a multiprocessor
_WARPS = {"bf16": (2, 4), "fp16": (2, 4), "fp8": (1, 2), "int8": (1, 2, 4), "int4": (1, 2)}


@dataclass(frozen=True, kw_only=True)
class DecodeConfig:
    """How the decode kernel is run.

    Attributes:
        num_warps: The warps of a program.
        num_stages: The loads in flight.
        num_splits: The parts that a sequence is read in at a time.
    """

    num_warps: int
    num_stages: int
    num_splits: int


def config_key(layout: PageLayout, num_batch: int, num_heads: int, max_pages: int) -> str:
    """Name what a configuration depends on; batches and lengths count by their power of two."""
    form = layout.format
    return (
        f"{form.kind}-g{layout.num_groups}-d{layout.head_dim}-h{num_heads}-k{layout.num_kv_heads}-p{layout.page_tokens}"
        f"-b{(num_batch - 1).bit_length()}-n{(max_pages - 1).bit_length()}"
    )


def candidates(layout: PageLayout, num_batch: int, max_pages: int, num_processors: int) -> list[DecodeConfig]:
    """Return the configurations worth measuring."""
    pairs = num_batch * layout.num_kv_heads
    most = max(_MOST_WAVES * num_processors, 2 * pairs)
    return [
        DecodeConfig(num_warps=warps, num_stages=3, num_splits=splits)
        for warps in _WARPS[layout.format.kind]
        for splits in _SPLITS
        if splits <= max_pages and pairs * splits <= most
    ]


def fastest(configs: list[DecodeConfig], run: Callable[[DecodeConfig], Any]) -> DecodeConfig:
    """Measure configurations on the GPU, and return the fastest.

    Args:
        configs: The configurations.
        run: Runs one of them.

    Cost: compiles and runs each, and waits for the GPU: tens of seconds the first time.
    """
    times = {config: _median_ms(lambda config=config: run(config)) for config in configs}  # type: ignore[misc]
    return min(times, key=lambda config: times[config])


def _median_ms(run: Callable[[], Any]) -> float:
    run()
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(_NUM_TIMED + 1)]
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):  # so that no launch is timed
        run()
    graph.replay()
    marks[0].record()
    for mark in marks[1:]:
        graph.replay()
        mark.record()
    torch.cuda.synchronize()
    times: list[float] = [one.elapsed_time(other) for one, other in pairwise(marks)]
    return statistics.median(times)


class ConfigStore:
    """Configurations by what they depend on, in a file for each GPU. A file that cannot be read or written is no error."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known: dict[str, DecodeConfig] = {}
        with suppress(OSError, ValueError, TypeError, AttributeError):
            stored = json.loads(path.read_text(encoding="utf-8"))
            self._known = {key: DecodeConfig(**value) for key, value in stored.items()}

    def get(self, key: str) -> DecodeConfig | None:
        """Return a configuration; None where none was measured."""
        return self._known.get(key)

    def put(self, key: str, config: DecodeConfig) -> None:
        """Keep a configuration, in memory and, where that can be, on disk."""
        self._known[key] = config
        text = json.dumps({name: asdict(one) for name, one in sorted(self._known.items())}, indent=1)
        keep(self._path, text)


def store_path(gpu: str, triton_version: str) -> Path:
    """Return where the configurations of a GPU are kept: under $ULLAGE_CACHE, or the user's cache.

    Example:
        >>> import os
        >>> os.environ["ULLAGE_CACHE"] = "my-cache"
        >>> str(store_path("NVIDIA H200", "3.6.0"))
        'my-cache/kv-NVIDIA-H200-triton-3.6.0.json'
        >>> del os.environ["ULLAGE_CACHE"]
    """
    return cache_folder() / f"kv-{file_word(gpu)}-triton-{triton_version}.json"
