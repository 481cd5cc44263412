"""Moves managed tensors ahead of their use, and discards what is no longer needed: many at once, in the stream's order."""

from __future__ import annotations

import mmap
from typing import TYPE_CHECKING

from ullage.errors import RuntimeMemoryError
from ullage.runtime.managed.memory import ManagedRange, range_of, span_of
from ullage.runtime.managed.roles import HOST

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

    from ullage.runtime.managed.cuda_calls import Calls, Span


def prefetch(tensors: Sequence[torch.Tensor], *, to: str = "gpu") -> None:
    """Move managed tensors to their GPU or to the host, after what was issued on the current stream, before what will be.

    The GPU is the one whose tensors they are: of a `gpu_view`, the other one.

    Whoever touches a page before it has arrived waits for it, so this changes times and nothing else.

    Args:
        tensors: Managed tensors of one GPU, or views of some.
        to: "gpu" or "host".

    Raises:
        RuntimeMemoryError: One is not managed, they are of several GPUs, or the driver refuses. Nothing was moved.

    Cost: one call where the driver has CUDA 13's batches, else one for each tensor. The driver may keep the host for as long as
    the move takes, and does with batches (measured on torch 2.11, driver 580.159.04, one H200: 22.9 ms of a move of 23.3 ms).
    """
    if to not in ("gpu", "host"):
        raise RuntimeMemoryError(f"{to!r} is no place to move to: 'gpu' or 'host'")
    found = [span_of(tensor) for tensor in tensors]
    if found:
        calls, gpu = _calls_of(tensors, [one for one, _ in found])
        with calls.stream() as stream:
            calls.prefetch(_some([span for _, span in found]), HOST if to == "host" else gpu, stream)


def discard(tensors: Sequence[torch.Tensor]) -> None:
    """Say that what managed tensors hold is not needed any more, so that it is not copied when memory is short.

    Until they are written to, what they hold is indeterminate; `ReadGuard` raises where it is read. Where the driver lacks the
    call, nothing happens to them, which is one of the things that may.

    Args:
        tensors: Managed tensors of one GPU, each the only one over its memory.

    Raises:
        RuntimeMemoryError: One is not managed, or a view of a part; they are of several GPUs; or the driver refuses. Nothing
            was discarded.

    Cost: one call. The driver may keep the host for as long as it takes.
    """
    if ranges := [_whole(tensor) for tensor in tensors]:
        calls, _ = _calls_of(tensors, ranges)
        with calls.stream() as stream:
            calls.discard([one.span for one in ranges], stream)
        _lose(ranges)


def discard_and_prefetch(tensors: Sequence[torch.Tensor]) -> None:
    """Give managed tensors room on their GPU without what they hold: for what will be written next.

    Args:
        tensors: Managed tensors of one GPU, each the only one over its memory.

    Raises:
        RuntimeMemoryError: As `discard`.

    Cost: one call and no copy, for which the driver may keep the host; where it lacks the call, as `prefetch`.
    """
    if ranges := [_whole(tensor) for tensor in tensors]:
        calls, gpu = _calls_of(tensors, ranges)
        with calls.stream() as stream:
            calls.discard_and_prefetch([one.span for one in ranges], gpu, stream)
        _lose(ranges)


def written(tensors: Sequence[torch.Tensor]) -> None:
    """Take note that discarded tensors hold something again, written by what torch does not see, such as a kernel of yours.

    Args:
        tensors: Managed tensors; others are passed over.
    """
    for tensor in tensors:
        one = range_of(tensor)
        if one is not None:
            one.is_lost = False


def _lose(ranges: Sequence[ManagedRange]) -> None:
    for one in ranges:
        one.is_lost = True


def _whole(tensor: torch.Tensor) -> ManagedRange:
    """Return a tensor's range, which it fills but for the end of the last page."""
    one, span = span_of(tensor)
    if span.address != one.address or span.size_bytes <= one.size_bytes - mmap.PAGESIZE or not tensor.is_contiguous():
        raise RuntimeMemoryError("only a whole managed tensor can be discarded, not a view of a part of one")
    return one


def _calls_of(tensors: Sequence[torch.Tensor], ranges: Sequence[ManagedRange]) -> tuple[Calls, int]:
    """Return the calls of the GPU that all tensors are of, and its number."""
    found = [one.calls_of(tensor.device) for tensor, one in zip(tensors, ranges, strict=True)]
    if any(one is not found[0] for one in found):
        gpus = ", ".join(dict.fromkeys(str(one.device) for one in found))
        raise RuntimeMemoryError(f"tensors of several GPUs ({gpus}) cannot be moved in one call")
    return found[0], found[0].device.index or 0


def _some(spans: Sequence[Span]) -> list[Span]:
    return [span for span in spans if span.size_bytes]
