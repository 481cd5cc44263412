"""Times `generate` of an 8B-shaped model with ullage's cache beside transformers' own caches, on a GPU.

    python -m benchmarks.run_generate [--batch 8] [--tokens 8192 32768] [--only NAME ...] [--out FILE]

The model has Llama 3.1 8B's shape and random weights in bfloat16. Each cache reads the same prompt and generates greedily by
`model.generate`; a step's time is from one token to the next, with the GPU waited for, and the first steps (in which things
are compiled and captured) do not count. A cache's bytes are what is allocated after generating less what was before. Caches
that the machine cannot run are listed with the reason.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from benchmarks.machine import machine
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM, LogitsProcessor, QuantizedCache, StaticCache

from ullage.runtime.kv.decode_graphs import decode_graphs
from ullage.runtime.kv.transformers_cache import cache_for

RESULTS = Path(__file__).parent / "results" / "kv_generate.json"
SHAPE = {
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "rope_parameters": {"rope_type": "default", "rope_theta": 500000.0},
    "eos_token_id": None,
    "bos_token_id": None,
    "pad_token_id": None,
}
SMALL = {
    **SHAPE,
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 1000,
}
NUM_STEPS, NUM_SKIPPED = 48, 8
NUM_SLOW_STEPS = 16


@dataclass(frozen=True)
class Contender:
    """A cache, and how generating with it is run."""

    name: str
    make: Callable[[Any, int, int], Any]  # from a model, sequences, tokens of each
    is_ours: bool = False
    has_graphs: bool = False
    num_steps: int = NUM_STEPS


def _quantized(**options: Any) -> Callable[[Any, int, int], Any]:
    return lambda model, batch, tokens: QuantizedCache(config=model.config, **options)


def _paged(name: str) -> Callable[[Any, int, int], Any]:
    return lambda model, batch, tokens: cache_for(model, name, num_pages=batch * -(-tokens // 64))


CONTENDERS = [
    Contender("transformers dynamic", lambda model, batch, tokens: DynamicCache(config=model.config)),
    Contender(
        "transformers static, compiled",
        lambda model, batch, tokens: StaticCache(config=model.config, max_cache_len=tokens),
    ),
    Contender("ullage int4", _paged("int4"), is_ours=True, has_graphs=True),
    Contender("ullage int8", _paged("int8"), is_ours=True, has_graphs=True),
    Contender("ullage fp8", _paged("fp8"), is_ours=True, has_graphs=True),
    Contender("ullage bf16", _paged("bf16"), is_ours=True, has_graphs=True),
    Contender("ullage int4, no graph", _paged("int4"), is_ours=True),
    Contender("transformers quantized fp8", _quantized(backend="fp8"), num_steps=NUM_SLOW_STEPS),
    Contender(
        "transformers quantized hqq 4 bit",
        _quantized(backend="hqq", axis_key=1, axis_value=1),
        num_steps=NUM_SLOW_STEPS,
    ),
    Contender("transformers quantized quanto 4 bit", _quantized(backend="quanto"), num_steps=NUM_SLOW_STEPS),
]


class Clock(LogitsProcessor):
    """Notes when each token's logits are there, and keeps those of the first two."""

    def __init__(self, device: str) -> None:
        self.times: list[float] = []
        self.logits: list[torch.Tensor] = []
        self.prefill_peak = 0
        self._device = device

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        if self._device == "cuda":
            torch.cuda.synchronize()
            if not self.times:
                self.prefill_peak = torch.cuda.max_memory_allocated()
                torch.cuda.reset_peak_memory_stats()
        self.times.append(time.perf_counter())
        if len(self.logits) < 2:
            self.logits.append(scores.float().cpu())
        return scores


def make_model(device: str, shape: dict[str, Any]) -> Any:
    torch.manual_seed(0)
    torch.set_default_dtype(torch.bfloat16)
    with torch.device(device):
        model = LlamaForCausalLM(LlamaConfig(**shape, attn_implementation="sdpa")).eval()
    torch.set_default_dtype(torch.float32)
    model.generation_config.eos_token_id = None
    return model


