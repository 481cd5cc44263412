"""Times the models over a tiled recording, `ullage tune`, and placement of minimalloc's instances.

    make bench                                  the usual way
    python -m benchmarks.run_replay --help      other sizes

A model is timed from the first request to the last, on one core, the recording read before; events are the recording's.
No peer replays a PyTorch recording. Beside the figures stand published ones: RMM's own replay of a log into its arena,
110,250 events by 16 threads in 178 ms (rapidsai/rmm, pull request 591), and minimalloc's solver, which brings these
eleven instances below their capacity in 27 s together on two cores.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

from benchmarks.process_timing import machine
from benchmarks.run_explain import SOURCE, tiled_recording, versions

import ullage
from ullage.replay import MODELS, Policy, Simulation, place_buffers, read_minimalloc, tune

RESULTS = Path("benchmarks/results/replay_speed.json")
INSTANCES = Path("benchmarks/minimalloc")
SECONDS = 20.0  # as the command takes for an instance
PUBLISHED = {
    "rmm_replay_events_per_s": {"value": 110_250 / 0.178, "source": "rapidsai/rmm#591: arena, 16 threads"},
    "minimalloc_all_instances_s": {"value": 27.0, "source": "google/minimalloc's solver, two cores"},
}


def time_models(simulation: Simulation, num_runs: int) -> list[dict[str, Any]]:
    """Return, for each model, the events that a core replays in a second: the median of the runs."""
    policies = {"default": Policy(), "expandable_segments:True": Policy(expandable_segments=True)} | MODELS
    rows = []
    for name, policy in policies.items():
        seconds = []
        for _ in range(num_runs):
            start = time.perf_counter()
            simulation.run(policy, None)
            seconds.append(time.perf_counter() - start)
        middle = sorted(seconds)[num_runs // 2]
        rows.append(
            {
                "model": name,
                "median_s": round(middle, 4),
                "min_s": round(min(seconds), 4),
                "events_per_s": round(simulation.device.num_events / middle),
            }
        )
    return rows


def time_tuning(trace: ullage.Trace) -> dict[str, Any]:
    """Return how long a search over the settings takes on all cores."""
    start = time.perf_counter()
    tuning = tune(trace)
    return {"num_settings": len(tuning.candidates), "seconds": round(time.perf_counter() - start, 2)}


def time_placement(folder: Path) -> list[dict[str, Any]]:
    """Place each instance, and check the plan."""
    rows = []
    for path in sorted(folder.glob("*.csv")):
        buffers = read_minimalloc(path)
        start = time.perf_counter()
        plan = place_buffers(buffers, seconds=SECONDS)
        seconds = time.perf_counter() - start
        if plan.problem():
            raise RuntimeError(f"{path}: {plan.problem()}")
        row = {"instance": path.name.partition(".")[0], "num_buffers": len(buffers.sizes), "seconds": round(seconds, 2)}
        rows.append(row | {"height": plan.height_bytes, "capacity": buffers.capacity_bytes})
    return rows


def table(results: dict[str, Any]) -> str:
    """Return the results as text."""
    lines = [f"{'model':28}{'M events/s':>12}{'median s':>10}"]
    lines += [f"{row['model']:28}{row['events_per_s'] / 1e6:12.1f}{row['median_s']:10.3f}" for row in results["models"]]
    lines.append(f"tune: {results['tuning']['num_settings']} settings in {results['tuning']['seconds']:.1f} s")
    lines.append(f"{'instance':10}{'buffers':>8}{'height':>12}{'capacity':>12}{'s':>8}")
    for row in results["placement"]:
        lines.append(
            f"{row['instance']:10}{row['num_buffers']:8,}{row['height']:12,}{row['capacity']:12,}{row['seconds']:8.2f}"
        )
    within = sum(row["height"] <= row["capacity"] for row in results["placement"])
    whole = sum(row["seconds"] for row in results["placement"])
    lines.append(f"{within} of {len(results['placement'])} within their capacity, {whole:.1f} s together")
    return "\n".join(lines)


def main() -> None:
    """Measure, print the table and write the results."""
    parser = argparse.ArgumentParser(description="Time replay, tune and placement.")
    parser.add_argument("--source", type=Path, default=SOURCE, help=f"the recording to tile ({SOURCE})")
    parser.add_argument("--tiled", type=Path, default=Path("build/tiled"), help="where tiled recordings are kept")
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args()
    path = tiled_recording(options.source, options.events, options.tiled)
    trace = ullage.load(path)
    simulation = Simulation.of(trace)
    results = {
        "benchmark": "replay_speed",
        "machine": machine(),
        "versions": versions(),
        "configuration": {
            "source": options.source.name,
            "num_events": simulation.device.num_events,
            "num_runs": options.runs,
            "num_cores_of_tune": len(os.sched_getaffinity(0)),
        },
        "published": PUBLISHED,
        "models": time_models(simulation, options.runs),
        "tuning": time_tuning(trace),
        "placement": time_placement(INSTANCES),
    }
    print(table(results))
    options.results.parent.mkdir(parents=True, exist_ok=True)
    options.results.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
