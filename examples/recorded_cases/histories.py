"""The ways in which a history can be kept: annotated, begun late, wrapped, without events, with other stacks."""

from __future__ import annotations

import random
from collections.abc import Callable

import torch

from recorded_cases.registry import DEVICE, Program, buffer, case, mlp, train


@case(global_record_annotations=True)
def metadata() -> Program:
    note = getattr(torch.cuda.memory, "_set_memory_metadata", lambda text: None)
    model = mlp(512)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for epoch in range(2):
        with torch.profiler.record_function(f"epoch {epoch}"):
            for _ in range(3):
                x = torch.randn(2048, 512, device=DEVICE)
                note("forward")
                with torch.profiler.record_function("forward"):
                    loss = model(x).square().mean()
                note("backward")
                with torch.profiler.record_function("backward"):
                    loss.backward()
                note("optimizer")
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
                note("")
    yield None


@case(is_late=True)
def late_start(begin: Callable[[], None]) -> Program:
    rng, model = random.Random(6), mlp()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    train(model, optimizer, 3, rng)
    old = [buffer(2 ** rng.uniform(9, 25)) for _ in range(40)]
    del old[::4]
    begin()
    train(model, optimizer, 3, rng)
    del old[::3]
    train(model, optimizer, 5, rng)
    yield None


@case(max_entries=500)
def wrapped() -> Program:
    model = mlp()
    train(model, torch.optim.AdamW(model.parameters(), lr=1e-4), 16, random.Random(7))
    yield None


@case(enabled="state")
def context_state() -> Program:
    model = mlp()
    train(model, torch.optim.AdamW(model.parameters(), lr=1e-4), 3, random.Random(8))
    yield None


@case(stacks="all")
def cpp_stacks() -> Program:
    model = mlp(256, 1)
    train(model, torch.optim.SGD(model.parameters(), lr=0.1), 2, random.Random(9))
    yield None


@case(context=None)
def no_stacks() -> Program:
    model = mlp(256)
    train(model, torch.optim.AdamW(model.parameters(), lr=1e-4), 4, random.Random(10))
    yield None


@case(skip_actions=["free_requested", "segment_alloc", "segment_free"])
def skipped_actions() -> Program:
    model = mlp(256)
    train(model, torch.optim.AdamW(model.parameters(), lr=1e-4), 4, random.Random(13))
    yield None
