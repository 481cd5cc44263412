"""`ullage tune FILE`."""

from __future__ import annotations

import sys

from ullage.cli.options import AsJson, Cap, Debug, DeviceNumber, File, Top, parse_cap, print_json


def tune(
    file: File,
    cap: Cap = None,
    top: Top = 8,
    device: DeviceNumber = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Find the settings that reserve least, and print the line to set."""
    from ullage.replay import tune as tune_trace
    from ullage.trace import load

    trace = load(file)
    tuning = tune_trace(trace, cap_bytes=parse_cap(cap), device=device, progress=_progress)
    plain = tuning.to_json()
    if as_json:
        print_json(plain)
    else:
        from ullage.report.replay_text import print_tuning

        print_tuning(plain, top=top, num_devices=len(trace.devices))


def _progress(done: int, whole: int) -> None:
    if sys.stderr.isatty():
        end = "\r" if done < whole else "\r\033[K"
        print(f"{done} of {whole} settings", end=end, file=sys.stderr, flush=True)
