"""A trace as plain tables, one meaning a column: what Parquet files and JSON hold."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ullage.explain.moment import event_of
from ullage.trace import BEFORE_FIRST, NONE, Action, BlockState, PoolSize

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from ullage.explain import Finding
    from ullage.trace import DeviceTrace, Trace

_FRAME_KINDS = ("user", "library", "torch", "native", "plumbing")  # by Sites.frame_ranks
_STAGES = ("start", "end", "other")


@dataclass(frozen=True, kw_only=True)
class Column:
    """One column of a table.

    Attributes:
        values: An array, or text with None where there is none.
        is_null: Marks rows without a value; None where each has one.
        words: What the values are indices of, in a column of a few words; None in others.
    """

    values: NDArray[Any] | list[str | None]
    is_null: NDArray[np.bool_] | None = None
    words: tuple[str, ...] | None = None


Table = dict[str, Column]
Devices = tuple["DeviceTrace", ...]


def export_tables(trace: Trace, findings: Sequence[Finding], *, device: int | None = None) -> dict[str, Table]:
    """Return the tables of a trace by name. Columns are in bytes and microseconds; docs/export.md explains each.

    Args:
        trace: The trace.
        findings: What `explain` found in it.
        device: One device's number; None: all of them, one below the other.

    Raises:
        UllageError: There is no such device.

    Cost: linear in the events; the sums after each event are another pass over them.
    """
    devices = trace.devices if device is None else (trace.device(device),)
    return {
        "events": _events(trace, devices),
        "counters": _counters(devices),
        "blocks": _blocks(devices),
        "segments": _segments(trace, devices),
        "sites": _sites(trace),
        "site_frames": _site_frames(trace),
        "frames": _frames(trace),
        "annotations": _annotations(trace, device),
        "steps": _steps(devices),
        "settings": _settings(trace),
        "findings": _findings(trace, findings),
    }


def num_rows(table: Table) -> int:
    """Return a table's number of rows."""
    return len(next(iter(table.values())).values)


# --- columns of several devices ---


def _joined(devices: Devices, get: Callable[[DeviceTrace], NDArray[Any]]) -> NDArray[Any]:
    arrays = [get(one) for one in devices]
    return np.concatenate(arrays) if arrays else np.empty(0, np.int64)


def _stacked(devices: Devices, get: Callable[[DeviceTrace], NDArray[Any]]) -> Column:
    return Column(values=_joined(devices, get))


def _indices(devices: Devices, get: Callable[[DeviceTrace], NDArray[np.int32]]) -> Column:
    """Return a column that is null where there is no index."""
    values = _joined(devices, get)
    return Column(values=values, is_null=values < 0)


def _words(column: Column, words: tuple[str, ...]) -> Column:
    return Column(values=column.values, is_null=column.is_null, words=words)


def _names(members: type[Action] | type[BlockState] | type[PoolSize]) -> tuple[str, ...]:
    return tuple(one.name.lower() for one in members)


def _flags(devices: Devices, get: Callable[[DeviceTrace], NDArray[Any]]) -> Column:
    return Column(values=_joined(devices, get).astype(np.bool_))


def _numbers(devices: Devices, length: Callable[[DeviceTrace], int]) -> Column:
    """Return each row's device."""
    return _stacked(devices, lambda one: np.full(length(one), one.number, np.int32))


def _counted(devices: Devices, length: Callable[[DeviceTrace], int]) -> Column:
    """Number the rows of each device from 0."""
    return _stacked(devices, lambda one: np.arange(length(one), dtype=np.int32))


def _times(devices: Devices, get: Callable[[DeviceTrace], NDArray[np.int32]]) -> Column:
    """Return when the events were that a column of indices names."""

    def times(one: DeviceTrace) -> NDArray[np.int64]:
        events = get(one)
        known = events >= 0
        out = np.zeros(len(events), np.int64)
        out[known] = one.events.time_us[events[known]]
        return out

    return Column(values=_joined(devices, times), is_null=_joined(devices, get) < 0)


