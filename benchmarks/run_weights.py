"""Times a model whose weights are streamed beside the same model resident on the GPU and offloaded by accelerate.

    python -m benchmarks.run_weights [--rounds 5] [--disk FOLDER] [--out FILE]

The model has twelve of Llama 3 8B's layers and random weights in bfloat16, 5.76 GB. Contenders take turns, and figures are
medians. The link's speed is that of pinned copies of a layer, measured in the same run. Then half of the streamed blocks lie on
disk, in `--disk` (by default where temporary files do): with reads past the cache of files, from a cold cache and from a warm
one, beside plain reads of as many bytes by as many threads, and beside accelerate. `--small` tries the script on a CPU.
"""

from __future__ import annotations

import argparse
import copy
import gc
import json
import mmap
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from benchmarks.machine import machine as hardware
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM

from ullage.runtime.weights import StreamedModel, stream
from ullage.runtime.weights.blocks import find_blocks
from ullage.runtime.weights.disk_plan import NUM_STAGING, paged
from ullage.runtime.weights.disk_reader import CHUNK_BYTES, NUM_THREADS

RESULTS = Path(__file__).parent / "results" / "weights.json"
SHAPE = {
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 12,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 32000,
    "eos_token_id": None,
    "bos_token_id": None,
    "pad_token_id": None,
}
SMALL = {
    **SHAPE,
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 500,
}
SHORT = (1, 64)
RANK = 16


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


class Machine:
    """Where it runs."""

    def __init__(self, device: str) -> None:
        self.device = device
        self.is_gpu = device == "cuda"

    def seconds(self, run: Callable[[], Any]) -> float:
        self.wait()
        start = time.perf_counter()
        run()
        self.wait()
        return time.perf_counter() - start

    def wait(self) -> None:
        if self.is_gpu:
            torch.cuda.synchronize()

    def clean(self) -> None:
        gc.collect()
        if self.is_gpu:
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()

    def peak_bytes(self) -> int:
        return torch.cuda.max_memory_allocated() if self.is_gpu else 0


def make_model(shape: dict[str, Any], device: str) -> Any:
    torch.manual_seed(0)
    torch.set_default_dtype(torch.bfloat16)
    with torch.device(device):
        model = LlamaForCausalLM(LlamaConfig(**shape, attn_implementation="sdpa")).eval()
    torch.set_default_dtype(torch.float32)
    return model.requires_grad_(False)


def ids_of(shape: tuple[int, int], machine: Machine, vocabulary: int) -> torch.Tensor:
    return torch.randint(0, vocabulary, shape, generator=torch.Generator().manual_seed(2)).to(machine.device)


def least_bytes(model: Any) -> int:
    """Return the budget that leaves no block on the GPU."""
    blocks = find_blocks(model)
    others = sum(one.numel() * one.element_size() for one in [*model.parameters(), *model.buffers()])
    return (
        others
        - sum(weight.size_bytes for block in blocks for weight in block.weights)
        + 2 * max(one.size_bytes for one in blocks)
    )


