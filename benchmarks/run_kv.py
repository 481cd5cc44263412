"""Times decode attention from paged caches of each format beside PyTorch's own paths, on a GPU.

    python -m benchmarks.run_kv [--out FILE]

Each figure is the median over replays of a CUDA graph, so no launch is in it. Keys and values are larger than the L2 cache.
The floor is the bytes that must be read over the bandwidth of a plain read, measured in the same run.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
import triton
from torch.nn.attention import SDPBackend, sdpa_kernel

from ullage.runtime.kv.attention import append_kv, decode_attention
from ullage.runtime.kv.formats import KVFormat, PageLayout
from ullage.runtime.kv.tuning import DecodeConfig

RESULTS = Path(__file__).parent / "results" / "kv_decode.json"
KINDS = ("bf16", "fp8", "int8", "int4")
NUM_REPLAYS = 40
CONFIGS = {
    "bf16": [(2, 3), (4, 3)],
    "fp8": [(1, 3), (2, 3)],
    "int8": [(1, 3), (2, 3), (4, 3)],
    "int4": [(1, 3), (2, 3)],
}
SPLITS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)
MOST_PROGRAMS = 132 * 24


@dataclass(frozen=True)
class Shape:
    name: str
    batch: int
    heads: int
    kv_heads: int
    head_dim: int
    tokens: int

    @property
    def kv_bytes(self) -> int:
        return 2 * 2 * self.batch * self.kv_heads * self.head_dim * self.tokens


SHAPES = [
    Shape("batch 32, 8k", 32, 32, 8, 128, 8192),
    Shape("batch 1, 128k", 1, 32, 8, 128, 131072),
    Shape("batch 128, 1k", 128, 32, 8, 128, 1024),
    Shape("MHA, batch 8, 8k", 8, 32, 32, 128, 8192),
    Shape("head_dim 64, batch 32, 8k", 32, 32, 8, 64, 8192),
]


def timed(run: Callable[[], Any]) -> list[float]:
    """Return milliseconds of each replay of a graph of one call."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(2):
            run()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    for _ in range(5):
        graph.replay()
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(NUM_REPLAYS + 1)]
    marks[0].record()
    for mark in marks[1:]:
        graph.replay()
        mark.record()
    torch.cuda.synchronize()
    return [one.elapsed_time(other) for one, other in itertools.pairwise(marks)]


