"""Times `ullage info` and `ullage explain` beside PyTorch's own viewer and a plain unpickling, as whole processes.

    make bench                                   the usual way
    python -m benchmarks.run_explain --help      other recordings, sizes, commands

The peers run in the same turns on the same files. `_memory_viz.py` is run as a file, which spares it the import of
torch (over a second) that `python -m torch.cuda._memory_viz` adds.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import json
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.process_timing import Case, Timing, machine, measure

SOURCE = Path("examples/train_varlen.pickle.xz")
RESULTS = Path("benchmarks/results/explain.json")
SIZES = (1_000_000, 10_000_000)
LARGEST_FOR_VIEWER = 1_000_000  # on 10 M events the viewer takes minutes and tens of GB
FINDINGS_OR_NOT = frozenset({0, 1})
UNPICKLE = "import pickle, sys; pickle.load(open(sys.argv[1], 'rb'))"


def label(num_events: int) -> str:
    """Return a size as people say it."""
    return f"{num_events // 1_000_000} M" if num_events >= 1_000_000 else f"{num_events:,}"


def tiled_recording(source: Path, num_events: int, folder: Path) -> Path:
    """Return the recording of that size, made if it is not in `folder` yet."""
    path = folder / f"{source.name.partition('.pickle')[0]}.{label(num_events).replace(' ', '')}.pickle"
    if not path.exists():
        unfinished = path.with_suffix(".unfinished")
        words = [str(source), str(unfinished), "--events", str(num_events)]
        # In a process of its own: a child's peak memory begins at that of the process that starts it.
        subprocess.run([sys.executable, "-m", "benchmarks.tile", *words], check=True)
        unfinished.rename(path)
    return path


def viewer_script() -> Path | None:
    """Return the path of torch's viewer, None where torch is not installed; does not import torch."""
    spec = importlib.util.find_spec("torch")
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(spec.submodule_search_locations[0]) / "cuda" / "_memory_viz.py"


def ullage_cases(ullage: list[str], recordings: dict[int, Path]) -> list[Case]:
    """Return the commands of ours."""
    cases = [Case(name="ullage --help", recording="", command=[*ullage, "--help"])]
    for num_events, path in recordings.items():
        for words in (["info"], ["info", "--verify"], ["explain"]):
            case = Case(
                name=" ".join(["ullage", *words]),
                recording=label(num_events),
                command=[*ullage, *words, str(path)],
                allowed_exit_codes=FINDINGS_OR_NOT,
            )
            cases.append(case)
    return cases


def peer_cases(recordings: dict[int, Path], scratch: Path, viewer: Path | None, largest: int) -> list[Case]:
    """Return the peers' commands."""
    cases = []
    for num_events, path in recordings.items():
        commands = {"pickle.load": [sys.executable, "-c", UNPICKLE, str(path)]}
        if viewer and num_events <= largest:
            run_viewer = [sys.executable, str(viewer)]
            commands["_memory_viz trace"] = [*run_viewer, "trace", str(path)]
            commands["_memory_viz trace_plot"] = [
                *run_viewer,
                "trace_plot",
                str(path),
                "-o",
                str(scratch / "plot.html"),
            ]
        for name, command in commands.items():
            cases.append(Case(name=name, recording=label(num_events), command=command, is_peer=True))
    return cases


def table(timings: list[Timing]) -> str:
    """Return the timings as text."""
    lines = [f"{'command':24}{'events':>8}{'median s':>10}{'min - max s':>18}{'peak MB':>9}"]
    for timing in sorted(timings, key=lambda timing: timing.case.recording):
        case, spread = timing.case, f"{min(timing.seconds):.3f} - {max(timing.seconds):.3f}"
        peak_mb = max(timing.peak_rss_bytes) / 1e6
        lines.append(f"{case.name:24}{case.recording:>8}{timing.median_s:10.3f}{spread:>18}{peak_mb:9.0f}")
    return "\n".join(lines)


def versions() -> dict[str, str | None]:
    """Return the versions of what was measured."""
    found: dict[str, str | None] = {}
    for name in ("ullage", "torch", "numpy"):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = None
    return found


def parse(words: list[str] | None = None) -> argparse.Namespace:
    """Return the options."""
    parser = argparse.ArgumentParser(description="Time ullage and its peers on a tiled recording.")
    parser.add_argument("--source", type=Path, default=SOURCE, help=f"the recording to tile ({SOURCE})")
    parser.add_argument("--tiled", type=Path, default=Path("build/tiled"), help="where tiled recordings are kept")
    parser.add_argument("--events", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--ullage", default=str(Path(sys.executable).parent / "ullage"), help="the command to time")
    parser.add_argument("--only-peers", action="store_true")
    parser.add_argument("--viewer-up-to", type=int, default=LARGEST_FOR_VIEWER, help="events")
    parser.add_argument("--results", type=Path, default=RESULTS)
    return parser.parse_args(words)


def report(timings: list[Timing], options: argparse.Namespace, recordings: dict[int, Path]) -> dict[str, Any]:
    """Return what the results file holds."""
    return {
        "benchmark": "explain",
        "machine": machine(),
        "versions": versions(),
        "configuration": {
            "source": options.source.name,
            "num_runs": options.runs,
            "warm_file_cache": True,
            "recordings": {label(size): {"bytes": path.stat().st_size} for size, path in recordings.items()},
        },
        "timings": [timing.as_json() for timing in timings],
    }


def main() -> None:
    """Measure, print the table and write the results."""
    options = parse()
    recordings = {size: tiled_recording(options.source, size, options.tiled) for size in options.events}
    viewer = viewer_script()
    if viewer is None:
        print("torch is not installed: its viewer is left out", file=sys.stderr)
    with tempfile.TemporaryDirectory() as scratch:
        cases = [] if options.only_peers else ullage_cases(shlex.split(options.ullage), recordings)
        cases += peer_cases(recordings, Path(scratch), viewer, options.viewer_up_to)
        timings = measure(cases, options.runs, lambda line: print(line, file=sys.stderr))
    print(table(timings))
    options.results.parent.mkdir(parents=True, exist_ok=True)
    options.results.write_text(json.dumps(report(timings, options, recordings), indent=1) + "\n")


if __name__ == "__main__":
    main()
