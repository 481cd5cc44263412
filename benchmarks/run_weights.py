"""Times a model whose weights are streamed beside the same model resident on the GPU and offloaded by accelerate.

    python -m benchmarks.run_weights [--rounds 5] [--disk FOLDER] [--only PART] [--out FILE]

The model has twelve of Llama 3 8B's layers and random weights in bfloat16, 5.76 GB. Contenders take turns, and figures are
medians. The link's speed is that of pinned copies of a layer, measured in the same run. Then half of the streamed blocks lie on
disk, in `--disk` (by default where temporary files do): with reads past the cache of files, from a cold cache and from a warm
one, beside plain reads of as many bytes by as many threads, and beside accelerate. `--only` runs one part. `--small` tries the
script on a CPU.
"""

from __future__ import annotations

import argparse
import copy
import json
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import torch
from benchmarks.machine import machine as hardware
from benchmarks.streamed_model import (
    SHAPE,
    SHORT,
    SMALL,
    Machine,
    forward,
    ids_of,
    least_bytes,
    make_model,
)
from benchmarks.weights_on_disk import time_disk
from torch import nn

from ullage.runtime.weights import stream
from ullage.runtime.weights.blocks import find_blocks
from ullage.runtime.weights.coding import Storage
from ullage.runtime.weights.homes import stored_offsets

RESULTS = Path(__file__).parent / "results" / "weights.json"
RANK = 16
PARTS = ("pinning", "passes", "stored", "disk", "generate", "train")


class Lora(nn.Module):
    """A frozen layer with a low-rank one beside it, which learns."""

    def __init__(self, frozen: nn.Linear) -> None:
        super().__init__()
        self.frozen = frozen
        weight = frozen.weight
        self.a = nn.Parameter(torch.randn(RANK, weight.shape[1], dtype=weight.dtype, device=weight.device) * 0.02)
        self.b = nn.Parameter(torch.zeros(weight.shape[0], RANK, dtype=weight.dtype, device=weight.device))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.frozen(x) + nn.functional.linear(nn.functional.linear(x, self.a), self.b)
        return out


def time_passes(model: Any, machine: Machine, rounds: int, large: tuple[int, int]) -> dict[str, Any]:
    """Time passes of one short sequence and of a large batch: resident, streamed whole and in half, and by accelerate."""
    vocabulary = model.config.vocab_size
    short, many = ids_of(SHORT, machine, vocabulary), ids_of(large, machine, vocabulary)
    weights = sum(one.numel() * one.element_size() for one in model.parameters())
    times: dict[str, list[float]] = {}
    said: dict[str, Any] = {}
    wanted = {name: forward(model, ids) for name, ids in (("short", short), ("large", many))}

    def take(name: str, count: int = rounds) -> None:
        for kind, ids in (("short", short), ("large", many)):
            got = forward(model, ids)
            said[f"{name}, {kind}: same logits"] = bool(torch.equal(got, wanted[kind]))
            times.setdefault(f"{name}, {kind}", []).extend(
                machine.seconds(lambda ids=ids: forward(model, ids)) for _ in range(count)
            )

    for turn in range(2):
        take("resident")
        for name, budget in (("all on the host", least_bytes(model)), ("half", weights // 2)):
            run = stream(model, budget, device=machine.device)
            if not turn:
                for kind, ids in (("short", short), ("large", many)):
                    found = run.predict(input_ids=ids, use_cache=False, logits_to_keep=1)
                    print(f"{name}, {kind}: {found}", file=sys.stderr, flush=True)
                    said[f"{name}, {kind}: predicted_s"] = found.step_s
                    said[f"{name}, {kind}: limit"] = found.limit
                    said[f"{name}, {kind}: link_bytes_per_s"] = found.link_bytes_per_s
                said[f"{name}: moved_bytes"] = run.plan.moved_bytes
                said[f"{name}: pinned_bytes"] = run.pinned_bytes
                said[f"{name}: gpu_bytes"] = run.plan.gpu_bytes
            take(name)
            for kind, ids in (("short", short), ("large", many)):
                blocks = []
                for _ in range(rounds):
                    forward(model, ids)
                    blocks.append(run.measured_s())
                times.setdefault(f"{name}, {kind}, blocks", []).extend(blocks)
            run.unstream()
        if machine.is_gpu:
            take_accelerate(model, machine, short, times)
    return {"times_s": {name: [statistics.median(one), min(one), max(one)] for name, one in times.items()}, **said}


def take_accelerate(model: Any, machine: Machine, short: torch.Tensor, times: dict[str, list[float]]) -> None:
    from accelerate import cpu_offload
    from accelerate.hooks import remove_hook_from_submodules

    model.to("cpu")
    cpu_offload(model, execution_device=torch.device("cuda", 0))
    forward(model, short)
    times.setdefault("accelerate, short", []).extend(machine.seconds(lambda: forward(model, short)) for _ in range(2))
    remove_hook_from_submodules(model)
    model.to(machine.device)


def time_stored(model: Any, machine: Machine, rounds: int) -> dict[str, Any]:
    """Time passes of copies of the model whose streamed matrices lie on the host in 8 bits."""
    ids = ids_of(SHORT, machine, model.config.vocab_size)
    want = forward(model, ids).float()

    def taken(other: Any, storage: Storage) -> dict[str, Any]:
        landing = 2 * max(stored_offsets(block, storage)[1] for block in find_blocks(other))
        with stream(other, least_bytes(other) + landing, device=machine.device, storage=storage) as run:
            got = forward(other, ids).float()
            passes = [machine.seconds(lambda: forward(other, ids)) for _ in range(2 * rounds)]
            return {
                "moved_bytes": run.plan.moved_bytes,
                "pinned_bytes": run.pinned_bytes,
                "pass_s": [statistics.median(passes), min(passes), max(passes)],
                "logits_error": float((got - want).norm() / want.norm()),
            }

    return {storage: taken(copy.deepcopy(model), storage) for storage in get_args(Storage)}


def generate(model: Any, machine: Machine) -> dict[str, Any]:
    """Generate 64 tokens, resident and streamed."""
    ids = ids_of((1, 16), machine, model.config.vocab_size)

    def tokens() -> list[int]:
        out = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=64, do_sample=False)
        return list(out[0].tolist())

    want = tokens()
    seconds = machine.seconds(tokens)
    with stream(model, least_bytes(model), device=machine.device):
        got = tokens()
        streamed = machine.seconds(tokens)
    return {
        "same_tokens": got == want,
        "distinct_tokens": len(set(want)),
        "resident_s": seconds,
        "streamed_s": streamed,
    }


def train(model: Any, machine: Machine, num_steps: int, shape: tuple[int, int]) -> tuple[list[float], int, float]:
    """Train the adapters; return losses, the peak, and the median step in seconds."""
    ids = ids_of(shape, machine, model.config.vocab_size)
    optimizer = torch.optim.AdamW([one for one in model.parameters() if one.requires_grad], lr=1e-3)
    losses: list[float] = []

    def step() -> None:
        optimizer.zero_grad()
        loss = model(input_ids=ids, labels=ids, use_cache=False).loss
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))

    step()
    machine.clean()
    times = [machine.seconds(step) for _ in range(num_steps)]
    return losses, machine.peak_bytes(), statistics.median(times)


