"""Reads a file while the modules that will report on it load: both take about as long, and Python's lock is free."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ullage.trace import Trace


def read(path: str, *modules: str, mine: str | None = None) -> Trace:
    """Load a trace and rebuild its devices' histories; import some modules meanwhile.

    Args:
        path: The file.
        modules: What the command needs next.
        mine: As in `ullage.load`.

    Raises:
        TraceError: As `ullage.load`.
        UllageError: As `ullage.load`.
    """
    with ThreadPoolExecutor(max_workers=1) as pool:
        reading = pool.submit(_load, path, mine)
        for module in modules:
            import_module(module)
        return reading.result()


def _load(path: str, mine: str | None) -> Trace:
    from ullage.trace import load

    trace = load(path, mine=mine)
    for device in trace.devices:
        _ = device.history
    return trace
