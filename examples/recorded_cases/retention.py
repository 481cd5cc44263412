"""Python references and autograd graphs that keep tensors alive, and the twins in which nothing is wrong."""

from __future__ import annotations

import functools
import gc
import random
from typing import Any

import torch

from recorded_cases.registry import DEVICE, MIB, Program, case, mlp


@case()
def eval_sum_control_item() -> Program:
    model, total = mlp(2048, 1), 0.0
    for _ in range(20):
        x = torch.randn(2048, 2048, device=DEVICE)
        total += model(x).mean().item()
    yield None


@case()
def eval_sum_after_backward() -> Program:
    model, total = mlp(2048, 1), 0.0
    for _ in range(20):
        x = torch.randn(2048, 2048, device=DEVICE)
        loss = model(x).mean()
        loss.backward()
        total = total + loss
        model.zero_grad(set_to_none=True)
    yield None


class CachesItself(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4096, 4096)

    @functools.lru_cache(maxsize=32)  # noqa: B019 - the mistake that this case shows
    def num_positions(self, height: int, width: int) -> int:
        return height * width


@case()
def lru_model() -> Program:
    for _ in range(8):
        model = CachesItself().to(DEVICE)
        model.num_positions(8, 8)
        del model
        gc.collect()
    yield None


@case()
def lru_model_cleared() -> Program:
    for _ in range(8):
        model = CachesItself().to(DEVICE)
        model.num_positions(8, 8)
        del model
        CachesItself.num_positions.cache_clear()
    yield None


class KeepsOutputOnContext(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.y = y = x.clone()
        return y


class SavesOutput(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        y = x.clone()
        ctx.save_for_backward(y)
        return y


@case()
def ctx_cycle() -> Program:
    gc.disable()
    x = torch.randn(8 * MIB, device=DEVICE, requires_grad=True)
    for _ in range(8):
        y = KeepsOutputOnContext.apply(x)
        del y
    yield None


@case()
def ctx_saved() -> Program:
    gc.disable()
    x = torch.randn(8 * MIB, device=DEVICE, requires_grad=True)
    for _ in range(8):
        y = SavesOutput.apply(x)
        del y
    yield None


@case()
def eval_concat() -> Program:
    preds = None
    for _ in range(12):
        logits = torch.randn(4, 256, 30522, device=DEVICE)
        preds = logits if preds is None else torch.cat([preds, logits])
    yield None


@case()
def eval_argmax() -> Program:
    preds = None
    for _ in range(12):
        best = torch.randn(4, 256, 30522, device=DEVICE).argmax(-1)
        preds = best if preds is None else torch.cat([preds, best])
    yield None


@case()
def cache_settles() -> Program:
    rng, masks, layer = random.Random(9), {}, torch.nn.Linear(2048, 2048, device=DEVICE)
    for _ in range(60):
        n = rng.choice([256, 512, 768, 1024, 1536, 2048])
        if n not in masks:
            masks[n] = torch.ones(n, n, device=DEVICE).tril()
        y = layer(masks[n] @ torch.randn(n, 2048, device=DEVICE))
        y.sum().backward()
        layer.zero_grad(set_to_none=True)
    yield None


@case()
def leak_no_annotations() -> Program:
    """Train without torch.optim, so that nothing marks the steps, and keep every third step's activations."""
    torch.manual_seed(0)
    weights = [torch.randn(1024, 1024, device=DEVICE).div_(32).requires_grad_() for _ in range(4)]
    kept = []
    for step in range(24):
        h = torch.randn(1024 + 64 * (step % 5), 1024, device=DEVICE)
        for weight in weights:
            h = torch.relu(h @ weight)
        if step % 3 == 2:
            kept.append(h)
        grads = torch.autograd.grad(h.square().mean(), weights)
        with torch.no_grad():
            for weight, grad in zip(weights, grads, strict=True):
                weight -= 0.01 * grad
        del h, grads, grad
    yield None


@case()
def kv_growth() -> Program:
    def keys_or_values(num_tokens: int) -> torch.Tensor:
        return torch.randn(32, 16, num_tokens, 128, device=DEVICE, dtype=torch.half)

    k, v = keys_or_values(64), keys_or_values(64)
    for _ in range(60):
        q = keys_or_values(1)
        k = torch.cat([k, keys_or_values(1)], dim=2)
        v = torch.cat([v, keys_or_values(1)], dim=2)
        (q @ k.transpose(2, 3)).softmax(-1) @ v
    del k, v
    keys_or_values(64)
    yield None


@case()
def autocast_cache() -> Program:
    """Casts of 16 weights stay until autocast ends; without that cache, one weight used 32 times is saved 32 times."""
    layers = torch.nn.Sequential(*[torch.nn.Linear(2048, 2048, bias=False) for _ in range(16)]).to(DEVICE)
    x, seen = torch.randn(64, 2048, device=DEVICE), {}
    before = torch.cuda.memory_allocated()
    with torch.no_grad(), torch.autocast(DEVICE, dtype=torch.bfloat16):
        layers(x)
        seen["inside_bytes"] = torch.cuda.memory_allocated() - before
    seen["after_bytes"] = torch.cuda.memory_allocated() - before
    for is_cached in (True, False):
        before = torch.cuda.memory_allocated()
        with torch.autocast(DEVICE, dtype=torch.bfloat16, cache_enabled=is_cached):
            y = x
            for _ in range(32):
                y = layers[0](y)
        seen[f"reuse_bytes_cache_{is_cached}"] = torch.cuda.memory_allocated() - before
        del y
    yield seen


@case()
def cublas_workspaces() -> Program:
    a = torch.randn(64, 64, device=DEVICE)
    for stream in [torch.cuda.Stream() for _ in range(8)]:
        with torch.cuda.stream(stream):
            a @ a
    del a
    torch.cuda.synchronize()
    gc.collect()
    torch.cuda.empty_cache()
    yield {"left_bytes": torch.cuda.memory_allocated()}


@case()
def cublas_workspaces_cleared() -> Program:
    seen = next(cublas_workspaces())
    if hasattr(torch._C, "_cuda_clearCublasWorkspaces"):
        torch._C._cuda_clearCublasWorkspaces()
        seen["after_clear_bytes"] = torch.cuda.memory_allocated()
    yield seen