def _pools(trace: Trace, devices: Devices, get: Callable[[DeviceTrace], NDArray[np.int32]]) -> Column:
    """Return private pools as torch numbers them; null is the default pool, which is (0, 0) where events name it."""
    values, pools = _joined(devices, get), trace.tables.pools
    is_default = np.isin(values, [i for i, pool in enumerate(pools) if tuple(pool) == (0, 0)])
    words = tuple("({}, {})".format(*pool) for pool in pools)
    return Column(values=values, is_null=is_default | (values < 0), words=words)


# --- the tables ---


def _events(trace: Trace, devices: Devices) -> Table:
    address = _joined(devices, lambda one: one.events.address)
    return {
        "device": _numbers(devices, lambda one: one.num_events),
        "event": _counted(devices, lambda one: one.num_events),
        "time_us": _stacked(devices, lambda one: one.events.time_us),
        "action": _words(_stacked(devices, lambda one: one.events.action), _names(Action)),
        "address": Column(values=address, is_null=address == 0),
        "size_bytes": _stacked(devices, lambda one: one.events.size_bytes),
        "stream": _stacked(devices, lambda one: one.events.stream),
        "pool": _pools(trace, devices, lambda one: one.events.pool),
        "site": _indices(devices, lambda one: one.events.site),
    }


def _counters(devices: Devices) -> Table:
    return {
        "device": _numbers(devices, lambda one: one.num_events),
        "event": _counted(devices, lambda one: one.num_events),
        "requested_bytes": _stacked(devices, lambda one: one.counters.requested_bytes),
        "allocated_bytes": _stacked(devices, lambda one: one.counters.allocated_bytes),
        "active_bytes": _stacked(devices, lambda one: one.counters.active_bytes),
        "reserved_bytes": _stacked(devices, lambda one: one.counters.reserved_bytes),
    }


def _blocks(devices: Devices) -> Table:
    return {
        "device": _numbers(devices, lambda one: len(one.blocks.birth)),
        "block": _counted(devices, lambda one: len(one.blocks.birth)),
        "birth_event": _indices(devices, lambda one: one.blocks.birth),
        "free_requested_event": _indices(devices, lambda one: one.blocks.free_requested),
        "death_event": _indices(devices, lambda one: one.blocks.death),
        "birth_us": _times(devices, lambda one: one.blocks.birth),
        "free_requested_us": _times(devices, lambda one: one.blocks.free_requested),
        "death_us": _times(devices, lambda one: one.blocks.death),
        "is_freed_before_first": _flags(devices, lambda one: one.blocks.free_requested == BEFORE_FIRST),
        "address": _stacked(devices, lambda one: one.blocks.address),
        "size_bytes": _stacked(devices, lambda one: one.blocks.size_bytes),
        "requested_bytes": _stacked(devices, lambda one: one.blocks.requested_bytes),
        "state": _words(_stacked(devices, _end_states), _names(BlockState)),
        "site": _indices(devices, lambda one: one.blocks.site),
        "segment": _indices(devices, lambda one: one.blocks.segment),
        "is_open": _flags(devices, lambda one: one.blocks.is_open),
    }


def _end_states(device: DeviceTrace) -> NDArray[np.int64]:
    """Return the state of each block after the last event."""
    blocks = device.blocks
    freed = np.where(blocks.death == NONE, BlockState.ACTIVE_PENDING_FREE, BlockState.INACTIVE)
    live = (blocks.free_requested == NONE) & (blocks.death == NONE)
    return np.where(live, BlockState.ACTIVE_ALLOCATED, freed)


def _segments(trace: Trace, devices: Devices) -> Table:
    return {
        "device": _numbers(devices, lambda one: len(one.segments.birth)),
        "segment": _counted(devices, lambda one: len(one.segments.birth)),
        "birth_event": _indices(devices, lambda one: one.segments.birth),
        "death_event": _indices(devices, lambda one: one.segments.death),
        "birth_us": _times(devices, lambda one: one.segments.birth),
        "death_us": _times(devices, lambda one: one.segments.death),
        "address": _stacked(devices, lambda one: one.segments.address),
        "size_bytes": _stacked(devices, lambda one: one.segments.size_bytes),
        "stream": _stacked(devices, lambda one: one.segments.stream),
        "pool": _pools(trace, devices, lambda one: one.segments.pool),
        "pool_size": _words(_stacked(devices, lambda one: one.segments.pool_size), _names(PoolSize)),
        "is_expandable": _flags(devices, lambda one: one.segments.is_expandable),
        "site": _indices(devices, lambda one: one.segments.site),
    }


