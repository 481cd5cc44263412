"""Trains a small language model on Python's standard library, and measures what each cache format costs it.

    python -m benchmarks.kv_accuracy [--train-s SECONDS] [--tokens N] [--out FILE] [--save FOLDER]

The model reads bytes. Files are either trained on or held out. The second half of the figures is of a copy in which some key
channels are larger and the query channels that meet them smaller by as much, so that in 16 bits nothing changes.
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import platform
import sys
import sysconfig
import time
from pathlib import Path
from typing import Any

import tokenizers
import torch
import transformers
from transformers.convert_slow_tokenizer import bytes_to_unicode

from ullage.runtime.kv.check import check
from ullage.runtime.kv.check.result import KVCheck, LossBudget
from ullage.runtime.kv.formats import KVFormat

RESULTS = Path(__file__).parent / "results" / "kv_accuracy.json"
HELD_OUT_EVERY = 12
OUTLIER_TIMES = 16.0
FORMATS = [KVFormat.named("int4"), KVFormat(kind="int4"), KVFormat.named("int8"), KVFormat.named("fp8")]
LEFT_OUT = {"test", "tests", "idle_test", "site-packages", "dist-packages", "__pycache__", "lib2to3", "turtledemo"}


def library_files() -> list[Path]:
    """Return the standard library's source files, in the order of their names."""
    root = Path(sysconfig.get_path("stdlib"))
    return [path for path in sorted(root.rglob("*.py")) if not LEFT_OUT & set(path.relative_to(root).parts)]


def split() -> tuple[torch.Tensor, list[bytes]]:
    """Return what is trained on, as one row of bytes, and the files that are held out."""
    files = [path.read_bytes() for path in library_files()]
    held_out = files[::HELD_OUT_EVERY]
    trained = b"\n".join(text for index, text in enumerate(files) if index % HELD_OUT_EVERY)
    return torch.frombuffer(bytearray(trained), dtype=torch.uint8), held_out


def new_model(hidden: int, layers: int, context: int, device: str) -> Any:
    config = transformers.LlamaConfig(
        vocab_size=256,
        hidden_size=hidden,
        intermediate_size=hidden * 5 // 2,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=64,
        max_position_embeddings=context,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=None,
    )
    return transformers.LlamaForCausalLM(config).to(device)


