"""Perfetto's trace format: tracks, and the events on them, many at once.

A file is a sequence of packets: first what is interned (each text once, numbered), then the tracks, then the events. The
events of one track are in the order in which they happened; tracks follow each other.

Source: trace_packet.proto, track_event.proto, track_descriptor.proto, debug_annotation.proto and interned_data.proto in
google/perfetto (v59): the numbers of the fields.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

import numpy as np

from ullage.report.protobuf import Cells, constant_cells, field, message_cells, number_cells, packed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

_SEQUENCE = field(10, 1)  # TracePacket.trusted_packet_sequence_id: all that we write is one sequence
_STATE_BEGINS, _STATE_NEEDED = field(13, 1), field(13, 2)  # TracePacket.sequence_flags
_ROWS_AT_ONCE = 1 << 14  # their cells fit a cache


class EventType(IntEnum):
    """What an event on a track is; the numbers of TrackEvent.type."""

    SLICE_BEGIN = 1
    SLICE_END = 2
    INSTANT = 3
    COUNTER = 4


class ArgKind(IntEnum):
    """What an argument's values are; the numbers of DebugAnnotation's fields."""

    FLAG = 2
    NUMBER = 4
    ADDRESS = 7
    TEXT = 17


@dataclass(frozen=True, kw_only=True)
class Arg:
    """An argument of events.

    Attributes:
        name: What `PerfettoFile.arg_names` numbers it.
        kind: What its values are.
        values: One for each event; text as `PerfettoFile.texts` numbers it.
        is_there: Which events have it; None: all.
    """

    name: int
    kind: ArgKind
    values: NDArray[np.int64]
    is_there: NDArray[np.bool_] | None = None


@dataclass(frozen=True, kw_only=True)
class TrackEvents:
    """Events, in the order of each track.

    Attributes:
        time_ns: When.
        type: What each is, as in `EventType`.
        track: The track of each.
        name: What `PerfettoFile.names` numbers its name; 0 is no name, as ends have none. None: no event has one.
        value: Of counters, the value.
        args: Its arguments.
    """

    time_ns: NDArray[np.int64]
    type: NDArray[np.int64]
    track: NDArray[np.int64]
    name: NDArray[np.int64] | None = None
    value: NDArray[np.int64] | None = None
    args: tuple[Arg, ...] = ()


class Interned(dict[str, int]):
    """Numbers texts from 1 on, in the order in which they are first met."""

    def __missing__(self, text: str) -> int:
        number = self[text] = len(self) + 1
        return number


class PerfettoFile:
    """Gathers tracks and events, and encodes them.

    Attributes:
        names: Event names.
        arg_names: Names of arguments.
        texts: Texts that are arguments.
        num_packets: How many packets `packets` has yielded.
    """

    def __init__(self) -> None:
        self.names, self.arg_names, self.texts = Interned(), Interned(), Interned()
        self.num_packets = 0
        self._tracks: list[bytes] = []
        self._events: list[TrackEvents] = []

    def add_track(self, name: str, parent: int = 0, *, pid: int | None = None, is_bytes: bool = False) -> int:
        """Add a track and return its number.

        Args:
            name: Its name; tracks of one name and parent are shown as one.
            parent: The track above it; 0: none.
            pid: Make it the track of a process with this number, which is shown as a group.
            is_bytes: Its events are counters in bytes, on one scale with its siblings.
        """
        uuid = len(self._tracks) + 1
        fields = [field(1, uuid), field(11, 3), field(12, uuid)]  # children in the order in which they were added
        if pid is not None:
            fields.append(field(3, field(1, pid) + field(6, name)))
        else:
            fields.append(field(2, name))
        if parent:
            fields.append(field(5, parent))
        if is_bytes:
            fields.append(field(8, field(3, 3) + field(7, "bytes")))
        self._tracks.append(b"".join(fields))
        return uuid

    def add(self, events: TrackEvents) -> None:
        """Add events."""
        if len(events.time_ns):
            self._events.append(events)

    def packets(self) -> Iterator[bytes]:
        """Yield the file's content piece by piece."""
        yield self._packet(_STATE_BEGINS + field(12, self._interned()))
        for track in self._tracks:
            yield self._packet(field(60, track))
        for events in self._events:
            self.num_packets += len(events.time_ns)
            for start in range(0, len(events.time_ns), _ROWS_AT_ONCE):
                yield _encoded(events, slice(start, start + _ROWS_AT_ONCE))

    def _packet(self, content: bytes) -> bytes:
        self.num_packets += 1
        return field(1, _SEQUENCE + content)

    def _interned(self) -> bytes:
        """Encode InternedData: event_names, debug_annotation_names, debug_annotation_string_values."""
        kinds = ((2, self.names), (3, self.arg_names), (29, self.texts))
        return b"".join(
            field(number, field(1, iid) + field(2, text)) for number, texts in kinds for text, iid in texts.items()
        )


def _encoded(events: TrackEvents, rows: slice) -> bytes:
    """Encode some events as packets."""
    times = events.time_ns[rows]
    content = number_cells(9, events.type[rows]) + number_cells(11, events.track[rows])
    head = _SEQUENCE
    if events.name is not None:
        names = events.name[rows]
        content += [part.only_where(names > 0) for part in number_cells(10, names)]
        head += _STATE_NEEDED
    if events.value is not None:
        content += number_cells(30, events.value[rows])
    for arg in events.args:
        content += _encoded_arg(arg, rows)
    parts = [*number_cells(8, times), constant_cells(head, len(times)), *message_cells(11, content)]
    return packed(message_cells(1, parts))


def _encoded_arg(arg: Arg, rows: slice) -> list[Cells]:
    values = arg.values[rows]
    name = constant_cells(field(1, arg.name), len(values))
    parts = message_cells(4, [name, *number_cells(arg.kind, values)])
    return parts if arg.is_there is None else [part.only_where(arg.is_there[rows]) for part in parts]
