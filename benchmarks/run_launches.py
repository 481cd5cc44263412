"""Counts what a decoding step asks of the driver, with and without a graph, on a GPU.

    python -m benchmarks.run_launches [--out FILE]

A step of a model of Llama 3.1 8B's shape, one sequence of 256 tokens, with transformers' dynamic cache and with ullage's int4
pages; launches are the runtime's and driver's calls that PyTorch's profiler sees.
"""

from __future__ import annotations

import argparse
import contextlib
import json
from pathlib import Path
from typing import Any

import torch
from benchmarks.machine import machine
from benchmarks.run_generate import SHAPE, make_model
from torch.profiler import ProfilerActivity, profile
from transformers import DynamicCache

from ullage.runtime.kv.decode_graphs import decode_graphs
from ullage.runtime.kv.transformers_cache import cache_for

RESULTS = Path(__file__).parent / "results" / "launches.json"
TOKENS, WARMUPS = 256, 3


def launches_of(model: Any, cache: Any, *, has_graph: bool) -> dict[str, int]:
    """Return how many calls of each kind one step makes."""
    ids = torch.randint(0, 1000, (1, TOKENS), device="cuda")
    around: Any = decode_graphs(model, cache) if has_graph else contextlib.nullcontext()
    with torch.no_grad(), around:
        model(input_ids=ids, past_key_values=cache, use_cache=True, logits_to_keep=1)
        for _ in range(WARMUPS):
            model(input_ids=ids[:, :1], past_key_values=cache, use_cache=True)
        torch.cuda.synchronize()
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as found:
            model(input_ids=ids[:, :1], past_key_values=cache, use_cache=True)
            torch.cuda.synchronize()
    counts: dict[str, int] = {}
    for event in found.key_averages():
        if "Launch" in event.key:
            counts[event.key] = counts.get(event.key, 0) + event.count
    return counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=RESULTS)
    asked = parser.parse_args()
    model = make_model("cuda", SHAPE)
    pages = -(-(TOKENS + WARMUPS + 1) // 64)
    rows = {
        "transformers dynamic": launches_of(model, DynamicCache(config=model.config), has_graph=False),
        "ullage int4, no graph": launches_of(model, cache_for(model, "int4", num_pages=pages), has_graph=False),
        "ullage int4": launches_of(model, cache_for(model, "int4", num_pages=pages), has_graph=True),
    }
    found = {"machine": machine(), "launches": rows}
    asked.out.write_text(json.dumps(found, indent=1) + "\n")
    for name, counts in rows.items():
        print(f"{name:24} {sum(counts.values()):6,}  {counts}", flush=True)


if __name__ == "__main__":
    main()