def row(times: list[float]) -> dict[str, float]:
    ordered = sorted(times)
    return {
        "median_ms": statistics.median(times),
        "p10_ms": ordered[len(ordered) // 10],
        "p90_ms": ordered[-len(ordered) // 10],
    }


def read_bandwidth() -> float:
    """Return bytes a second of a plain read."""
    data = torch.ones(1 << 30, dtype=torch.float32, device="cuda")
    median = row(timed(lambda: data.sum()))["median_ms"]
    return data.numel() * 4 / median * 1000


def peers(shape: Shape) -> dict[str, dict[str, float]]:
    """Time PyTorch's own paths over contiguous bfloat16 keys and values; those that refuse the shape are left out."""
    q = torch.randn(shape.batch, shape.heads, 1, shape.head_dim, device="cuda", dtype=torch.bfloat16)
    k = torch.randn(shape.batch, shape.kv_heads, shape.tokens, shape.head_dim, device="cuda", dtype=torch.bfloat16)
    v = torch.randn_like(k)
    shares = shape.heads != shape.kv_heads

    def run() -> torch.Tensor:
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, enable_gqa=shares)

    out = {}
    for name, backend in (("cuDNN", SDPBackend.CUDNN_ATTENTION), ("flash", SDPBackend.FLASH_ATTENTION)):
        with suppress(RuntimeError), sdpa_kernel(backend):
            out[name] = row(
                timed(
                    lambda: torch.nn.functional.scaled_dot_product_attention(
                        q, k, v, enable_gqa=shape.heads != shape.kv_heads
                    )
                )
            )
    with suppress(RuntimeError):
        out["default"] = row(
            timed(
                lambda: torch.nn.functional.scaled_dot_product_attention(
                    q, k, v, enable_gqa=shape.heads != shape.kv_heads
                )
            )
        )
    return out


def flex(shape: Shape) -> dict[str, float]:
    from torch.nn.attention.flex_attention import flex_attention

    q = torch.randn(shape.batch, shape.heads, 1, shape.head_dim, device="cuda", dtype=torch.bfloat16)
    k = torch.randn(shape.batch, shape.kv_heads, shape.tokens, shape.head_dim, device="cuda", dtype=torch.bfloat16)
    v = torch.randn_like(k)
    compiled = torch.compile(flex_attention, dynamic=False)
    return row(timed(lambda: compiled(q, k, v, enable_gqa=shape.heads != shape.kv_heads)))


class Cache:
    """Pages of one layer, filled with random keys and values, in random order."""

    def __init__(self, shape: Shape, kind: str, page_tokens: int = 64) -> None:
        form = KVFormat.named(kind)
        self.layout = PageLayout(
            format=form, num_kv_heads=shape.kv_heads, head_dim=shape.head_dim, page_tokens=page_tokens
        )
        per_sequence = shape.tokens // page_tokens
        num_pages = shape.batch * per_sequence
        self.pages = torch.empty(num_pages, self.layout.page_bytes, dtype=torch.uint8, device="cuda")
        self.table = torch.randperm(num_pages, device="cuda").int().view(shape.batch, per_sequence)
        self.lengths = torch.full((shape.batch,), shape.tokens, dtype=torch.int32, device="cuda")
        self.q = torch.randn(shape.batch, shape.heads, shape.head_dim, device="cuda", dtype=torch.bfloat16)
        step = max(1, (1 << 18) // shape.kv_heads // shape.batch)
        for begin in range(0, shape.tokens, step):
            count = min(step, shape.tokens - begin)
            size = (shape.batch * count, shape.kv_heads, shape.head_dim)
            k, v = (torch.randn(size, device="cuda", dtype=torch.bfloat16) for _ in range(2))
            rows = torch.arange(shape.batch, device="cuda", dtype=torch.int32).repeat_interleave(count)
            positions = torch.arange(begin, begin + count, device="cuda", dtype=torch.int32).repeat(shape.batch)
            append_kv(k, v, self.pages, self.layout, self.table, rows, positions)

    def decode(self, config: DecodeConfig | None = None) -> torch.Tensor:
        return decode_attention(self.q, self.pages, self.layout, self.table, self.lengths, config=config)


def tune(cache: Cache, shape: Shape, kind: str) -> list[dict[str, Any]]:
    """Time configurations of one cache, the fastest first."""
    pairs = shape.batch * shape.kv_heads
    splits = [one for one in SPLITS if one <= cache.table.shape[1] and pairs * one <= max(MOST_PROGRAMS, 2 * pairs)]
    found = []
    for warps, stages in CONFIGS[kind]:
        for split in splits:
            config = DecodeConfig(num_warps=warps, num_stages=stages, num_splits=split)
            times = timed(partial(cache.decode, config))
            found.append({"warps": warps, "stages": stages, "splits": split} | row(times))
    return sorted(found, key=lambda one: one["median_ms"])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--limit-s", type=float, default=1e9)
    parser.add_argument("--out", default=str(RESULTS))
    options = parser.parse_args()
    begin = time.time()
    bandwidth = read_bandwidth()
    out: dict[str, Any] = {
        "gpu": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "replays": NUM_REPLAYS,
        "read_bytes_per_s": bandwidth,
        "shapes": [],
    }
    for shape in SHAPES:
        if time.time() - begin > options.limit_s:
            break
        best = peers(shape)
        if shape is SHAPES[0]:
            with suppress(RuntimeError):
                best["flex, compiled"] = flex(shape)
        torch.cuda.empty_cache()
        entry: dict[str, Any] = {"shape": asdict(shape), "peers": best, "ours": {}}
        fastest = min(one["median_ms"] for one in best.values())
        print(f"{shape.name}: " + ", ".join(f"{name} {one['median_ms']:.4f}" for name, one in best.items()), flush=True)
        for kind in KINDS:
            if time.time() - begin > options.limit_s:
                break
            cache = Cache(shape, kind)
            tuned = tune(cache, shape, kind)
            moved = cache.table.numel() * cache.layout.page_bytes
            top = tuned[0]
            entry["ours"][kind] = {"configs": tuned, "bytes": moved, "floor_ms": moved / bandwidth * 1000}
            print(
                f"  {kind:5} {top['median_ms']:.4f} ms, {fastest / top['median_ms']:.2f} x the best peer, "
                f"{moved / bandwidth * 1000 / top['median_ms']:.0%} of the floor; warps {top['warps']}, stages "
                f"{top['stages']}, splits {top['splits']}; default {row(timed(cache.decode))['median_ms']:.4f}",
                flush=True,
            )
            del cache
            torch.cuda.empty_cache()
        out["shapes"].append(entry)
        Path(options.out).write_text(json.dumps(out, indent=1))


if __name__ == "__main__":
    main()