def run(
    model: Any, contender: Contender, batch: int, tokens: int, device: str, expected: list[torch.Tensor]
) -> dict[str, Any]:
    """Generate once; return what was measured."""
    _clean(device)
    before = torch.cuda.memory_allocated() if device == "cuda" else 0
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    model.set_attn_implementation("sdpa")
    ids = torch.randint(0, model.config.vocab_size, (batch, tokens), generator=torch.Generator().manual_seed(1)).to(
        device
    )
    cache = contender.make(model, batch, tokens + contender.num_steps)
    clock = Clock(device)
    graphs = decode_graphs(model, cache) if contender.has_graphs else contextlib.nullcontext()
    start = time.perf_counter()
    with graphs:
        model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            past_key_values=cache,
            max_new_tokens=contender.num_steps,
            do_sample=False,
            logits_processor=[clock],
        )
    peak = torch.cuda.max_memory_allocated() if device == "cuda" else 0
    steps = [after - one for one, after in pairwise(clock.times)][NUM_SKIPPED:]
    if not expected:
        expected += clock.logits
    median = statistics.median(steps)
    del graphs
    _clean(device)
    return {
        "prefill_s": clock.times[0] - start,
        "step_ms_median": median * 1000,
        "step_ms_p10": sorted(steps)[len(steps) // 10] * 1000,
        "step_ms_p90": sorted(steps)[-1 - len(steps) // 10] * 1000,
        "tokens_per_s": batch / median,
        "cache_bytes": (torch.cuda.memory_allocated() if device == "cuda" else 0) - before - ids.numel() * 8,
        "prefill_peak_bytes": clock.prefill_peak,
        "decode_peak_bytes": peak,
        "logits_error": [_error(one, want) for one, want in zip(clock.logits, expected, strict=True)],
    }


def _error(out: torch.Tensor, want: torch.Tensor) -> float:
    return float((out - want).norm() / want.norm())


def _clean(device: str) -> None:
    torch.compiler.reset()
    gc.collect()
    if device == "cuda":
        torch.cuda.empty_cache()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--tokens", type=int, nargs="+", default=[8192, 32768])
    parser.add_argument("--only", nargs="*", help="contenders whose names contain one of these")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--small", action="store_true", help="a tiny model on a CPU, to try the script")
    asked = parser.parse_args()
    device = "cpu" if asked.small else "cuda"
    warnings.filterwarnings("ignore", category=FutureWarning)
    model = make_model(device, SMALL if asked.small else SHAPE)
    rows = json.loads(asked.out.read_text())["rows"] if asked.out.exists() else []
    for tokens in asked.tokens:
        expected: list[torch.Tensor] = []
        for contender in CONTENDERS:
            if asked.only and not any(part in contender.name for part in asked.only):
                continue
            row: dict[str, Any] = {"cache": contender.name, "batch": asked.batch, "tokens": tokens}
            try:
                row |= run(model, contender, asked.batch, tokens, device, expected)
            except Exception as error:
                row["error"] = f"{type(error).__name__}: {str(error).splitlines()[0]}"
            rows.append(row)
            print(_said(row), file=sys.stderr, flush=True)
            asked.out.write_text(json.dumps({"machine": machine(), "model": SHAPE, "rows": rows}, indent=1) + "\n")


def _said(row: dict[str, Any]) -> str:
    begin = f"batch {row['batch']}, {row['tokens']:>6,} tokens  {row['cache']:36}"
    if "error" in row:
        return f"{begin} {row['error'][:200]}"
    gib = {name: row[f"{name}_bytes"] / 2**30 for name in ("cache", "prefill_peak", "decode_peak")}
    return (
        f"{begin} {row['tokens_per_s']:8.1f} tokens/s  {row['step_ms_median']:7.2f} ms  cache {gib['cache']:6.2f} GiB  "
        f"peak {gib['prefill_peak']:5.1f}, {gib['decode_peak']:5.1f} GiB  prefill {row['prefill_s']:5.1f} s  "
        f"error {row['logits_error'][0]:.4f} {row['logits_error'][1]:.4f}"
    )


if __name__ == "__main__":
    main()
