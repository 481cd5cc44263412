"""The model that benchmarks of streaming run, and what runs it."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from ullage.runtime.weights.blocks import find_blocks

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
