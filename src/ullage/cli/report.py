"""`ullage report FILE...`."""

from __future__ import annotations

import os
import sys
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from ullage.cli.options import AsJson, Cap, Debug, DeviceNumber, Mine, parse_cap, print_json, standard_input_path
from ullage.cli.reading import read

if TYPE_CHECKING:
    from collections.abc import Callable


def _standard_input_paths(paths: list[str]) -> list[str]:
    return [standard_input_path(path) or path for path in paths]


Files = Annotated[
    list[str],
    typer.Argument(
        metavar="FILE", help="Memory snapshots, one a rank; - is standard input.", callback=_standard_input_paths
    ),
]


def report(
    files: Files,
    output: Annotated[
        str | None,
        typer.Option(
            "-o", "--output", metavar="FILE", help="The page; without: the first file's name and .html, here."
        ),
    ] = None,
    what_if: Annotated[
        bool, typer.Option("--what-if/--no-what-if", help="Also simulate other allocator settings.")
    ] = True,
    cap: Cap = None,
    device: DeviceNumber = None,
    mine: Mine = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Write one page that shows where GPU memory went: it needs no network, and opens in any browser."""
    from ullage.report.page_file import write_report

    if cap is not None and not what_if:
        print("ullage: --cap is ignored with --no-what-if: it limits what is simulated", file=sys.stderr)
    target = output or _default_output(files)
    written = write_report(
        files,
        target,
        device=device,
        cap_bytes=parse_cap(cap),
        simulate=what_if,
        read=partial(read, mine=mine),
        progress=_progress(len(files)),
    )
    if as_json:
        print_json(written)
        return
    from ullage.report.page_text import print_written

    print_written(written)


def _default_output(files: list[str]) -> str:
    name = os.path.basename(files[0])
    if files[0] == standard_input_path("-"):
        return "report.html"
    for ending in (".gz", ".xz", ".zst", ".pickle", ".pkl", ".json"):
        name = name.removesuffix(ending)
    return f"{name or 'report'}.html"


def _progress(num_files: int) -> Callable[[int, str], None]:
    def show(index: int, path: str) -> None:
        if sys.stderr.isatty():
            text = f"{index + 1} of {num_files}: {path}" if path else ""
            print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)

    return show