def train(model: Any, data: torch.Tensor, *, seconds: float, context: int, batch: int) -> dict[str, Any]:
    """Train for so long, the learning rate falling with the time, and return how it went."""
    device = next(model.parameters()).device
    generator = torch.Generator().manual_seed(0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1.0, betas=(0.9, 0.95), weight_decay=0.05)
    begin, steps, losses = time.perf_counter(), 0, []
    model.train()
    while (passed := (time.perf_counter() - begin) / seconds) < 1:
        for group in optimizer.param_groups:
            group["lr"] = 3e-3 * min(1.0, (steps + 1) / 50) * (0.02 + 0.98 * (1 + math.cos(math.pi * passed)) / 2)
        at = torch.randint(len(data) - context - 1, (batch,), generator=generator)
        rows = torch.stack([data[one : one + context + 1] for one in at.tolist()]).long().to(device)
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            logits = model(input_ids=rows[:, :-1], use_cache=False).logits
        loss = torch.nn.functional.cross_entropy(logits.float().flatten(0, 1), rows[:, 1:].flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        steps += 1
        losses.append(float(loss.detach()))
        if steps % 100 == 0:
            print(f"step {steps}, {passed:.0%}: perplexity {math.exp(sum(losses[-100:]) / 100):.3f}", flush=True)
    return {
        "seconds": time.perf_counter() - begin,
        "steps": steps,
        "tokens": steps * batch * context,
        "perplexity": math.exp(sum(losses[-100:]) / len(losses[-100:])),
    }


def plant_outlier(model: Any, layer: int, head: int, channel: int, times: float) -> None:
    """Make one key channel of a Llama-shaped model larger and the query channels that meet it smaller.

    A rotary embedding turns channel c with c + head_dim / 2, so both take part. With a power of two the 16-bit cache stores the
    same digits as before.
    """
    attention = model.model.layers[layer].self_attn
    dim, queries = attention.head_dim, attention.num_key_value_groups
    with torch.no_grad():
        for one in (channel % (dim // 2), channel % (dim // 2) + dim // 2):
            attention.k_proj.weight[head * dim + one] *= times
            for query in range(head * queries, (head + 1) * queries):
                attention.q_proj.weight[query * dim + one] /= times


def planted(model: Any) -> tuple[Any, list[dict[str, int]]]:
    """Return a copy with one outlier in each KV head, and where they are."""
    other, places = copy.deepcopy(model), []
    for layer in range(model.config.num_hidden_layers):
        for head in range(model.config.num_key_value_heads):
            channel = (7 * layer + 11 * head + 3) % (model.config.head_dim // 2)
            plant_outlier(other, layer, head, channel, OUTLIER_TIMES)
            places.append({"layer": layer, "head": head, "channel": channel})
    return other, places


def stretches_of(held_out: list[bytes], *, tokens: int, context: int) -> list[bytes]:
    """Return stretches from all over the files that are held out."""
    stretches = [text[at : at + context] for text in held_out for at in range(0, len(text) - context + 1, context)]
    return stretches[:: max(1, len(stretches) * context // tokens)]


def save(model: Any, stretches: list[bytes], folder: Path) -> None:
    """Write a model, a tokenizer whose tokens are bytes, and the stretches that are plain text."""
    vocabulary = {letter: byte for byte, letter in bytes_to_unicode().items()}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained(folder)
    model.save_pretrained(folder)
    (folder / "held_out.txt").write_bytes(b"".join(one for one in stretches if one.isascii()))


def checked(model: Any, stretches: list[bytes], *, context: int) -> tuple[KVCheck, float]:
    """Check a model on some stretches; return also the seconds."""
    rows = [list(one) for one in stretches]
    begin = time.perf_counter()
    found = check(
        model,
        rows,
        formats=FORMATS,
        budget=LossBudget(perplexity_rise=0.01),
        context_tokens=context,
        chunk_tokens=2048,
        progress=lambda what: print(f"measuring {what}", file=sys.stderr, flush=True),
    )
    return found, time.perf_counter() - begin


def main() -> None:
    on_gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser()
    parser.add_argument("--train-s", type=float, default=300.0)
    parser.add_argument("--tokens", type=int, default=65536 if on_gpu else 32768)
    parser.add_argument("--hidden", type=int, default=512 if on_gpu else 128)
    parser.add_argument("--layers", type=int, default=8 if on_gpu else 4)
    parser.add_argument("--context", type=int, default=1024 if on_gpu else 256)
    parser.add_argument("--batch", type=int, default=64 if on_gpu else 10)
    parser.add_argument("--out", default=str(RESULTS))
    parser.add_argument("--save", type=Path)
    options = parser.parse_args()
    begin = time.perf_counter()
    torch.manual_seed(0)
    device = "cuda" if on_gpu else "cpu"
    data, held_out = split()
    model = new_model(options.hidden, options.layers, options.context, device)
    trained = train(model, data, seconds=options.train_s, context=options.context, batch=options.batch)
    stretches = stretches_of(held_out, tokens=options.tokens, context=options.context)
    if options.save is not None:
        save(model, stretches, options.save)
    out: dict[str, Any] = {
        "device": torch.cuda.get_device_name() if on_gpu else f"CPU, threads: {torch.get_num_threads()}",
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "text": {
            "trained_bytes": len(data),
            "held_out_files": len(held_out),
            "held_out_bytes": sum(map(len, held_out)),
        },
        "model": {
            "parameters": sum(one.numel() for one in model.parameters()),
            **{name: getattr(options, name) for name in ("hidden", "layers", "context", "batch")},
            "head_dim": 64,
            "kv_heads": 2,
        },
        "training": trained,
    }
    other, places = planted(model)
    for name, one in (("as trained", model), (f"key channels x {OUTLIER_TIMES:g}", other)):
        found, seconds = checked(one, stretches, context=options.context)
        print(f"\n== {name} ({seconds:.0f} s)\n{found}\n", flush=True)
        out.setdefault("checks", []).append({"model": name, "seconds": seconds, **found.to_json()})
    out["planted"] = {"times": OUTLIER_TIMES, "places": places}
    out["seconds"] = time.perf_counter() - begin
    Path(options.out).write_text(json.dumps(out, indent=1) + "\n")


if __name__ == "__main__":
    main()
