"""The trace: its model, its tables and its readers."""

from importlib import import_module

TYPE_CHECKING = False  # as in `typing`, whose import would keep the reader waiting
if TYPE_CHECKING:
    from typing import Any

    from ullage.trace.annotations import Span, annotation_spans, event_categories
    from ullage.trace.completeness import Completeness, HistoryKind
    from ullage.trace.device import DeviceTrace
    from ullage.trace.model import Trace, load
    from ullage.trace.sites import BEFORE, BEFORE_ID, NO_STACK, Frame, Sites
    from ullage.trace.tables import (
        BEFORE_FIRST,
        NONE,
        Action,
        Blocks,
        BlockState,
        Counters,
        CounterSeries,
        Events,
        Layout,
        PoolSize,
        Segments,
    )

__all__ = [
    "BEFORE",
    "BEFORE_FIRST",
    "BEFORE_ID",
    "NONE",
    "NO_STACK",
    "Action",
    "BlockState",
    "Blocks",
    "Completeness",
    "CounterSeries",
    "Counters",
    "DeviceTrace",
    "Events",
    "Frame",
    "HistoryKind",
    "Layout",
    "PoolSize",
    "Segments",
    "Sites",
    "Span",
    "Trace",
    "annotation_spans",
    "event_categories",
    "load",
]

# Loaded when they are first asked for: the reader alone, which commands start at once, needs none of them.
_MODULES = {
    "annotations": ("Span", "annotation_spans", "event_categories"),
    "completeness": ("Completeness", "HistoryKind"),
    "device": ("DeviceTrace",),
    "model": ("Trace", "load"),
    "sites": ("BEFORE", "BEFORE_ID", "NO_STACK", "Frame", "Sites"),
}


def __getattr__(name: str) -> "Any":
    if name not in __all__:
        raise AttributeError(f"module 'ullage.trace' has no attribute {name!r}")
    home = next((module for module, names in _MODULES.items() if name in names), "tables")
    return globals().setdefault(name, getattr(import_module(f"ullage.trace.{home}"), name))