def forward(model: Any, ids: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        out: torch.Tensor = model(input_ids=ids, use_cache=False, logits_to_keep=1).logits
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


READS = ("past the cache", "cold cache", "warm cache")


def prepare_reads(run: StreamedModel, kind: str) -> None:
    """Let the next pass read from the disk itself, or from what the system has cached of it."""
    file = run._file
    assert file is not None
    if kind == "past the cache":
        file.read_past_cache()
        return
    file.read_through_cache()
    if kind == "cold cache":
        file.drop_cache()


def plain_read_s(folder: Path, size_bytes: int, rounds: int) -> dict[str, list[float]]:
    """Time plain reads of a file by as many threads, in pieces of as many bytes, to memory that is there already."""
    times: dict[str, list[float]] = {}
    size_bytes = paged(size_bytes)
    into = memoryview(mmap.mmap(-1, size_bytes))
    with tempfile.TemporaryFile(dir=folder) as file, ThreadPoolExecutor(NUM_THREADS) as pool:
        for begin in range(0, size_bytes, CHUNK_BYTES):
            file.write(os.urandom(min(CHUNK_BYTES, size_bytes - begin)))
        os.fsync(file.fileno())
        for kind in READS:
            flags = os.O_RDONLY | (os.O_DIRECT if kind == READS[0] else 0)
            try:
                descriptor = os.open(f"/proc/self/fd/{file.fileno()}", flags)
            except OSError:  # a file system without such reads
                continue

            def read(begin: int, descriptor: int = descriptor) -> None:
                os.preadv(descriptor, [into[begin : begin + CHUNK_BYTES]], begin)

            for _ in range(rounds + 1):  # the first one fills the cache
                if kind != "warm cache":
                    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
                start = time.perf_counter()
                list(pool.map(read, range(0, size_bytes, CHUNK_BYTES)))
                times.setdefault(kind, []).append(time.perf_counter() - start)
            os.close(descriptor)
    return {kind: some[1:] for kind, some in times.items()}


def time_disk(model: Any, machine: Machine, rounds: int, folder: Path) -> dict[str, Any]:
    """Time passes with half of the streamed blocks on disk."""
    ids = ids_of(SHORT, machine, model.config.vocab_size)
    want = forward(model, ids)
    sizes = [one.size_bytes for one in find_blocks(model)]
    host_bytes = sum(sizes[len(sizes) // 2 :]) + NUM_STAGING * paged(max(sizes))
    found: dict[str, Any] = {}
    with stream(model, least_bytes(model), device=machine.device, host_bytes=host_bytes, disk=folder) as run:
        found["disk_bytes"], found["pinned_bytes"] = run.plan.disk_bytes, run.pinned_bytes
        found["blocks_on_disk"] = sum(run.plan.is_on_disk)
        for kind in READS:
            prepare_reads(run, kind)
            predicted = run.predict(input_ids=ids, use_cache=False, logits_to_keep=1)
            print(f"half on disk, {kind}: {predicted}", file=sys.stderr, flush=True)
            is_same, passes, blocks = True, [], []
            for _ in range(rounds):
                prepare_reads(run, kind)
                passes.append(machine.seconds(lambda: forward(model, ids)))
                blocks.append(run.measured_s())
                prepare_reads(run, kind)
                is_same = is_same and bool(torch.equal(forward(model, ids), want))
            found[kind] = {
                "pass_s": [statistics.median(passes), min(passes), max(passes)],
                "blocks_s": [statistics.median(blocks), min(blocks), max(blocks)],
                # What a prediction of a cold cache measures is a warm one: its own passes fill it.
                "predicted_s": predicted.step_s,
                "disk_bytes_per_s": predicted.disk_bytes_per_s,
                "limit": predicted.limit,
                "same_logits": is_same,
            }
    plain = plain_read_s(folder, found["disk_bytes"], rounds)
    found["plain_read_s"] = {kind: [statistics.median(one), min(one), max(one)] for kind, one in plain.items()}
    if machine.is_gpu:
        found["accelerate_s"] = take_accelerate_from_disk(model, machine, ids, folder)
    return found


def take_accelerate_from_disk(model: Any, machine: Machine, ids: torch.Tensor, folder: Path) -> list[float]:
    """Time two passes of a copy of the model that accelerate keeps on disk, all of it."""
    from accelerate import disk_offload

    other = copy.deepcopy(model).to("cpu")
    with tempfile.TemporaryDirectory(dir=folder) as place:
        disk_offload(other, place, execution_device=torch.device("cuda", 0))
        forward(other, ids)
        return [machine.seconds(lambda: forward(other, ids)) for _ in range(2)]


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
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--small", action="store_true")
    asked = parser.parse_args()
    machine = Machine("cpu" if asked.small else "cuda")
    model = make_model(SMALL if asked.small else SHAPE, machine.device)
    found: dict[str, Any] = {
        "machine": hardware(),
        "model_bytes": sum(one.numel() * one.element_size() for one in model.parameters()),
    }
    large = (2, 64) if asked.small else tuple(asked.large)
    found["pinning"] = pin_by_torch(model, machine)
    found["passes"] = time_passes(model, machine, asked.rounds, large)
    print(json.dumps(found["passes"], indent=1), flush=True)
    asked.out.write_text(json.dumps(found, indent=1) + "\n")
    found["disk"] = time_disk(model, machine, asked.rounds, asked.disk)
    print(json.dumps(found["disk"], indent=1), flush=True)
    asked.out.write_text(json.dumps(found, indent=1) + "\n")
    found["generate"] = generate(model, machine)
    print(json.dumps(found["generate"]), flush=True)
    found["train"] = train_adapters(
        copy.deepcopy(model) if asked.small else model, machine, (2, 32) if asked.small else (4, 1024)
    )
    print(json.dumps(found["train"]), flush=True)
    asked.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