def _sites(trace: Trace) -> Table:
    starts, leads = trace.tables.site_starts, trace.sites.leads
    num_sites = max(len(starts) - 1, 0)
    names = {lead: str(trace.sites.frame(lead)) for lead in np.unique(leads).tolist()}
    return {
        "site": Column(values=np.arange(num_sites, dtype=np.int32)),
        "lead_frame": Column(values=leads, is_null=leads == NONE),
        "lead": Column(values=[None if lead == NONE else names[lead] for lead in leads.tolist()]),
        "num_frames": Column(values=np.diff(starts)),
    }


def _site_frames(trace: Trace) -> Table:
    starts, frames = trace.tables.site_starts, trace.tables.site_frames
    sites = np.repeat(np.arange(max(len(starts) - 1, 0), dtype=np.int32), np.diff(starts))
    return {
        "site": Column(values=sites),
        "depth": Column(values=(np.arange(len(frames)) - starts[sites]).astype(np.int32)),
        "frame": Column(values=frames),
    }


def _frames(trace: Trace) -> Table:
    frames = [trace.sites.frame(i) for i in range(trace.tables.num_frames)]
    return {
        "frame": Column(values=np.arange(len(frames), dtype=np.int32)),
        "file": Column(values=[frame.file for frame in frames]),
        "line": Column(values=np.asarray([frame.line for frame in frames], dtype=np.int64)),
        "function": Column(values=[frame.function for frame in frames]),
        "kind": Column(values=np.asarray(trace.sites.frame_ranks, dtype=np.int8), words=_FRAME_KINDS),
    }


def _annotations(trace: Trace, device: int | None) -> Table:
    t = trace.tables
    kept = np.flatnonzero((t.annotation_device == device) | (t.annotation_device == NONE) | (device is None))
    names = t.annotation_name[kept].tolist()
    text = {name: None if name == NONE else t.text(name) for name in set(names)}
    devices = t.annotation_device[kept]
    return {
        "device": Column(values=devices, is_null=devices == NONE),
        "time_us": Column(values=t.annotation_time[kept]),
        "stage": Column(values=t.annotation_stage[kept], words=_STAGES),
        "name": Column(values=[text[name] for name in names]),
    }


def _steps(devices: Devices) -> Table:
    sources = [one.steps.source for one in devices for _ in range(len(one.steps))]
    return {
        "device": _numbers(devices, lambda one: len(one.steps)),
        "step": _stacked(devices, lambda one: np.arange(1, len(one.steps) + 1, dtype=np.int64)),
        "first_event": _stacked(devices, lambda one: one.steps.bounds(one.num_events)[:-1]),
        "end_event": _stacked(devices, lambda one: one.steps.bounds(one.num_events)[1:]),
        "source": Column(values=list(sources)),
    }


def _settings(trace: Trace) -> Table:
    return {
        "key": Column(values=list(trace.settings)),
        "value": Column(values=[json.dumps(value) for value in trace.settings.values()]),
    }


def _findings(trace: Trace, findings: Sequence[Finding]) -> Table:
    plain = [finding.to_json() for finding in findings]
    moments = [event_of(trace.device(finding.device), finding) for finding in findings]
    events = np.asarray([NONE if event is None else event for event in moments], dtype=np.int64)
    table = {
        "device": Column(values=np.asarray([finding.device for finding in findings], dtype=np.int32)),
        "bytes": Column(values=np.asarray([finding.bytes for finding in findings], dtype=np.int64)),
        "event": Column(values=events, is_null=events < 0),
    }
    texts = ("kind", "severity", "title", "why", "next_step")
    table |= {name: Column(values=[one[name] for one in plain]) for name in texts}
    return table | {name: Column(values=[json.dumps(one[name]) for one in plain]) for name in ("site", "evidence")}
