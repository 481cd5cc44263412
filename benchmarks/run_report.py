"""Measures the page of `ullage report` beside that of `torch.cuda._memory_viz trace_plot`: writing, opening, moving in it.

    make bench                                  the usual way
    python -m benchmarks.run_report --help      other sizes, turns, browsers

Both pages are written and opened in the same turns. "Beyond reading" is `ullage report` less `ullage info` of its turn.
Chromium is headless, with its defaults: WebGL and canvas are drawn in software where there is no GPU. Without Chromium
and playwright only writing is measured; where the scripts of PyTorch's page cannot be had (benchmarks/peer_page.py), that
page is written and not opened. That page draws the 15,000 largest blocks, and the rest as one band; ours draws all.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import json
import shlex
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.peer_page import D3_VERSION, PeerMissingError, find_scripts
from benchmarks.process_timing import Case, Timing, machine, measure
from benchmarks.run_explain import FINDINGS_OR_NOT, SOURCE, label, tiled_recording, versions, viewer_script

RESULTS = Path("benchmarks/results/report.json")
ALWAYS = 1_000_000
IF_THERE = 10_000_000  # making that recording takes minutes
LARGEST_FOR_PEER = 1_000_000  # a browser holds no page of 1.3 GB in one string
TARGETS = {"beyond_reading_s": 1.5, "first_picture_ms": 1500, "frame_ms": 33}  # of ullage, at 1 M events
INFO, REPORT, PEER = "ullage info", "ullage report", "_memory_viz trace_plot"
LEFT_FOR_MOVING_S = 150  # a page's process ends so long after the first picture's limit at the latest


@dataclass(kw_only=True)
class Opened:
    """A page, and what opening it gave, turn by turn."""

    name: str
    recording: str
    file: Path
    fragment: str = ""
    is_peer: bool = False
    turns: list[dict[str, Any]] = field(default_factory=list)


def quantiles(values: Sequence[float]) -> dict[str, float] | None:
    """Return the median, the 90th percentile (the nearest value below) and the extremes; None of nothing."""
    if not values:
        return None
    ordered = sorted(values)
    found = {
        "median": statistics.median(ordered),
        "p90": ordered[(len(ordered) - 1) * 9 // 10],
        "min": ordered[0],
        "max": ordered[-1],
    }
    return {name: round(value, 3) for name, value in found.items()}


def differences(whole: Timing, part: Timing) -> list[float]:
    """Return what `whole` took more than `part`, turn by turn, in seconds."""
    return [one - other for one, other in zip(whole.seconds, part.seconds, strict=True)]


def writing_cases(ullage: list[str], recordings: dict[int, Path], scratch: Path, viewer: Path | None) -> list[Case]:
    """Return the commands; `viewer` is torch's, run for recordings that it can take."""
    cases = []
    for num_events, path in recordings.items():
        page = str(page_file(scratch, REPORT, num_events))
        commands = {INFO: [*ullage, "info", str(path)], REPORT: [*ullage, "report", str(path), "-o", page]}
        if viewer and num_events <= LARGEST_FOR_PEER:
            page = str(page_file(scratch, PEER, num_events))
            commands[PEER] = [sys.executable, str(viewer), "trace_plot", str(path), "-o", page]
        cases += [
            Case(
                name=name,
                recording=label(num_events),
                command=command,
                is_peer=name == PEER,
                allowed_exit_codes=FINDINGS_OR_NOT,
            )
            for name, command in commands.items()
        ]
    return cases


def page_file(scratch: Path, name: str, num_events: int) -> Path:
    """Return where a page is written."""
    return scratch / f"{name.split()[-1]}.{num_events}.html"


def pages(recordings: dict[int, Path], scratch: Path) -> list[Opened]:
    """Return the pages that have been written."""
    found = []
    for num_events in recordings:
        name, ours = label(num_events), page_file(scratch, REPORT, num_events)
        found.append(Opened(name=REPORT, recording=name, file=ours))
        found.append(Opened(name=f"{REPORT}, WebGL", recording=name, file=ours, fragment="#webgl"))
        theirs = page_file(scratch, PEER, num_events)
        if theirs.exists():
            found.append(Opened(name=PEER, recording=name, file=theirs, is_peer=True))
    return found


