"""What the program itself wrote into a recording: annotations, and what its profiler says that tensors are."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from ullage.trace.tables import NONE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ullage.trace.device import DeviceTrace

_START, _END = 0, 1


class Span(NamedTuple):
    """A stretch of time that has a name.

    Attributes:
        name: The annotation's.
        begin_us: When it began, since the epoch.
        end_us: When it ended; None where the recording holds no end of it.
    """

    name: str
    begin_us: int
    end_us: int | None


def annotation_starts(device: DeviceTrace, *, any_device: bool = False) -> dict[str, list[int]]:
    """Return the start times of a device's annotations by name; a number at the end of a name is dropped.

    Args:
        device: The device.
        any_device: Take those of the other devices too.
    """
    starts: dict[str, list[int]] = {}
    for name_id, stage, time_us in _rows(device, any_device):
        if stage == _START:
            name = re.sub(r"[\s#:_-]*\d+$", "", device.trace.tables.text(name_id))
            starts.setdefault(name, []).append(time_us)
    return starts


def annotation_spans(device: DeviceTrace) -> list[Span]:
    """Return a device's annotations as spans, in the order in which they began. An end belongs to the last open start.

    Args:
        device: The device.
    """
    found: list[Span] = []
    open_rows: dict[int, list[int]] = {}
    for name_id, stage, time_us in _rows(device, any_device=False):
        if stage == _START:
            open_rows.setdefault(name_id, []).append(len(found))
            found.append(Span(device.trace.tables.text(name_id), time_us, None))
        elif stage == _END and open_rows.get(name_id):
            row = open_rows[name_id].pop()
            found[row] = found[row]._replace(end_us=max(time_us, found[row].begin_us))
    return found


def _rows(device: DeviceTrace, any_device: bool) -> Iterator[tuple[int, int, int]]:
    """Yield the name, stage and time of each annotation that is a device's, or nobody's."""
    t = device.trace.tables
    columns = (t.annotation_name, t.annotation_stage, t.annotation_device, t.annotation_time)
    for name_id, stage, number, time_us in zip(*(column.tolist() for column in columns), strict=True):
        if name_id != NONE and (any_device or number in (NONE, device.number)):
            yield name_id, stage, time_us


def event_categories(device: DeviceTrace) -> dict[int, str]:
    """Return what torch's profiler calls the tensor that an event is about ("PARAMETER", "ACTIVATION", ...), by event.

    Args:
        device: The device.
    """
    begin, end = device.event_range
    tables = device.trace.tables
    return {event - begin: tables.text(text) for event, text in tables.categories if begin <= event < end}
