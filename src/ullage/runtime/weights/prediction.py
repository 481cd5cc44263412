"""What a pass through a streamed model costs: predicted from what the link and the blocks take, and as it was."""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from ullage.errors import RuntimeMemoryError
from ullage.units import format_bytes, format_duration

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import nn

    from ullage.runtime.weights.plan import StreamPlan


@dataclass(frozen=True, kw_only=True)
class StreamPrediction:
    """What a pass forwards through a model's blocks costs.

    Attributes:
        moved_bytes: What crosses the link.
        link_bytes_per_s: The link's speed, as measured.
        compute_s: How long the blocks compute, in all.
        copy_s: How long the link copies, in all.
        step_s: How long the pass takes.
    """

    moved_bytes: int
    link_bytes_per_s: float
    compute_s: float
    copy_s: float
    step_s: float

    @classmethod
    def of(cls, plan: StreamPlan, compute_s: Sequence[float], link_bytes_per_s: float) -> StreamPrediction:
        """Predict a pass from how long each block computes and how fast the link is."""
        return cls(
            moved_bytes=plan.moved_bytes,
            link_bytes_per_s=link_bytes_per_s,
            compute_s=sum(compute_s),
            copy_s=plan.moved_bytes / link_bytes_per_s,
            step_s=plan.step_s(compute_s, link_bytes_per_s),
        )

    @property
    def limit(self) -> str:
        """What limits the pass: "link" or "compute"."""
        return "link" if self.copy_s > self.compute_s else "compute"

    def __str__(self) -> str:
        step, compute, copy = (format_duration(round(one * 1e6)) for one in (self.step_s, self.compute_s, self.copy_s))
        why = {
            "link": "the link limits it: more tokens a pass cost nothing until computing takes as long",
            "compute": "computing limits it: the copies hide behind it",
        }
        return (
            f"{step} a pass, {self.step_s / self.compute_s:.2f} x what computing takes; {why[self.limit]}\n"
            f"  {format_bytes(self.moved_bytes)} move at {self.link_bytes_per_s / 1e9:.1f} GB/s: {copy}\n"
            f"  the blocks compute for {compute}"
        )


class StepClock:
    """Times passes through the blocks, on the GPU's own clock where there is one."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._begin: Any = None
        self._end: Any = None

    def start(self) -> None:
        """Begin a pass."""
        self._begin, self._end = _now(self._device), None

    def stop(self) -> None:
        """End it."""
        self._end = _now(self._device)

    def seconds(self) -> float:
        """Return how long the last pass took.

        Raises:
            RuntimeMemoryError: There was none, or it did not reach its end.
        """
        if self._begin is None or self._end is None:
            raise RuntimeMemoryError("no pass was run to its end")
        return _between(self._begin, self._end)


def block_seconds(
    model: nn.Module, blocks: Sequence[nn.Module], device: torch.device, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> list[float]:
    """Run a model twice without gradients; return how long each block computed the second time, in seconds.

    Raises:
        RuntimeMemoryError: The model did not run each of its blocks once.
    """
    begins: list[Any] = []
    ends: list[Any] = []
    with ExitStack() as stack, torch.no_grad():
        for block in blocks:
            hooks = (
                block.register_forward_pre_hook(lambda *_: begins.append(_now(device))),
                block.register_forward_hook(lambda *_: ends.append(_now(device)), prepend=True),
            )
            for hook in hooks:
                stack.callback(hook.remove)
        for _ in range(2):
            begins.clear()
            ends.clear()
            model(*args, **kwargs)
    if len(begins) != len(blocks) or len(ends) != len(blocks):
        raise RuntimeMemoryError(f"of {len(blocks)} blocks, {len(ends)} ran: each must run once in a pass")
    return [_between(begin, end) for begin, end in zip(begins, ends, strict=True)]


def _now(device: torch.device) -> Any:
    if device.type != "cuda":
        return time.perf_counter()
    event = torch.cuda.Event(enable_timing=True)
    event.record(torch.cuda.current_stream(device))
    return event


def _between(begin: Any, end: Any) -> float:
    if isinstance(begin, float):
        return float(end - begin)
    end.synchronize()
    return float(begin.elapsed_time(end)) / 1000
