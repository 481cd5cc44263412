"""How much of the history a recording holds: all of it, from some point on, or only its last events."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ullage import _core

HistoryKind = Literal["complete", "late", "wrapped", "none"]


@dataclass(frozen=True, kw_only=True)
class Completeness:
    """What kind of history it is, and what shows it."""

    kind: HistoryKind
    why: str


def completeness_of(tables: _core.Tables, history: _core.History, device_row: int) -> Completeness:
    """Tell a late start from a wrapped ring buffer.

    torch says it outright from 2.13 on (`trace_alloc_overflowed`); before that it shows in the events themselves.

    Args:
        tables: The file's tables.
        history: The device's reconstruction.
        device_row: The device's place in `tables.devices`.
    """
    device, begin, end = tables.devices[device_row]
    if not history.has_events:
        return Completeness(kind="none", why="the file holds no events, only the layout at the end")
    if end - begin == 1 and not history.is_complete:
        return Completeness(kind="none", why="history 'state' keeps a single event")
    if history.is_complete:
        return Completeness(kind="complete", why="nothing was there before the first event")
    overflowed = _overflow_flag(tables.settings, device)
    if overflowed:
        return Completeness(kind="wrapped", why="torch marked its ring buffer as overflowed")
    if overflowed is None:
        sign = _sign_of_wrapping(tables, history, begin, end)
        if sign:
            return Completeness(kind="wrapped", why=sign)
    return Completeness(kind="late", why="segments were there before the first event")


def _overflow_flag(settings: Mapping[str, object], device: int) -> bool | None:
    for key in (f"trace_alloc_overflowed.{device}", "trace_alloc_overflowed"):
        value = settings.get(key)
        if value is not None:
            return bool(value)
    return None


def _sign_of_wrapping(tables: _core.Tables, history: _core.History, begin: int, end: int) -> str:
    if history.starts_inside_free:
        return "its first event completes a free whose request is gone"
    first_event_time, _ = tables.event_span(begin, end)
    # One that began before and ended after can have been entered just before a late start.
    first_end = tables.first_annotation_end
    if first_end is not None and first_end < first_event_time:
        return "annotations ended before the first event"
    num_events = end - begin
    if num_events >= 500 and (num_events % 500 == 0 or num_events & (num_events - 1) == 0):
        return f"exactly {num_events:,} events: a full ring buffer"
    return ""
