"""What a pass through a streamed model costs: predicted from what the link and the blocks take, and as it was."""

from __future__ import annotations

import math
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


_SLOW_SHARE = 0.8


@dataclass(frozen=True, kw_only=True)
class StreamPrediction:
    """What a pass forwards through a model's blocks costs.

    Attributes:
        moved_bytes: What crosses the link.
        link_bytes_per_s: The link's speed, as measured.
        compute_s: How long the blocks compute, in all.
        copy_s: How long the link copies, in all.
        step_s: How long the pass takes.
        probed_bytes_per_s: The link's speed when `ullage probe` measured this machine; None: it did not.
        disk_bytes: What is read from disk.
        disk_bytes_per_s: The disk's speed, as measured: the cache of files is part of it where reads go through that.
    """

    moved_bytes: int
    link_bytes_per_s: float
    compute_s: float
    copy_s: float
    step_s: float
    probed_bytes_per_s: float | None = None
    disk_bytes: int = 0
    disk_bytes_per_s: float = math.inf

    @classmethod
    def of(
        cls,
        plan: StreamPlan,
        compute_s: Sequence[float],
        link_bytes_per_s: float,
        probed_bytes_per_s: float | None = None,
        disk_bytes_per_s: float = math.inf,
    ) -> StreamPrediction:
        """Predict a pass from how long each block computes and how fast the link is.

        Args:
            plan: Which blocks are streamed.
            compute_s: How long each block computes, in seconds.
            link_bytes_per_s: The link's speed.
            probed_bytes_per_s: What it was when the machine was probed; None: it was not.
            disk_bytes_per_s: The disk's speed, where blocks lie there.
        """
        return cls(
            moved_bytes=plan.moved_bytes,
            link_bytes_per_s=link_bytes_per_s,
            compute_s=sum(compute_s),
            copy_s=plan.moved_bytes / link_bytes_per_s,
            step_s=plan.step_s(compute_s, link_bytes_per_s, disk_bytes_per_s),
            probed_bytes_per_s=probed_bytes_per_s,
            disk_bytes=plan.disk_bytes,
            disk_bytes_per_s=disk_bytes_per_s,
        )

    @property
    def limit(self) -> str:
        """What limits the pass: "disk", "link" or "compute"."""
        if self.read_s > max(self.copy_s, self.compute_s):
            return "disk"
        return "link" if self.copy_s > self.compute_s else "compute"

    @property
    def read_s(self) -> float:
        """How long the disk reads, in all."""
        return self.disk_bytes / self.disk_bytes_per_s

    @property
    def is_link_slow(self) -> bool:
        """Whether the link is far slower than when it was probed."""
        probed = self.probed_bytes_per_s
        return probed is not None and self.moved_bytes > 0 and self.link_bytes_per_s < _SLOW_SHARE * probed

    def against(self, measured_s: float) -> str:
        """Say how a pass went beside what was predicted.

        Args:
            measured_s: What `StreamedModel.measured_s` returned.
        """
        took, foretold = (format_duration(round(one * 1e6)) for one in (measured_s, self.step_s))
        return f"took {took}, {foretold} were predicted: {measured_s / self.step_s - 1:+.1%}"

    def __str__(self) -> str:
        slow = ""
        if self.is_link_slow and self.probed_bytes_per_s is not None:
            slow = (
                f"\n  the link gave {self.probed_bytes_per_s / 1e9:.1f} GB/s when this machine was probed: something else "
                "copies now, or the host's memory is far from this GPU"
            )
        step, compute, copy = (format_duration(round(one * 1e6)) for one in (self.step_s, self.compute_s, self.copy_s))
        read = ""
        if self.disk_bytes:
            took = format_duration(round(self.read_s * 1e6))
            read = f"\n  {format_bytes(self.disk_bytes)} are read from disk at {self.disk_bytes_per_s / 1e9:.1f} GB/s: {took}"
        why = {
            "disk": "the disk limits it: more tokens a pass cost nothing until computing takes as long",
            "link": "the link limits it: more tokens a pass cost nothing until computing takes as long",
            "compute": "computing limits it: the copies hide behind it",
        }
        return (
            f"{step} a pass, {self.step_s / self.compute_s:.2f} x what computing takes; {why[self.limit]}\n"
            f"  {format_bytes(self.moved_bytes)} move at {self.link_bytes_per_s / 1e9:.1f} GB/s: {copy}\n"
            f"  the blocks compute for {compute}{read}{slow}"
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
