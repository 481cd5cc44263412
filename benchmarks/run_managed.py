"""Times managed memory as the driver moves it and as it is moved ahead, beside copies from pinned memory of the same bytes.

    python -m benchmarks.run_managed [--out FILE] [--mib 1024]

At most `--mib` are managed at once. Each figure is a median over rounds that take turns; before each, the memory is brought
back to the host and the GPU is waited for. Times are between CUDA events, so they hold what the GPU waits for; those of the
host are of the call alone.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from benchmarks.machine import machine
from torch import nn

from ullage.runtime.managed import (
    discard,
    discard_and_prefetch,
    host_view,
    manage,
    managed_bytes,
    managed_tensor,
    prefetch,
    prefetching,
)
from ullage.runtime.managed.cuda_calls import CudaCalls, calls_for
from ullage.runtime.managed.memory import span_of
from ullage.runtime.managed.roles import HOST
from ullage.runtime.weights import stream as stream_weights

RESULTS = Path(__file__).parent / "results" / "managed.json"
MIB = 1 << 20
ROUNDS = 3
MOST_BYTES = 2 << 30
LAYERS = 16
WIDTH = 4096
BATCH = 8192


def timed(run: Callable[[], Any]) -> dict[str, float]:
    """Return milliseconds between events around a call, and those of the host in it."""
    torch.cuda.synchronize()
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    start = time.perf_counter()
    run()
    host = time.perf_counter() - start
    end.record()
    torch.cuda.synchronize()
    return {"ms": begin.elapsed_time(end), "host_ms": host * 1000}


def summary(times: Sequence[dict[str, float]], size_bytes: int) -> dict[str, float]:
    ms = [one["ms"] for one in times]
    median = statistics.median(ms)
    return {
        "ms": median,
        "min_ms": min(ms),
        "max_ms": max(ms),
        "host_ms": statistics.median(one["host_ms"] for one in times),
        "gb_per_s": size_bytes / median / 1e6,
    }


def take_turns(
    contenders: dict[str, Callable[[], Any]], before: Callable[[], Any], size_bytes: int, rounds: int = ROUNDS
) -> dict[str, dict[str, float]]:
    """Time contenders one after another, some rounds; `before` each, outside of the time."""
    times: dict[str, list[dict[str, float]]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, run in contenders.items():
            before()
            times[name].append(timed(run))
    return {name: summary(one, size_bytes) for name, one in times.items()}


def nothing() -> None:
    """Do nothing before a round."""


def chunks_of(size_bytes: int, num: int, role: str = "moved") -> list[torch.Tensor]:
    """Make managed tensors that the host has written."""
    assert managed_bytes() + size_bytes <= MOST_BYTES
    assert calls_for("cuda").free_gpu_bytes() > MOST_BYTES
    made = [managed_tensor((size_bytes // num // 4,), torch.float32, role=role) for _ in range(num)]
    for one in made:
        host_view(one).fill_(1)
    return made


def total(tensors: Sequence[torch.Tensor]) -> None:
    for one in tensors:
        one.sum()


def each(chunks: Sequence[torch.Tensor], location: int = 0) -> None:
    """Prefetch with one call for each range, as a schedule does."""
    spans = [span_of(one)[1] for one in chunks]
    calls = calls_for("cuda")
    with calls.stream() as stream:
        calls.prefetch_each(spans, location, stream)


def time_moves(size_bytes: int, num: int) -> dict[str, Any]:
    """Bring memory that lies on the host to the GPU, by every way there is."""
    chunks = chunks_of(size_bytes, num)
    pinned = torch.ones(size_bytes // 4, dtype=torch.float32, pin_memory=True)
    plain = torch.empty(size_bytes // 4, dtype=torch.float32, device="cuda")
    parts = list(zip(plain.chunk(num), pinned.chunk(num), strict=True))
    contenders = {
        "touched: page faults": lambda: total(chunks),
        "prefetched, one call each": lambda: each(chunks),
        "prefetched, one batch": lambda: prefetch(chunks),
        "discarded and prefetched, one batch": lambda: discard_and_prefetch(chunks),
        "pinned copies": lambda: [here.copy_(there, non_blocking=True) for here, there in parts],
    }
    found: dict[str, Any] = {"size_bytes": size_bytes, "num_ranges": num}
    found["to the GPU"] = take_turns(contenders, lambda: prefetch(chunks, to="host"), size_bytes)
    prefetch(chunks)
    back = {
        "prefetched to the host, one call each": lambda: each(chunks, HOST),
        "prefetched to the host, one batch": lambda: prefetch(chunks, to="host"),
        "discarded": lambda: discard(chunks),
        "pinned copies": lambda: [there.copy_(here, non_blocking=True) for here, there in parts],
    }
    found["from the GPU"] = take_turns(back, lambda: prefetch(chunks), size_bytes)
    prefetch(chunks)
    found["read on the GPU"] = take_turns(
        {"managed": lambda: total(chunks), "plain": lambda: plain.sum()}, nothing, size_bytes
    )
    return found


def time_roles(size_bytes: int) -> dict[str, Any]:
    """Let the host and the GPU read the same memory in turn, by role; and read across the link."""
    found: dict[str, Any] = {"size_bytes": size_bytes}
    for role in ("moved", "lookup", "cache", "seldom"):
        (data,) = chunks_of(size_bytes, 1, role)
        seen = host_view(data)
        gpu: list[dict[str, float]] = []
        host = []
        for _ in range(4):
            torch.cuda.synchronize()
            start = time.perf_counter()
            seen.sum()
            host.append((time.perf_counter() - start) * 1000)
            gpu.append(timed(data.sum))
        found[role] = {
            "first": summary(gpu[:1], size_bytes),
            "later": summary(gpu[1:], size_bytes),
            "host_first_ms": host[0],
            "host_later_ms": statistics.median(host[1:]),
        }
        del data, seen
        gc.collect()
    return found


class Model(nn.Module):
    """Layers of bfloat16 weights without biases, and without gradients."""

    def __init__(self, size_bytes: int) -> None:
        super().__init__()
        rows = size_bytes // LAYERS // 2 // WIDTH // 2
        where: dict[str, Any] = {"bias": False, "device": "cuda", "dtype": torch.bfloat16}
        self.layers = nn.ModuleList(
            nn.Sequential(nn.Linear(WIDTH, rows, **where), nn.ReLU(), nn.Linear(rows, WIDTH, **where))
            for _ in range(LAYERS)
        )
        self.requires_grad_(False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


class ModelTimes:
    """Times of passes of one model, and whether each computed the same.

    Attributes:
        found: By what was done.
    """

    def __init__(self, size_bytes: int) -> None:
        torch.manual_seed(0)
        self.model = Model(size_bytes)
        self.x = torch.randn(BATCH, WIDTH, device="cuda", dtype=torch.bfloat16)
        self.want = self.model(self.x)
        self.size_bytes = sum(one.numel() * one.element_size() for one in self.model.parameters())
        self.found: dict[str, Any] = {"size_bytes": self.size_bytes, "layers": LAYERS, "batch": BATCH, "same": {}}

    def take(self, name: str, before: Callable[[], Any] = nothing, rounds: int = ROUNDS) -> dict[str, float]:
        """Time passes; return the figures."""
        figures = take_turns({name: lambda: self.model(self.x)}, before, self.size_bytes, rounds)[name]
        self.found[name] = figures
        self.found["same"][name] = torch.equal(self.model(self.x), self.want)
        return figures

    def to_host(self) -> None:
        prefetch(list(self.model.parameters()), to="host")


def time_model(size_bytes: int) -> dict[str, Any]:
    """Run a model whose weights begin each pass on the host, and one that may keep a part of them on the GPU."""
    times = ModelTimes(size_bytes)
    model = times.model
    times.take("resident")
    assert times.size_bytes + managed_bytes() <= MOST_BYTES
    managed = manage(model)
    times.take("page faults", times.to_host)
    for ahead in (0, 1, 2, 4):
        with prefetching(model, ahead=ahead, modules=model.layers) as run:
            model(times.x)

            def cold(run: Any = run) -> None:
                times.to_host()
                run.forget()

            times.take(f"prefetched, {ahead} ahead", cold)
    for name, share in (("half", 2), ("quarter", 4)):
        times.to_host()
        with prefetching(model, ahead=2, gpu_bytes=times.size_bytes // share, modules=model.layers) as run:
            for _ in range(2):
                model(times.x)
            brought, away, late = run.stats.brought_bytes, run.stats.sent_away_bytes, run.stats.late_bytes
            figures = times.take(f"{name} on the GPU: prefetched, 2 ahead", rounds=5)
            figures["brought_bytes_per_pass"] = (
                run.stats.brought_bytes - brought
            ) // 6  # one more has compared results
            figures["sent_away_bytes_per_pass"] = (run.stats.sent_away_bytes - away) // 6
            figures["late_bytes"] = run.stats.late_bytes - late
    managed.unmanage()
    for name, share in (("half", 2), ("quarter", 4)):
        with stream_weights(model, times.size_bytes // share):
            model(times.x)
            times.take(f"{name} on the GPU: streamed by runtime.weights", rounds=5)
    return times.found


def rows_of(found: dict[str, dict[str, float]], size_bytes: int) -> list[str]:
    return [
        f"| {name} | {one['ms']:.2f} ({one['min_ms']:.2f} to {one['max_ms']:.2f}) | {one['host_ms']:.2f} | "
        f"{one['gb_per_s']:.1f} |"
        for name, one in found.items()
    ]


def table(found: dict[str, Any]) -> str:
    head = ["| ms (least to most) | host's ms | GB/s |", "|---|---|---|---|"]
    lines = []
    for moves in found["moves"]:
        size, num = moves["size_bytes"], moves["num_ranges"]
        for way in ("to the GPU", "from the GPU", "read on the GPU"):
            lines += ["", f"| {size // MIB} MiB in {num} ranges, {way} {head[0]}", head[1]]
            lines += rows_of(moves[way], size)
    roles = found["roles"]
    lines += [
        "",
        f"| {roles['size_bytes'] // MIB} MiB, host and GPU read in turn | GPU first, ms | GPU later, ms | host later, ms |",
    ]
    lines.append("|---|---|---|---|")
    for role in ("moved", "lookup", "cache", "seldom"):
        one = roles[role]
        lines.append(f"| {role} | {one['first']['ms']:.2f} | {one['later']['ms']:.2f} | {one['host_later_ms']:.2f} |")
    model = found["model"]
    passes = {name: one for name, one in model.items() if isinstance(one, dict) and "ms" in one}
    lines += ["", f"| a pass, {model['size_bytes'] // MIB} MiB of weights {head[0]}", head[1]]
    lines += rows_of(passes, model["size_bytes"])
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--mib", type=int, default=1024)
    asked = parser.parse_args()
    size = asked.mib * MIB
    found: dict[str, Any] = {"machine": machine()}
    calls = calls_for("cuda")
    assert isinstance(calls, CudaCalls)

    def note(name: str, value: Any) -> None:
        found[name] = value
        found["has_batches"] = calls.has_batches
        asked.out.write_text(json.dumps(found, indent=1) + "\n")
        print(f"{name} is done", file=sys.stderr, flush=True)

    moves = []
    for size_bytes, num in ((size // 4, 1), (size, 16), (size // 4, 1024)):
        moves.append(time_moves(size_bytes, num))
        gc.collect()
        note("moves", moves)
    note("roles", time_roles(size // 4))
    note("model", time_model(size))
    print(table(found))


if __name__ == "__main__":
    main()
