"""`ullage probe`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from ullage.cli.options import AsJson, Debug, print_json
from ullage.errors import UllageError

if TYPE_CHECKING:
    from ullage.runtime.probe import ProbeResult
    from ullage.runtime.probe.changes import Changes


def probe(
    last: Annotated[bool, typer.Option("--last", help="Show what was measured last; measure nothing.")] = False,
    device: Annotated[int, typer.Option("--device", min=0, metavar="N", help="Which GPU.")] = 0,
    plot: Annotated[bool, typer.Option("--plot", help="Draw copies and page reach in the terminal too.")] = False,
    png: Annotated[str | None, typer.Option("--png", metavar="OUT", help="Draw the figures into a PNG file.")] = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Measure what this machine's memory does, in under a minute, and say which to use for what."""
    if plot and as_json:
        print("ullage: --plot is ignored with --json (--png FILE draws into a file)", file=sys.stderr)
    if png is not None:
        from ullage.report.probe_png import refuse_png

        refuse_png(png)
    from ullage.runtime.probe.plain import plain
    from ullage.runtime.probe.text import probe_text

    result, changes = (_last(device), None) if last else _measured(device)
    report = result.to_json() | {"changes": plain(changes)}
    if png is not None:
        from ullage.report.probe_png import save_png

        save_png(report, png)
    if as_json:
        print_json(report | ({} if png is None else {"png": png}))
        return
    print(probe_text(result, changes))
    if plot:
        from ullage.report.probe_plot import probe_charts

        print(f"\n{probe_charts(report)}")


def _last(device: int) -> ProbeResult:
    from ullage.runtime.probe.store import last_probe

    found = last_probe(device)
    if found is None:
        raise UllageError("nothing is kept for this GPU and driver: measure it by `ullage probe`")
    return found


def _measured(device: int) -> tuple[ProbeResult, Changes | None]:
    """Measure, and compare with what was kept; None: nothing was, of this GPU."""
    from ullage import __version__
    from ullage.runtime.probe import known_probe
    from ullage.runtime.probe import probe as measure
    from ullage.runtime.probe.changes import changes_between

    before = known_probe(device)
    progress = _progress if sys.stderr.isatty() else None
    try:
        result = measure(device=device, version=__version__, progress=progress)
    finally:
        if progress is not None:
            progress("")
    return result, None if before is None else changes_between(before, result)


def _progress(what: str) -> None:
    """Show what is measured next where what was before was shown."""
    print(f"\r\033[K{what[:72]}", end="", file=sys.stderr, flush=True)
