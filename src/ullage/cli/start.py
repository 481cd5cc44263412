"""What the system runs as `ullage`: it begins to read the file before the command line's own modules load."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import NoReturn

from ullage.cli.reading import begin


def run() -> NoReturn:
    """Run the command line and end the process, without the interpreter's tidying up of what the system frees anyway."""
    begin(sys.argv[1:])
    from ullage.cli.main import run as run_command

    exit_code = 0
    try:
        run_command()
    except SystemExit as stop:
        if stop.code is not None and not isinstance(stop.code, int):
            print(stop.code, file=sys.stderr)
        exit_code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except BaseException:
        sys.excepthook(*sys.exc_info())
        exit_code = 1
    with contextlib.suppress(Exception):  # it may be closed, or its reader gone
        sys.stderr.flush()
    os._exit(exit_code)
