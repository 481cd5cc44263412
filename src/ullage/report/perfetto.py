"""A trace for Perfetto: each GPU's sums as counters, and steps, annotations, driver calls, errors, findings, large blocks."""

from __future__ import annotations

from typing import TYPE_CHECKING, BinaryIO

import numpy as np

from ullage.explain.attribution import leads_of
from ullage.explain.moment import event_of
from ullage.report.lanes import nesting_lanes, nesting_order, separate_lanes
from ullage.report.perfetto_file import Arg, ArgKind, EventType, PerfettoFile, TrackEvents
from ullage.report.printable import printable
from ullage.trace import NONE, Action, Frame, annotation_spans

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from ullage.explain import Finding
    from ullage.trace import DeviceTrace

MAX_BLOCKS = 2000
"""How many blocks of a device are drawn, the largest."""

NAME_LENGTH = 256
"""The characters that are kept of a name: a frame's, an annotation's, a finding's title."""

TEXT_LENGTH = 4096
"""The characters that are kept of a finding's texts."""

_MAX_FRAMES = 16
_MAX_TIME_US = (2**63 - 1) // 1000
_DRIVER_CALLS = (Action.SEGMENT_ALLOC, Action.SEGMENT_FREE, Action.SEGMENT_MAP, Action.SEGMENT_UNMAP)


def write_perfetto(out: BinaryIO, devices: Sequence[DeviceTrace], findings: Sequence[Finding]) -> int:
    """Write a Perfetto trace.

    Args:
        out: Where to.
        devices: The devices, a group of tracks each.
        findings: What was found, of these devices or others.

    Returns:
        The number of packets.

    Cost: linear in the events; the sums after each event are another pass over them.
    """
    file = PerfettoFile()
    for device in devices:
        _Group(file, device).add_all([one for one in findings if one.device == device.number])
    for piece in file.packets():
        out.write(piece)
    return file.num_packets