def open_once(page: Opened, options: argparse.Namespace) -> dict[str, Any]:
    """Open a page in a process of its own, which can hang or crash without harm."""
    words = [str(page.file) + page.fragment, "--chromium", options.chromium, "--timeout-s", str(options.timeout_s)]
    words += ["--peer", str(options.peer_scripts)] if page.is_peer else []
    try:
        child = subprocess.run(
            [sys.executable, "-m", "benchmarks.page_timing", *words],
            capture_output=True,
            text=True,
            timeout=options.timeout_s + LEFT_FOR_MOVING_S,
        )
    except subprocess.TimeoutExpired:
        return unopened("hang", "no event was answered any more")
    if child.returncode != 0:
        return unopened("failed", child.stderr.strip().splitlines()[-1])
    turn: dict[str, Any] = json.loads(child.stdout)
    return turn


def unopened(outcome: str, message: str) -> dict[str, Any]:
    """Return a turn that gave nothing to measure."""
    empty: dict[str, Any] = {"first_picture_ms": None, "painter": None, "frames_ms": {}, "peak_rss_bytes": {}}
    return empty | {"outcome": outcome, "chromium": "", "messages": [message]}


def summary(page: Opened) -> dict[str, Any]:
    """Return what the results file holds of a page."""
    stretches: dict[str, list[float]] = {}
    of_turns = []
    for turn in page.turns:
        for name, frames in turn["frames_ms"].items():
            stretches.setdefault(name, []).extend(frames)
        of_turns.append([ms for frames in turn["frames_ms"].values() for ms in frames])
    every_frame = [ms for frames in of_turns for ms in frames]
    return {
        "name": page.name,
        "recording": page.recording,
        "is_peer": page.is_peer,
        "html_bytes": page.file.stat().st_size,
        "outcomes": [turn["outcome"] for turn in page.turns],
        "painters": sorted({turn["painter"] for turn in page.turns if turn["painter"]}),
        "first_picture_ms": quantiles([turn["first_picture_ms"] for turn in page.turns if turn["first_picture_ms"]]),
        "num_frames": len(every_frame),
        "frame_ms": quantiles(every_frame),
        "frame_ms_medians_of_turns": [round(statistics.median(frames), 1) for frames in of_turns if frames],
        "frame_ms_by_stretch": {name: quantiles(frames) for name, frames in stretches.items()},
        "peak_rss_bytes": max((sum(turn["peak_rss_bytes"].values()) for turn in page.turns), default=0),
        "messages": sorted({message for turn in page.turns for message in turn["messages"]}),
    }


def table(writing: list[Timing], opened: list[dict[str, Any]], beyond: dict[str, dict[str, float]]) -> str:
    """Return the results as text."""
    lines = [f"{'writing':28}{'events':>7}{'median s':>10}{'min - max s':>16}{'beyond reading s':>18}"]
    for timing in writing:
        case, spread = timing.case, f"{min(timing.seconds):.2f} - {max(timing.seconds):.2f}"
        more = f"{beyond[case.recording]['median']:.2f}" if case.name == REPORT else ""
        lines.append(f"{case.name:28}{case.recording:>7}{timing.median_s:10.2f}{spread:>16}{more:>18}")
    heads = f"{'HTML MB':>9}{'first picture ms':>18}{'frame ms: median':>18}{'p90':>6}{'worst':>7}{'peak MB':>9}"
    lines += ["", f"{'opening':28}{'events':>7}{heads}"]
    for page in opened:
        size, peak = page["html_bytes"] / 1e6, page["peak_rss_bytes"] / 1e6
        first, frame = page["first_picture_ms"], page["frame_ms"]
        shown = f"{first['median']:,.0f}" if first else page["outcomes"][0]
        moving = (
            f"{frame['median']:18.0f}{frame['p90']:6.0f}{frame['max']:7.0f}" if frame else f"{'-':>18}{'-':>6}{'-':>7}"
        )
        lines.append(f"{page['name']:28}{page['recording']:>7}{size:9.1f}{shown:>18}{moving}{peak:9.0f}")
    return "\n".join(lines)


