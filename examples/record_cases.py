"""Records small, real memory snapshots of known GPU-memory problems and of their harmless twins.

`python record_cases.py NAME OUT.pickle STATS.json` runs one case in this process: history with stacks from before its
first allocation (a late case says when), then the snapshot, and what the allocator itself counted.
`python record_cases.py all OUTDIR` runs every case in a process of its own, shortens the file names, compresses the
snapshots to OUTDIR/NAME.pickle.xz and collects the counts in OUTDIR/expected.json. It needs an NVIDIA GPU of 24 GiB.
"""

from __future__ import annotations

import json
import lzma
import os
import pickle
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from recorded_cases import CASES

NUM_PROCESSES, CASE_TIMEOUT_S = 5, 150
STATS = [
    "allocated_bytes.all.peak",
    "reserved_bytes.all.peak",
    "active_bytes.all.peak",
    "requested_bytes.all.peak",
    "allocated_bytes.all.current",
    "reserved_bytes.all.current",
    "active_bytes.all.current",
    "requested_bytes.all.current",
    "inactive_split_bytes.all.peak",
    "num_alloc_retries",
    "num_ooms",
    "num_device_alloc",
    "num_device_free",
    "allocation.all.allocated",
    "segment.all.allocated",
]


def record(name: str, snapshot_path: str, stats_path: str) -> None:
    """Run one case in this process and write its snapshot and its counts."""
    chosen = CASES[name]
    history = {"max_entries": 100_000, "stacks": "python", **chosen.history}

    def begin() -> None:
        torch.cuda.reset_peak_memory_stats()
        torch.cuda.memory._record_memory_history(**history)

    torch.cuda.init()
    if not chosen.is_late:
        begin()
    program = chosen.run(begin) if chosen.is_late else chosen.run()
    observed = next(program)
    stats = torch.cuda.memory_stats()
    torch.cuda.memory._dump_snapshot(snapshot_path)
    properties = torch.cuda.get_device_properties(0)
    fraction = getattr(torch.cuda, "get_per_process_memory_fraction", lambda: None)()
    facts = {
        "conf": chosen.conf,
        "torch": torch.__version__,
        "gpu": properties.name,
        "stats": {key: stats.get(key) for key in STATS},
        "history_late": chosen.is_late,
        "history": history,
        "total_memory_bytes": properties.total_memory,
        "memory_fraction": fraction,
        "observed": observed,
    }
    Path(stats_path).write_text(json.dumps(facts))


def short_name(filename: str) -> str:
    """Cut a file name down to what is the same on every machine."""
    for part in ("site-packages/", "lib/python3"):
        if part in filename:
            return filename[filename.index(part) :]
    return filename.rsplit("/", 1)[-1]


def shorten(snapshot: dict[str, Any]) -> None:
    """Shorten the file names of all frames in place, so that shared stacks stay shared."""
    names: dict[str, str] = {}
    entries = [event for trace in snapshot["device_traces"] for event in trace] + snapshot["segments"]
    entries += [block for segment in snapshot["segments"] for block in segment["blocks"]]
    done = set()
    for entry in entries:
        for frame in entry.get("frames") or []:
            if id(frame) not in done:
                frame["filename"] = names.setdefault(frame["filename"], short_name(frame["filename"]))
                done.add(id(frame))


def record_apart(name: str, folder: Path) -> dict[str, Any] | None:
    """Record one case in a process of its own and pack it; None if it failed."""
    raw, stats_path, began = folder / f"{name}.pickle", folder / f"{name}.json", time.monotonic()
    command = [sys.executable, __file__, name, str(raw), str(stats_path)]
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=CASE_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        print(f"{name}: still running after {CASE_TIMEOUT_S} s", flush=True)
        return None
    if result.returncode:
        print(f"{name}: FAILED\n{result.stderr[-2000:]}", flush=True)
        return None
    facts, snapshot = json.loads(stats_path.read_text()), pickle.loads(raw.read_bytes())
    shorten(snapshot)
    packed = lzma.compress(pickle.dumps(snapshot, protocol=4), preset=9 | lzma.PRESET_EXTREME)
    (folder / f"{name}.pickle.xz").write_bytes(packed)
    raw.unlink()
    stats_path.unlink()
    num_events = sum(map(len, snapshot["device_traces"]))
    took = time.monotonic() - began
    print(f"{name}: {num_events} events, {len(packed)} bytes, {took:.0f} s, {facts['observed']}"[:400], flush=True)
    max_entries = facts["history"]["max_entries"]
    is_wrapped = facts["history"].get("enabled") != "state" and num_events >= max_entries
    return {**facts, "num_events": num_events, "history_wrapped": is_wrapped}


def record_all(folder: Path) -> int:
    """Record every case; return how many failed."""
    folder.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(NUM_PROCESSES) as pool:
        facts = dict(zip(CASES, pool.map(lambda name: record_apart(name, folder), CASES), strict=True))
    kept = {name: fact for name, fact in facts.items() if fact is not None}
    (folder / "expected.json").write_text(json.dumps(kept, indent=1) + "\n")
    return len(facts) - len(kept)


def main(arguments: list[str]) -> int:
    if arguments[0] == "all":
        return record_all(Path(arguments[1]))
    conf = CASES[arguments[0]].conf
    if os.environ.get("PYTORCH_CUDA_ALLOC_CONF", "") != conf or "PYTORCH_ALLOC_CONF" in os.environ:
        os.environ.pop("PYTORCH_ALLOC_CONF", None)
        os.environ["PYTORCH_CUDA_ALLOC_CONF"] = conf  # read when CUDA starts, so it needs a process that has not begun
        os.execv(sys.executable, [sys.executable, *sys.argv])
    record(*arguments)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
