"""What a step asks of the driver, learned from one run and kept for the next."""

from __future__ import annotations

import json
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ullage.errors import RuntimeMemoryError
from ullage.runtime.pools.allocator import allocator_of
from ullage.units import format_bytes, plural

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import torch

_VERSION = 1


@dataclass(frozen=True, kw_only=True)
class SegmentNeed:
    """Memory that a step took from the driver.

    Attributes:
        size_bytes: How much, at once.
        is_small: Whether it serves requests of at most 1 MiB.
        stream: Which stream's: 0 the first of those that were named, and so on.
    """

    size_bytes: int
    is_small: bool = False
    stream: int = 0

    def __post_init__(self) -> None:
        if self.size_bytes <= 0 or self.stream < 0:
            raise ValueError(f"a segment has a size and a stream, not {self.size_bytes} bytes on stream {self.stream}")


@dataclass(frozen=True, kw_only=True)
class PoolNeeds:
    """What a step took from the driver, beyond what was held before it.

    Attributes:
        segments: Each piece.
    """

    segments: tuple[SegmentNeed, ...]

    @property
    def size_bytes(self) -> int:
        """All of it."""
        return sum(one.size_bytes for one in self.segments)

    @property
    def num_streams(self) -> int:
        """How many streams it is for."""
        return max((one.stream for one in self.segments), default=-1) + 1

    def __str__(self) -> str:
        return f"{format_bytes(self.size_bytes)} in {plural(len(self.segments), 'segment')}"

    def save(self, path: str | Path) -> None:
        """Write it as JSON, for another process to begin with.

        Args:
            path: The file; one that is there is replaced.
        """
        rows = [[one.size_bytes, one.is_small, one.stream] for one in self.segments]
        Path(path).write_text(json.dumps({"version": _VERSION, "segments": rows}) + "\n", "utf-8")

    @classmethod
    def load(cls, path: str | Path) -> PoolNeeds:
        """Read what `save` wrote.

        Args:
            path: The file.

        Raises:
            RuntimeMemoryError: It cannot be read, or is something else.
        """
        try:
            found: Any = json.loads(Path(path).read_text("utf-8"))
            if found["version"] != _VERSION:
                raise ValueError(f"its version is {found['version']}, {_VERSION} can be read")
            return cls(segments=tuple(_need(*row) for row in found["segments"]))
        except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
            raise RuntimeMemoryError(
                f"{path} does not say what a pool needs ({error}); write it with PoolNeeds.save()"
            ) from None


def _need(size_bytes: Any, is_small: Any, stream: Any) -> SegmentNeed:
    if type(size_bytes) is not int or type(is_small) is not bool or type(stream) is not int:
        raise ValueError(f"{[size_bytes, is_small, stream]} is no segment")
    return SegmentNeed(size_bytes=size_bytes, is_small=is_small, stream=stream)


def learn_needs(
    step: Callable[[], Any], *, streams: Sequence[torch.cuda.Stream] = (), device: torch.device | str = "cuda"
) -> PoolNeeds:
    """Run a step, and say what it took from the driver.

    What is cached is given back first, so that the step has to ask for all that it needs. Where shapes vary, pass a function
    that runs several steps. Private pools, as those of CUDA graphs, are left out.

    Args:
        step: What is run, once.
        streams: The streams that it allocates on; none: the current one. `prewarm` is to be given them in the same order. What
            was taken on others is left out, with a warning.
        device: The GPU.

    Raises:
        DeviceError: There is no GPU.
        RuntimeMemoryError: The process has an allocator of its own.

    Cost: waits for the GPU; the step.
    """
    allocator = allocator_of(device)
    allocator.give_back()
    held, before = {one.address: one.size_bytes for one in allocator.segments()}, allocator.state()
    step()
    allocator.wait()
    segments = allocator.segments()
    if not segments:
        grown = allocator.state().reserved_bytes - before.reserved_bytes
        return PoolNeeds(segments=(SegmentNeed(size_bytes=grown),) if grown > 0 else ())
    numbers = {allocator.handle(stream): number for number, stream in enumerate(streams or (None,))}
    grown_by = [(one, one.size_bytes - held.get(one.address, 0)) for one in segments]
    left_out = sum(size for one, size in grown_by if size > 0 and one.stream not in numbers)
    if left_out:
        warnings.warn(
            f"the step took {format_bytes(left_out)} on streams that were not named, and that will not be prewarmed; name "
            "them by streams=[...]",
            stacklevel=2,
        )
    return PoolNeeds(
        segments=tuple(
            SegmentNeed(size_bytes=size, is_small=one.is_small, stream=numbers[one.stream])
            for one, size in grown_by
            if size > 0 and one.stream in numbers
        )
    )
