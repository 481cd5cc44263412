"""Writes docs/savings.md: what each technique saves on a named workload, from the figures of the other benchmarks.

    python -m benchmarks.savings

It measures nothing: each row names the script whose results it read, and those files name hardware and versions.
"""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any, NamedTuple

from ullage.units import format_bytes

RESULTS = Path(__file__).parent / "results"
MEASURED = Path("tests/data/measured/allocator_measurements.json")
PAGE = Path("docs/savings.md")
_HEAD = """# What each technique saves

Measured on one NVIDIA H200, before and after, each on the workload that its row names. `python -m benchmarks.savings` writes
this page from the results of the scripts named; figures are what PyTorch or the driver counted, not estimates.
"""


class Row(NamedTuple):
    technique: str
    workload: str
    before: str
    after: str
    script: str


def memory(technique: str, workload: str, before: int, after: int, script: str) -> Row:
    share = f"{format_bytes(after)}, {1 - after / before:.0%} less"
    return Row(technique, workload, format_bytes(before), share, script)


def read(name: str) -> Any:
    return json.loads((RESULTS / f"{name}.json").read_text())


def allocator_rows() -> list[Row]:
    measured = {
        (row["workload"], row["conf"]): row["stats"] for row in json.loads(MEASURED.read_text())["rows"] if row["stats"]
    }
    rows = []
    for workload, said in (("train_ckpt", "training with checkpointing"), ("oom", "serving under an 8 GiB cap")):
        before = measured[workload, ""]
        after = measured[workload, "expandable_segments:True"]
        name = "allocator setting that `ullage tune` finds"
        if workload == "oom":
            counts = (before["allocation.all.allocated"], after["allocation.all.allocated"])
            rows.append(
                Row(name, said, f"stops after {counts[0]:,} requests", f"after {counts[1]:,}", "tests/data/measured")
            )
        else:
            peaks = (before["reserved_bytes.all.peak"], after["reserved_bytes.all.peak"])
            rows.append(memory(name, f"{said}: reserved", *peaks, "tests/data/measured"))
    cases = {(row["program"], row["conf"]): row["measured"] for row in read("replay_cases")["rows"]}
    peaks = [cases["stranded_weights", conf]["reserved_bytes.all.peak"] for conf in ("", "expandable_segments:True")]
    rows.append(memory("the same", "weights loaded between temporaries: reserved", *peaks, "benchmarks.confirm_replay"))
    return rows


def cache_rows() -> list[Row]:
    rows = []
    found = {
        (row["batch"], row["tokens"], row["cache"]): row for row in read("kv_generate")["rows"] if "cache_bytes" in row
    }
    for tokens in (8192, 32768):
        before, after = found[8, tokens, "transformers dynamic"], found[8, tokens, "ullage int4"]
        workload = f"Llama 3.1 8B's shape, 8 x {tokens:,} tokens"
        rows.append(
            memory(
                "KV cache in int4 pages",
                f"{workload}: cache",
                before["cache_bytes"],
                after["cache_bytes"],
                "benchmarks.run_generate",
            )
        )
        peaks = (before["decode_peak_bytes"], after["decode_peak_bytes"])
        rows.append(memory("the same", f"{workload}: peak while decoding", *peaks, "benchmarks.run_generate"))
    launches = {name: sum(counts.values()) for name, counts in read("launches")["launches"].items()}
    before, after = launches["transformers dynamic"], launches["ullage int4"]
    workload = "Llama 3.1 8B's shape, a step: launches"
    rows.append(Row("graph of a decoding step", workload, f"{before:,}", f"{after:,}", "benchmarks.run_launches"))
    return rows


def prewarm_rows() -> list[Row]:
    found = read("prewarm")["native"]
    calls = [
        statistics.median(one["steps"][0]["device_allocs"] for one in found[kind]["rounds"])
        for kind in ("cold", "warm")
    ]
    workload = "a transformer in training, first step: calls of cudaMalloc"
    return [Row("pools filled before", workload, f"{calls[0]:.0f}", f"{calls[1]:.0f}", "benchmarks.run_prewarm")]


def weight_rows() -> list[Row]:
    found = read("weights")
    passes, train, pinning = found["passes"], found["train"], found["pinning"]
    pinned, moved = passes["all on the host: pinned_bytes"], passes["all on the host: moved_bytes"]
    script = "benchmarks.run_weights"
    shape = "twelve Llama 3 8B layers"
    on_gpu = passes["all on the host: gpu_bytes"]
    peaks = (train["resident_peak_bytes"], train["streamed_peak_bytes"])
    return [
        memory("streamed weights", f"{shape}: weights on the GPU", found["model_bytes"], on_gpu, script),
        memory("the same, training adapters", f"{shape}, 4 x 1,024 tokens: peak", *peaks, script),
        memory(
            "pinned memory of its own size",
            "a layer's weights",
            pinning["torch_pinned_bytes"],
            pinning["layer_bytes"],
            script,
        ),
        memory(
            "weights streamed in int8",
            f"{shape}: moved in a pass",
            moved,
            read("weights_8bit")["stored"]["int8"]["moved_bytes"],
            script,
        ),
        memory("weights streamed from disk", f"{shape}: pinned", pinned, found["disk"]["all"]["pinned_bytes"], script),
    ]


def main() -> None:
    rows = [*allocator_rows(), *cache_rows(), *weight_rows(), *prewarm_rows()]
    lines = [
        _HEAD,
        "| technique | workload | before | after | from |",
        "|---|---|---|---|---|",
        *(f"| {row.technique} | {row.workload} | {row.before} | {row.after} | `{row.script}` |" for row in rows),
    ]
    PAGE.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(PAGE.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
