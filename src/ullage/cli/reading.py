"""Reads a file in a thread of its own while modules load: both take about as long, and the reader needs no lock."""

from __future__ import annotations

import os
from importlib import import_module

TYPE_CHECKING = False  # as in `typing`, whose import would keep the reader waiting
if TYPE_CHECKING:
    from collections.abc import Sequence

    from ullage.trace import Trace
    from ullage.trace.snapshot import BackgroundReader

_COMMANDS = ("doctor", "explain", "info", "report")  # those that `read`
_begun: list[BackgroundReader] = []


def begin(words: Sequence[str]) -> None:
    """Begin to read the file that a command line most likely names; `read` takes over what was begun.

    Nothing comes of a wrong guess but the work: `read` reads what it is asked for.

    Args:
        words: The command line without the program's name.
    """
    if not words or words[0] not in _COMMANDS:
        return
    files = [word for word in words[1:] if not word.startswith("-") and os.path.isfile(word)]
    if len(files) == 1:
        from ullage.trace.snapshot import BackgroundReader

        _begun.append(BackgroundReader(files[0]))


def read(path: str, *modules: str, mine: str | None = None) -> Trace:
    """Load a trace, and import some modules meanwhile.

    Args:
        path: The file.
        modules: What the command needs next.
        mine: As in `ullage.load`.

    Raises:
        TraceError: As `ullage.load`.
        UllageError: As `ullage.load`.
    """
    from ullage.trace.snapshot import BackgroundReader

    reading = next((one for one in _begun if one.path == path), None) or BackgroundReader(path)
    _begun.clear()
    for module in ("ullage.trace.model", *modules):
        import_module(module)
    from ullage.trace import Trace

    return Trace(reading.tables(), path=path, mine=mine)