class _Group:
    """One device's tracks."""

    def __init__(self, file: PerfettoFile, device: DeviceTrace) -> None:
        self._file, self._device = file, device
        self._sites = device.trace.sites
        self._track = file.add_track(f"GPU {device.number}", pid=device.number + 1)  # 0 is the idle process
        # In a hostile file a clock can run backwards.
        times = np.maximum.accumulate(device.events.time_us) if device.num_events else np.zeros(1, np.int64)
        self._time_ns = _nanoseconds(times)

    def add_all(self, findings: Sequence[Finding]) -> None:
        self._add_findings(findings)
        self._add_ooms()
        self._add_counters()
        self._add_steps()
        self._add_annotations()
        self._add_driver_calls()
        self._add_blocks()

    # --- tracks ---

    def _add_counters(self) -> None:
        series = self._device.counters if self._device.num_events else None
        for word in ("allocated", "active", "reserved", "requested"):
            track = self._file.add_track(word, self._track, is_bytes=True)
            if series is None:
                continue
            values = getattr(series, f"{word}_bytes")
            changes = np.append(0, np.flatnonzero(np.diff(values)) + 1)
            self._file.add(
                TrackEvents(
                    time_ns=self._time_ns[changes],
                    type=_repeated(EventType.COUNTER, len(changes)),
                    track=_repeated(track, len(changes)),
                    value=values[changes],
                )
            )

    def _add_steps(self) -> None:
        bounds = self._device.steps.bounds(self._device.num_events)
        starts, ends = bounds[:-1], bounds[1:]
        track = self._file.add_track("steps", self._track) if len(starts) else 0
        names = [self._file.names[f"step {k}"] for k in range(1, len(starts) + 1)]
        self._add_slices(_repeated(track, len(starts)), starts, ends, np.asarray(names, np.int64))

    def _add_annotations(self) -> None:
        spans = annotation_spans(self._device)
        if not spans:
            return
        starts = _nanoseconds(np.asarray([span.begin_us for span in spans]))
        recorded = np.asarray([span.end_us is not None for span in spans])
        ends = _nanoseconds(np.asarray([span.begin_us if span.end_us is None else span.end_us for span in spans]))
        ends[~recorded] = max(int(ends.max()), int(self._time_ns[-1]))
        names = np.asarray([self._file.names[printable(span.name, NAME_LENGTH)] for span in spans])
        tracks = self._lane_tracks("annotations", self._track, nesting_lanes(starts, ends))
        args = [self._arg("has_no_end", ArgKind.FLAG, (~recorded).astype(np.int64), ~recorded)]
        self._add_slices(tracks, starts, ends, names, args, times=(starts, ends))

    def _add_driver_calls(self) -> None:
        actions = self._device.events.action
        rows = np.flatnonzero(np.isin(actions, _DRIVER_CALLS))
        numbers = np.zeros(len(Action), np.int64)
        for action in _DRIVER_CALLS:
            numbers[action] = self._file.names[action.name.lower()]
        self._add_event_instants("driver calls", rows, numbers[actions[rows]])

    def _add_ooms(self) -> None:
        rows = self._device.ooms()
        self._add_event_instants("out of memory", rows, _repeated(self._file.names["out of memory"], len(rows)))

    def _add_event_instants(self, track: str, rows: NDArray[np.int64], names: NDArray[np.int64]) -> None:
        """Add recorded events as instants."""
        events = self._device.events
        args = [
            self._arg("size_bytes", ArgKind.NUMBER, events.size_bytes[rows]),
            self._arg("stream", ArgKind.NUMBER, events.stream[rows]),
            self._arg("address", ArgKind.ADDRESS, events.address[rows].view(np.int64), events.address[rows] != 0),
            self._site_arg(events.site[rows]),
        ]
        self._add_instants(track, self._time_ns[rows], names, args)

    def _add_findings(self, findings: Sequence[Finding]) -> None:
        moments = [event_of(self._device, finding) for finding in findings]
        dated = [(finding, event) for finding, event in zip(findings, moments, strict=True) if event is not None]
        dated.sort(key=lambda pair: pair[1])
        texts: dict[str, Callable[[Finding], str]] = {
            "title": lambda one: one.title,
            "severity": lambda one: one.severity,
            "why": lambda one: one.why,
            "next_step": lambda one: one.next_step,
            "site": lambda one: _stack_text(one.site),
        }
        args = [
            self._text_arg(name, [printable(text(finding), TEXT_LENGTH) for finding, _ in dated])
            for name, text in texts.items()
        ]
        args.append(self._arg("bytes", ArgKind.NUMBER, np.asarray([one.bytes for one, _ in dated], np.int64)))
        names = np.asarray([self._file.names[printable(one.title, NAME_LENGTH)] for one, _ in dated], np.int64)
        times = self._time_ns[np.asarray([event for _, event in dated], np.int64)]
        self._add_instants("findings", times, names, args)

    def _add_blocks(self) -> None:
        """Add the largest blocks; of equal ones, those that lived longest."""
        blocks, num_events = self._device.blocks, self._device.num_events
        ends = np.where(blocks.death == NONE, num_events, blocks.death).astype(np.int64)
        largest = np.lexsort((blocks.birth - ends, -blocks.size_bytes))[:MAX_BLOCKS]
        if not len(largest) or not num_events:
            return
        starts, ends = blocks.birth[largest].astype(np.int64), ends[largest]
        leads = leads_of(self._device, largest).tolist()
        names = [self._file.names[_frame_text(self._sites.frame(lead))] for lead in leads]
        is_before, is_last = starts == NONE, ends == num_events
        args = [
            self._arg("size_bytes", ArgKind.NUMBER, blocks.size_bytes[largest]),
            self._arg("requested_bytes", ArgKind.NUMBER, blocks.requested_bytes[largest]),
            self._arg("address", ArgKind.ADDRESS, blocks.address[largest].view(np.int64)),
            self._arg("block", ArgKind.NUMBER, largest),
            self._arg("before_the_recording", ArgKind.FLAG, is_before.astype(np.int64), is_before),
            self._arg("live_at_the_end", ArgKind.FLAG, is_last.astype(np.int64), is_last),
            self._site_arg(blocks.site[largest]),
        ]
        group = self._file.add_track("largest blocks", self._track)
        tracks = self._lane_tracks("blocks", group, separate_lanes(starts, ends))
        self._add_slices(tracks, starts, ends, np.asarray(names), args)

    # --- what tracks are made of ---

    def _lane_tracks(self, name: str, parent: int, lanes: NDArray[np.int64]) -> NDArray[np.int64]:
        """Add a track for each lane, and return that of each span."""
        distinct, lane_rows = np.unique(lanes, return_inverse=True)
        tracks = [self._file.add_track(name, parent) for _ in distinct]
        return np.asarray(tracks, np.int64)[lane_rows]

    def _add_slices(
        self,
        tracks: NDArray[np.int64],
        starts: NDArray[np.int64],
        ends: NDArray[np.int64],
        names: NDArray[np.int64],
        args: Sequence[Arg] = (),
        *,
        times: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None,
    ) -> None:
        """Add slices that begin and end with events (`NONE`, and one past the last, at the edges), or at given times."""
        rows, begins = nesting_order(tracks, starts, ends)
        last = len(self._time_ns) - 1
        start_ns, end_ns = times or (self._time_ns[np.maximum(starts, 0)], self._time_ns[np.minimum(ends, last)])
        self._file.add(
            TrackEvents(
                time_ns=np.where(begins, start_ns[rows], end_ns[rows]),
                type=np.where(begins, EventType.SLICE_BEGIN, EventType.SLICE_END),
                track=tracks[rows],
                name=np.where(begins, names[rows], 0),
                args=tuple(_of_rows(arg, rows, begins) for arg in args),
            )
        )

    def _add_instants(
        self, name: str, time_ns: NDArray[np.int64], names: NDArray[np.int64], args: Sequence[Arg]
    ) -> None:
        if not len(time_ns):
            return
        self._file.add(
            TrackEvents(
                time_ns=time_ns,
                type=_repeated(EventType.INSTANT, len(time_ns)),
                track=_repeated(self._file.add_track(name, self._track), len(time_ns)),
                name=names,
                args=tuple(args),
            )
        )

    def _arg(
        self, name: str, kind: ArgKind, values: NDArray[np.int64], is_there: NDArray[np.bool_] | None = None
    ) -> Arg:
        return Arg(name=self._file.arg_names[name], kind=kind, values=values, is_there=is_there)

    def _text_arg(self, name: str, texts: Sequence[str]) -> Arg:
        numbers = np.asarray([self._file.texts[text] if text else 0 for text in texts], np.int64)
        return self._arg(name, ArgKind.TEXT, numbers, numbers > 0)

    def _site_arg(self, sites: NDArray[np.int32]) -> Arg:
        distinct, rows = np.unique(sites, return_inverse=True)
        texts = [_stack_text(self._sites.user_stack(site)) for site in distinct.tolist()]
        numbers = np.asarray([self._file.texts[text] if text else 0 for text in texts], np.int64)[rows]
        return self._arg("site", ArgKind.TEXT, numbers, numbers > 0)


def _repeated(value: int, length: int) -> NDArray[np.int64]:
    return np.full(length, value, np.int64)


def _of_rows(arg: Arg, rows: NDArray[np.int64], begins: NDArray[np.bool_]) -> Arg:
    """Return an argument of spans as one of their begins."""
    is_there = begins if arg.is_there is None else begins & arg.is_there[rows]
    return Arg(name=arg.name, kind=arg.kind, values=arg.values[rows], is_there=is_there)


def _nanoseconds(time_us: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.clip(time_us, 0, _MAX_TIME_US) * 1000


def _frame_text(frame: Frame) -> str:
    return printable(str(frame), NAME_LENGTH)


def _stack_text(frames: Sequence[Frame]) -> str:
    """Write a stack on one line, innermost first."""
    shown = [_frame_text(frame) for frame in frames[:_MAX_FRAMES]]
    return " < ".join(shown if len(frames) <= _MAX_FRAMES else [*shown, "…"])