def train_adapters(model: Any, machine: Machine, shape: tuple[int, int]) -> dict[str, Any]:
    """Train adapters beside frozen weights, resident and streamed."""
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(5)
    for layer in model.model.layers:
        layer.self_attn.q_proj = Lora(layer.self_attn.q_proj)
        layer.self_attn.v_proj = Lora(layer.self_attn.v_proj)
    begun = {name: one.detach().clone() for name, one in model.named_parameters() if one.requires_grad}
    machine.clean()
    weights = torch.cuda.memory_allocated() if machine.is_gpu else 0
    want, resident_peak, resident_s = train(model, machine, 5, shape)
    for name, one in model.named_parameters():
        if one.requires_grad:
            one.data.copy_(begun[name])
            one.grad = None
    with stream(model, least_bytes(model), device=machine.device) as run:
        machine.clean()
        streamed_weights = torch.cuda.memory_allocated() if machine.is_gpu else 0
        got, streamed_peak, streamed_s = train(model, machine, 5, shape)
        planned = resident_peak - weights + (weights - run.plan.moved_bytes + run.plan.num_slots * run.plan.slot_bytes)
    return {
        "same_losses": got == want,
        "losses": want,
        "resident_peak_bytes": resident_peak,
        "streamed_peak_bytes": streamed_peak,
        "planned_peak_bytes": planned,
        "streamed_weights_bytes": streamed_weights,
        "resident_step_s": resident_s,
        "streamed_step_s": streamed_s,
    }


def pin_by_torch(model: Any, machine: Machine) -> dict[str, Any]:
    """Pin a layer's bytes by PyTorch's own allocator; return what it takes beside what was asked."""
    size = find_blocks(model)[0].size_bytes
    if not machine.is_gpu:
        return {}
    before = torch.cuda.memory.host_memory_stats()["allocated_bytes.current"]
    pinned = torch.empty(size, dtype=torch.uint8, pin_memory=True)
    taken = torch.cuda.memory.host_memory_stats()["allocated_bytes.current"] - before
    return {"layer_bytes": pinned.numel(), "torch_pinned_bytes": taken}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--large", type=int, nargs=2, default=[16, 4096], metavar=("SEQUENCES", "TOKENS"))
    parser.add_argument("--disk", type=Path, default=Path(tempfile.gettempdir()), metavar="FOLDER")
    parser.add_argument("--only", choices=PARTS)
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--small", action="store_true")
    asked = parser.parse_args()
    machine = Machine("cpu" if asked.small else "cuda")
    model = make_model(SMALL if asked.small else SHAPE, machine.device)
    found: dict[str, Any] = {
        "machine": hardware(),
        "rounds": asked.rounds,
        "model_bytes": sum(one.numel() * one.element_size() for one in model.parameters()),
    }
    large = (2, 64) if asked.small else tuple(asked.large)
    learner = (2, 32) if asked.small else (4, 1024)
    parts: dict[str, Callable[[], dict[str, Any]]] = {
        "pinning": lambda: pin_by_torch(model, machine),
        "passes": lambda: time_passes(model, machine, asked.rounds, large),
        "stored": lambda: time_stored(model, machine, asked.rounds),
        "disk": lambda: time_disk(model, machine, asked.rounds, asked.disk),
        "generate": lambda: generate(model, machine),
        "train": lambda: train_adapters(copy.deepcopy(model) if asked.small else model, machine, learner),
    }
    for name in PARTS if asked.only is None else (asked.only,):
        found[name] = parts[name]()
        print(json.dumps(found[name], indent=1), flush=True)
        asked.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
