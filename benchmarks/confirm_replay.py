"""Holds `ullage replay` against real runs of the same programs under other allocator settings.

python -m benchmarks.confirm_replay measure OUT.json    on a machine with an NVIDIA GPU and torch
python -m benchmarks.confirm_replay compare OUT.json    anywhere: replays the recordings, prints the table, and writes
                                                        benchmarks/results/replay_cases.json
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

CONFS = (
    "",
    "expandable_segments:True",
    "max_split_size_mb:64",
    "max_split_size_mb:1024",
    "roundup_power2_divisions:4",
    "expandable_segments:True,roundup_power2_divisions:8",
    "large_segment_size_mb:64",
)
PROGRAMS = (
    "stranded_weights",
    "stranded_weights_first",
    "survivors",
    "retries",
    "retries_first",
    "split_mix",
    "roundup.div4",
    "eval_concat",
    "kv_growth",
    "leak_no_annotations",
    "cache_settles",
)
EXTRA = (("stranded_weights", "max_split_size_mb:20"),)
RECORDINGS = Path("tests/data/cases")
RESULTS = Path("benchmarks/results/replay_cases.json")
SURVIVORS_CAP = 16 << 30
RETRIES_SHARE = 0.1
KEYS = (
    "reserved_bytes.all.peak",
    "allocated_bytes.all.peak",
    "num_alloc_retries",
    "num_ooms",
    "num_device_alloc",
    "num_device_free",
)


def pairs() -> list[tuple[str, str]]:
    """Return each program with each of its settings."""
    return [(program, conf) for program in PROGRAMS for conf in CONFS] + list(EXTRA)


def run_here(program: str) -> None:
    """Run one program in this process, without recording it, and print what the allocator counted."""
    import torch

    sys.path.insert(0, "examples")
    from recorded_cases import CASES

    torch.cuda.init()
    state = CASES[program].run()
    next(state)
    stats = torch.cuda.memory_stats()
    facts = {key: stats.get(key) for key in KEYS}
    facts["total_memory_bytes"] = torch.cuda.get_device_properties(0).total_memory
    facts["gpu"], facts["torch"] = torch.cuda.get_device_name(0), torch.__version__
    print(json.dumps(facts))


def measure(path: Path) -> None:
    """Run every pair, each in a process of its own."""

    def one(pair: tuple[str, str]) -> dict[str, Any]:
        program, conf = pair
        environment = {**os.environ, "PYTORCH_CUDA_ALLOC_CONF": conf}
        command = [sys.executable, "-m", "benchmarks.confirm_replay", "run", program]
        result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200)
        if result.returncode:
            return {"program": program, "conf": conf, "error": result.stderr.strip()[-300:]}
        return {"program": program, "conf": conf} | json.loads(result.stdout.strip().splitlines()[-1])

    with ThreadPoolExecutor(4) as pool:
        rows = list(pool.map(one, pairs()))
    path.write_text(json.dumps(rows, indent=1) + "\n")
    print(f"{sum('error' not in row for row in rows)} of {len(rows)} runs measured")


def cap_of(program: str, row: dict[str, Any]) -> int | None:
    """Return the cap that a program sets for itself."""
    if program == "survivors":
        return SURVIVORS_CAP
    return int(RETRIES_SHARE * row["total_memory_bytes"]) if program.startswith("retries") else None


def compare(path: Path) -> None:
    """Replay each recording under each setting, and print where it differs from the run."""
    import ullage

    simulations = {
        program: ullage.replay.Simulation.of(ullage.load(RECORDINGS / f"{program}.pickle.xz")) for program in PROGRAMS
    }
    rows = []
    for row in json.loads(path.read_text()):
        if "error" in row:
            print(f"{row['program']:24}{row['conf']:52} not measured: {row['error'][-80:]}")
            continue
        outcome = simulations[row["program"]].outcome(
            ullage.replay.policy_from(row["conf"]), cap_of(row["program"], row)
        )
        measured = row["reserved_bytes.all.peak"]
        rows.append(
            {
                "program": row["program"],
                "conf": row["conf"],
                "gpu": row["gpu"],
                "torch": row["torch"],
                "measured": {key: row[key] for key in KEYS},
                "replayed": {
                    "peak_reserved_bytes": outcome.peak_reserved_bytes,
                    "peak_allocated_bytes": outcome.peak_allocated_bytes,
                    "num_retries": outcome.num_retries,
                    "is_oom": outcome.is_oom,
                    "num_device_alloc": outcome.num_device_alloc,
                    "num_device_free": outcome.num_device_free,
                    "certainty": outcome.certainty,
                    "range_bytes": outcome.range_bytes,
                },
                "reserved_error": outcome.peak_reserved_bytes / measured - 1,
                "is_exact": outcome.peak_reserved_bytes == measured,
            }
        )
        last = rows[-1]
        print(
            f"{row['program']:24}{row['conf'] or 'default':52}{measured / 2**20:10,.0f} MiB {last['reserved_error']:+8.2%} "
            f"retries {row['num_alloc_retries']}/{outcome.num_retries} ooms {row['num_ooms']}/{int(outcome.is_oom)}"
        )
    exact = sum(row["is_exact"] for row in rows)
    print(f"{exact} of {len(rows)} peaks of reserved exact to the byte")
    RESULTS.write_text(json.dumps({"benchmark": "replay_cases", "num_exact": exact, "rows": rows}, indent=1) + "\n")


def main(arguments: list[str]) -> None:
    what, target = arguments
    {
        "measure": lambda: measure(Path(target)),
        "compare": lambda: compare(Path(target)),
        "run": lambda: run_here(target),
    }[what]()


if __name__ == "__main__":
    main(sys.argv[1:])