def parse(words: list[str] | None = None) -> argparse.Namespace:
    """Return the options."""
    parser = argparse.ArgumentParser(description="Measure the page of ullage report and PyTorch's.")
    parser.add_argument("--source", type=Path, default=SOURCE, help=f"the recording to tile ({SOURCE})")
    parser.add_argument("--tiled", type=Path, default=Path("build/tiled"), help="where tiled recordings are kept")
    parser.add_argument(
        "--events", type=int, nargs="+", help=f"{ALWAYS:,}, and {IF_THERE:,} if that recording is there"
    )
    parser.add_argument("--runs", type=int, default=5, help="turns of writing")
    parser.add_argument("--turns", type=int, default=3, help="turns of opening")
    parser.add_argument("--ullage", default=str(Path(sys.executable).parent / "ullage"), help="the command to time")
    parser.add_argument("--peer-scripts", type=Path, default=Path("build/peer_page"), help="those of PyTorch's page")
    parser.add_argument("--chromium", default="/usr/bin/chromium")
    parser.add_argument("--timeout-s", type=float, default=120.0, help="for a first picture")
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args(words)
    if options.events is None:
        stem = options.source.name.partition(".pickle")[0]
        is_there = (options.tiled / f"{stem}.{label(IF_THERE).replace(' ', '')}.pickle").exists()
        options.events = [ALWAYS, IF_THERE] if is_there else [ALWAYS]
    return options


def peer_description(options: argparse.Namespace) -> dict[str, Any]:
    """Return what PyTorch's page runs, or why it cannot be opened."""
    try:
        scripts = find_scripts(options.peer_scripts)
    except PeerMissingError as error:
        print(f"PyTorch's page is written but not opened: {error}", file=sys.stderr)
        return {"not_opened": str(error)}
    return {"pytorch_commit": scripts.commit, "d3": D3_VERSION, "sha256": scripts.sha256}


def open_pages(found: list[Opened], options: argparse.Namespace) -> str:
    """Open every page in turns; returns the browser's version, empty where there is no browser."""
    if importlib.util.find_spec("playwright") is None or not Path(options.chromium).exists():
        print("no playwright, or no Chromium: pages are written but not opened", file=sys.stderr)
        return ""
    for turn in range(options.turns):
        for page in found:
            page.turns.append(open_once(page, options))
            got = page.turns[-1]
            said = f"turn {turn + 1}/{options.turns}: {page.name}, {page.recording}: {got['outcome']}"
            print(f"{said}, first picture {got['first_picture_ms']} ms", file=sys.stderr)
    return next((turn["chromium"] for page in found for turn in page.turns if turn["chromium"]), "")


def main() -> None:
    """Measure, print the table and write the results."""
    options = parse()
    recordings = {size: tiled_recording(options.source, size, options.tiled) for size in options.events}
    viewer, peer = viewer_script(), peer_description(options)
    if viewer is None:
        print("torch is not installed: its page is left out", file=sys.stderr)
    with tempfile.TemporaryDirectory() as scratch:
        cases = writing_cases(shlex.split(options.ullage), recordings, Path(scratch), viewer)
        writing = measure(cases, options.runs, lambda line: print(line, file=sys.stderr))
        found = [page for page in pages(recordings, Path(scratch)) if not (page.is_peer and "not_opened" in peer)]
        chromium = open_pages(found, options)
        opened = [summary(page) for page in found if page.turns]
    of = {(timing.case.name, timing.case.recording): timing for timing in writing}
    beyond = {}
    for size in recordings:
        spread = quantiles(differences(of[REPORT, label(size)], of[INFO, label(size)]))
        assert spread is not None, "there is a turn"
        beyond[label(size)] = spread
    print(table(writing, opened, beyond))
    results = {
        "benchmark": "report",
        "machine": machine(),
        "versions": versions() | {"chromium": chromium, "playwright": playwright_version()},
        "peer_page": peer,
        "targets": TARGETS,
        "configuration": {
            "source": options.source.name,
            "num_runs_of_writing": options.runs,
            "num_turns_of_opening": options.turns,
            "warm_file_cache": True,
            "viewport": "1280x720",
            "chromium_arguments": ["--no-sandbox"],
            "first_picture_limit_s": options.timeout_s,
            "recordings": {label(size): {"bytes": path.stat().st_size} for size, path in recordings.items()},
        },
        "writing": [timing.as_json() for timing in writing],
        "beyond_reading_s": beyond,
        "pages": opened,
    }
    options.results.parent.mkdir(parents=True, exist_ok=True)
    options.results.write_text(json.dumps(results, indent=1) + "\n")


def playwright_version() -> str | None:
    """Return playwright's version, None where it is not installed."""
    try:
        return importlib.metadata.version("playwright")
    except importlib.metadata.PackageNotFoundError:
        return None


if __name__ == "__main__":
    main()
