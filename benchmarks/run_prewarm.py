"""Times first and later steps with and without pools that were filled before, under each of PyTorch's allocators.

    python -m benchmarks.run_prewarm [--out FILE]

Each contender is a process of its own, since the allocator is chosen when a process begins. A step trains a small transformer
on a batch whose length varies from step to step. Two kinds of first steps are timed: that of the process, which also loads
kernels and libraries; and, kernels loaded, that after all cached memory was given back (rounds, of which the median counts).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from benchmarks.machine import machine
from torch import nn

from ullage.runtime.pools import PoolNeeds, allocations_of, learn_needs, prewarm, prewarm_driver_pool
from ullage.runtime.pools.driver_pool import CudaPoolCalls

RESULTS = Path(__file__).parent / "results" / "prewarm.json"
ALLOCATORS = {
    "native": "",
    "expandable segments": "expandable_segments:True",
    "cudaMallocAsync": "backend:cudaMallocAsync",
}
LENGTHS = (512, 768, 1024, 640, 1152, 512)  # the last is the first, with all memory there
BATCH, WIDTH, HEADS, LAYERS = 8, 1024, 16, 8
NUM_ROUNDS = 5
POOL_BYTES = 1 << 30


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm_1, self.norm_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        q, k, v = self.qkv(self.norm_1(x)).view(batch, length, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        attended = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, length, WIDTH))
        out: torch.Tensor = x + self.down(nn.functional.gelu(self.up(self.norm_2(x))))
        return out


class Trainer:
    """A model, its optimizer, and a step."""

    def __init__(self, device: str) -> None:
        torch.manual_seed(0)
        self.device = device
        self.model = nn.Sequential(*(Layer() for _ in range(LAYERS))).to(device, torch.bfloat16)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4)

    def step(self, length: int) -> None:
        x = torch.randn(BATCH, length, WIDTH, device=self.device, dtype=torch.bfloat16)
        self.model(x).float().square().mean().backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)


def timed_step(trainer: Trainer, length: int) -> dict[str, float]:
    """Run a step; return its time between events, and what it asked of the driver."""
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)

    def run() -> None:
        begin.record()
        trainer.step(length)
        end.record()

    seen = allocations_of(run)
    return {
        "ms": begin.elapsed_time(end),
        "wall_ms": seen.duration_us / 1000,
        "device_allocs": seen.num_device_allocs,
        "reserved_bytes": seen.reserved_bytes,
    }


def train(needs_file: Path, is_warm: bool) -> dict[str, Any]:
    """Time the process's own first steps, then rounds that begin with nothing cached."""
    trainer = Trainer("cuda")
    needs = PoolNeeds.load(needs_file) if is_warm else PoolNeeds(segments=())
    found: dict[str, Any] = {"first_steps": []}

    def first_steps() -> None:
        found["first_steps"] = [timed_step(trainer, length) for length in LENGTHS]

    if is_warm:
        done = prewarm(needs)
        found["prewarm"] = {"ms": done.duration_us / 1000, "reserved_bytes": done.reserved_bytes, "said": str(done)}
        found["prewarm"]["device_allocs"] = done.num_device_allocs
        first_steps()
    else:
        needs = learn_needs(first_steps)
        needs.save(needs_file)
    found["needs_bytes"], found["needs_segments"] = needs.size_bytes, len(needs.segments)
    found["rounds"] = []
    for _ in range(NUM_ROUNDS):
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        one = {"prewarm_ms": prewarm(needs).duration_us / 1000 if is_warm else 0.0}
        found["rounds"].append({**one, "steps": [timed_step(trainer, length) for length in LENGTHS]})
    found["reserved_bytes"] = torch.cuda.memory_reserved()
    return found


