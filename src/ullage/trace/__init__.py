"""The trace: its model, its tables and its readers."""

from ullage.trace.completeness import Completeness, HistoryKind
from ullage.trace.model import DeviceTrace, Trace, load
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
    "Trace",
    "load",
]
