"""The list of cases, and the small programs that several of them share."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

MIB, GIB = 1 << 20, 1 << 30
DEVICE = "cuda"

# A case yields what it observed when it is over; the snapshot is taken there, while its variables are alive.
Program = Iterator[dict[str, Any] | None]


@dataclass(frozen=True, kw_only=True)
class Case:
    """A program to record: the allocator settings it needs and how its history is kept."""

    run: Callable[..., Program]
    conf: str = ""
    is_late: bool = False  # the program itself says when the recording begins
    history: dict[str, Any] = field(default_factory=dict)


CASES: dict[str, Case] = {}


def case(conf: str = "", variants: dict[str, str] | None = None, is_late: bool = False, **history: Any) -> Any:
    """Register a function as a case; each variant runs it again under other allocator settings as NAME.VARIANT."""

    def register(run: Callable[..., Program]) -> Callable[..., Program]:
        for suffix, settings in {"": conf, **(variants or {})}.items():
            name = f"{run.__name__}.{suffix}" if suffix else run.__name__
            CASES[name] = Case(run=run, conf=settings, is_late=is_late, history=history)
        return run

    return register


def buffer(num_bytes: float) -> torch.Tensor:
    return torch.empty(int(num_bytes), dtype=torch.uint8, device=DEVICE)


def limit_memory(num_bytes: int) -> None:
    torch.cuda.set_per_process_memory_fraction(num_bytes / torch.cuda.get_device_properties(0).total_memory)


def mlp(width: int = 1024, depth: int = 3) -> torch.nn.Sequential:
    torch.manual_seed(0)
    layers = [layer for _ in range(depth) for layer in (torch.nn.Linear(width, width), torch.nn.ReLU())]
    return torch.nn.Sequential(*layers, torch.nn.Linear(width, 1)).to(DEVICE)


def train(model: torch.nn.Module, optimizer: torch.optim.Optimizer, num_steps: int, rng: random.Random) -> None:
    for _ in range(num_steps):
        x = torch.randn(rng.randrange(256, 4096), model[0].in_features, device=DEVICE)
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


def churn(num_steps: int, num_slots: int, size: Callable[[], int]) -> Program:
    """Replace a random one of `num_slots` buffers at each step; a request that runs out of memory is given up."""
    rng, live, ooms = random.Random(1), {}, []
    for step in range(num_steps):
        slot = rng.randrange(num_slots)
        live.pop(slot, None)
        try:
            live[slot] = buffer(size())
        except torch.cuda.OutOfMemoryError:
            ooms.append(step)
    yield {"oom_steps": ooms}