def driver_pool() -> dict[str, Any]:
    """Time `cudaMallocAsync` pairs, each waited for: as the pool is, and prewarmed."""
    torch.cuda.init()
    calls = CudaPoolCalls("cuda", None, torch.cuda.Stream())

    def pair_ms() -> float:
        seen = allocations_of(lambda: calls.free(calls.allocate(POOL_BYTES)))
        calls.wait()
        return seen.duration_us / 1000

    def some(make: Callable[[], Any] = lambda: None) -> dict[str, float]:
        make()
        times = [pair_ms() for _ in range(6)]
        return {"first_ms": times[0], "later_ms": statistics.median(times[1:]), "kept_bytes": calls.reserved_bytes()}

    found: dict[str, Any] = {"pair_bytes": POOL_BYTES, "as it is": some()}
    found["prewarmed"] = some(lambda: found.update(prewarm=str(prewarm_driver_pool(POOL_BYTES))))
    return found


def child(task: str, needs_file: Path, is_warm: bool, settings: str) -> dict[str, Any]:
    """Run one task in a process of its own, with the allocator set."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTORCH_")}
    if settings:
        environment |= {"PYTORCH_ALLOC_CONF": settings, "PYTORCH_CUDA_ALLOC_CONF": settings}
    command = [sys.executable, "-m", "benchmarks.run_prewarm", "--task", task, "--needs", str(needs_file)]
    done = subprocess.run(
        [*command, *(["--warm"] if is_warm else [])], env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise SystemExit(f"{task} under {settings or 'the native allocator'} failed:\n{done.stderr[-3000:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def median_step(rounds: list[dict[str, Any]], index: int, key: str) -> float:
    return float(statistics.median(one["steps"][index][key] for one in rounds))


def table(found: dict[str, Any]) -> str:
    lines = [
        "| allocator | filled before | filling | process's step 1 | step 1, kernels loaded | its driver calls | step 2 | its "
        "driver calls | step 6, as long as step 1 |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name in ALLOCATORS:
        for kind in ("cold", "warm"):
            one = found[name][kind]
            rounds, last = one["rounds"], len(LENGTHS) - 1
            filling = statistics.median(turn["prewarm_ms"] for turn in rounds)
            cells = [
                name,
                "yes" if kind == "warm" else "no",
                f"{filling:.1f} ms" if kind == "warm" else "",
                f"{one['first_steps'][0]['ms']:.0f} ms",
                f"{median_step(rounds, 0, 'ms'):.1f} ms",
                f"{median_step(rounds, 0, 'device_allocs'):.0f}",
                f"{median_step(rounds, 1, 'ms'):.1f} ms",
                f"{median_step(rounds, 1, 'device_allocs'):.0f}",
                f"{median_step(rounds, last, 'ms'):.1f} ms",
            ]
            lines.append(f"| {' | '.join(cells)} |")
    pool = found["driver pool"]
    lines += ["", "| driver's pool, 1 GiB, each pair waited for | first pair | later pairs |", "|---|---|---|"]
    for name in ("as it is", "prewarmed"):
        lines.append(f"| {name} | {pool[name]['first_ms']:.3f} ms | {pool[name]['later_ms']:.3f} ms |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--task", choices=["train", "pool"], help=argparse.SUPPRESS)
    parser.add_argument("--needs", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--warm", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.task:
        print(json.dumps(train(asked.needs, asked.warm) if asked.task == "train" else driver_pool()))
        return
    shape = {"batch": BATCH, "width": WIDTH, "layers": LAYERS, "lengths": LENGTHS, "rounds": NUM_ROUNDS}
    found: dict[str, Any] = {"machine": machine(), "shape": shape}
    with tempfile.TemporaryDirectory() as folder:
        for name, settings in ALLOCATORS.items():
            needs = Path(folder, f"{name}.json")
            found[name] = {kind: child("train", needs, kind == "warm", settings) for kind in ("cold", "warm")}
            print(f"{name} is done", file=sys.stderr, flush=True)
        found["driver pool"] = child("pool", Path(folder, "none"), False, "")
    asked.out.write_text(json.dumps(found, indent=1) + "\n")
    print(table(found))


if __name__ == "__main__":
    main()
