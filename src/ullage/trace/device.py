"""One device of a trace: what was recorded of it, and what follows from that."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from ullage import _core
from ullage.display import renderer
from ullage.errors import UllageError
from ullage.trace.completeness import Completeness, completeness_of
from ullage.trace.tables import NONE, Action, Blocks, BlockState, Counters, CounterSeries, Events, Layout, Segments
from ullage.units import format_duration, plural

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from ullage.trace.model import Trace
    from ullage.trace.steps import Steps


class DeviceTrace:
    """One device of a trace. Everything derived is worked out once, when it is first asked for."""

    def __init__(self, trace: Trace, row: int) -> None:
        self.trace = trace
        self._row = row
        self.number, self._begin, self._end = trace.tables.devices[row]
        self._layouts: dict[int, Layout] = {}

    @property
    def num_events(self) -> int:
        """The number of recorded events."""
        return self._end - self._begin

    @property
    def event_range(self) -> tuple[int, int]:
        """The first of its events among those of all devices, and the one after its last."""
        return self._begin, self._end

    @property
    def num_segments(self) -> int:
        """The number of segments in the file's final layout."""
        return self.trace.tables.num_device_segments(self.number)

    @cached_property
    def history(self) -> _core.History:
        """The reconstruction, without the sums after each event. Cost: linear in the events."""
        return _core.rebuild(self.trace.tables, self.number, counters=False)

    @cached_property
    def completeness(self) -> Completeness:
        """How much of the history the file holds."""
        return completeness_of(self.trace.tables, self.history, self._row)

    @property
    def peak(self) -> Counters:
        """The largest value of each of the four sums over the recorded time; not all at one instant."""
        return Counters(*self.history.peak)

    @property
    def end(self) -> Counters:
        """The four sums at the end: over the file's own final segments, or where it has none, after the last event."""
        return Counters(*(self.history.recorded_end or self.history.end))

    @property
    def span_us(self) -> tuple[int, int]:
        """The times of the first and the last event; (0, 0) without events."""
        return self.trace.tables.event_span(self._begin, self._end) if self.num_events else (0, 0)

    @property
    def title(self) -> str:
        """The device and what was recorded of it, in a few words."""
        first, last = self.span_us
        return f"GPU {self.number}, {plural(self.num_events, 'event')} over {format_duration(last - first)}"

    def plot(
        self,
        *,
        at: str | int | None = None,
        figsize: tuple[float, float] | None = None,
        num_lines: int | None = None,
    ) -> Figure:
        """Draw the timeline: live bytes stacked by line, allocated, active and reserved, steps, the peak and errors.

        The figure belongs to no pyplot state: save it with `savefig`, or let a notebook show it. Bytes are exact at each
        sample, and the extremes of each pixel column are among the samples.

        Args:
            at: The instant at which lines are compared, as in `event_at`; None: the peak.
            figsize: Width and height in inches; None: a slide's. Below 7.5 inches of width it suits a column of a paper.
            num_lines: The largest number of lines that get a colour, 0 to 6; None: 6, or 4 in a narrow figure.

        Raises:
            UllageError: matplotlib is missing, the device has no events, there is no such instant, or the size or the
                number of lines cannot be drawn.

        Cost: linear in the events, two passes.
        """
        figure: Figure = renderer("plot").figure(self, at=at, figsize=figsize, num_lines=num_lines)
        return figure

    def __repr__(self) -> str:
        return f"<DeviceTrace {self.title}>"

    def _repr_html_(self) -> str:
        html: str = renderer("notebook").device_html(self)
        return html

    def verify(self) -> dict[str, int]:
        """Run the allocator's own search for each request, and compare all that was rebuilt with the recorded.

        Returns:
            Counts: `allocs`, `address_matches`, `segments`, `segment_matches`, `final_blocks`, `final_block_matches`,
            `undetermined_blocks`, and `first_mismatch_event` (-1: none).

        Cost: an ordered search for each request, O(events x log(free blocks)).
        """
        counts: dict[str, int] = _core.rebuild(self.trace.tables, self.number, verify=True, counters=False).verification
        return counts

    @cached_property
    def events(self) -> Events:
        """The recorded events."""
        t, rows = self.trace.tables, slice(self._begin, self._end)
        return Events(
            action=t.event_action[rows],
            address=t.event_address[rows],
            size_bytes=t.event_size[rows],
            stream=t.event_stream[rows],
            time_us=t.event_time[rows],
            site=t.event_site[rows],
            pool=self._folded(t.event_pool[rows]),
        )

    def _folded(self, pool: NDArray[np.int32]) -> NDArray[np.int32]:
        """Name the default pool as segments do; from torch 2.12 on events name it (0, 0)."""
        import numpy as np

        if (0, 0) not in self.trace.tables.pools:
            return pool
        return np.where(pool == self.trace.tables.pools.index((0, 0)), np.int32(NONE), pool)

    @cached_property
    def since_start_us(self) -> NDArray[np.int64]:
        """Each event's time since the first; one that is earlier than its predecessor counts as equal to it."""
        import numpy as np

        if not self.num_events:
            return np.empty(0, np.int64)
        # Unsigned: in a hostile file the difference of two times can have 64 bits.
        times = np.maximum.accumulate(self.events.time_us).view(np.uint64)
        since: NDArray[np.int64] = np.minimum(times - times[0], np.uint64(2**63 - 1)).view(np.int64)
        return since

    @cached_property
    def blocks(self) -> Blocks:
        """Every block that was ever handed out."""
        h = self.history
        return Blocks(
            birth=h.block_birth,
            free_requested=h.block_free_requested,
            death=h.block_death,
            address=h.block_address,
            size_bytes=h.block_size,
            requested_bytes=h.block_requested_size,
            site=h.block_site,
            segment=h.block_segment,
            is_open=h.block_is_open,
        )

    @cached_property
    def drawing(self) -> _core.Drawing:
        """Where each block is drawn in a stack of rectangles over time: `offset` by row of `blocks`, and `height`, in bytes.

        Cost: a search in an ordered list for each block.
        """
        return _core.draw_blocks(self.history, self.num_events)

    @cached_property
    def segments(self) -> Segments:
        """Every segment that ever was."""
        h = self.history
        return Segments(
            birth=h.segment_birth,
            death=h.segment_death,
            address=h.segment_address,
            size_bytes=h.segment_size,
            stream=h.segment_stream,
            pool=h.segment_pool,
            pool_size=h.segment_pool_size,
            is_expandable=h.segment_is_expandable,
            site=h.segment_site,
        )

    @cached_property
    def counters(self) -> CounterSeries:
        """The four sums after each event. Cost: another pass over the events."""
        h = _core.rebuild(self.trace.tables, self.number)
        return CounterSeries(
            requested_bytes=h.requested,
            allocated_bytes=h.allocated,
            active_bytes=h.active,
            reserved_bytes=h.reserved,
        )

    @cached_property
    def reserved_changes(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The events that change reserved, after `NONE` for the state before the first, and what is reserved after each."""
        import numpy as np

        before = self.history.before[3]
        changes, steps = self._segment_steps()
        reserved = before + np.cumsum(steps)
        if self.history.num_conflicts or max(before, int(reserved.max(initial=0))) != self.history.peak[3]:
            every = self.counters.reserved_bytes  # a damaged history: what was rebuilt of it counts
            changes = np.flatnonzero(np.diff(every, prepend=before))
            reserved = every[changes]
        return np.append(np.int64(NONE), changes), np.append(np.int64(before), reserved)

    def _segment_steps(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the events that make or give back memory of the driver's, and by how much reserved then changes."""
        import numpy as np

        actions = self.events.action
        gives = (actions == Action.SEGMENT_FREE) | (actions == Action.SEGMENT_UNMAP)
        takes = (actions == Action.SEGMENT_ALLOC) | (actions == Action.SEGMENT_MAP)
        changes = np.flatnonzero(gives | takes)
        sizes = self.events.size_bytes[changes]
        return changes, np.where(gives[changes], -sizes, sizes)

    @cached_property
    def steps(self) -> Steps:
        """The iterations of the user's loop."""
        from ullage.trace.steps import find_steps

        return find_steps(self)

    def pool_name(self, pool: int) -> str:
        """Name a pool as PyTorch numbers it; `NONE` is the default pool."""
        return "default" if pool == NONE else "({}, {})".format(*self.trace.tables.pools[pool])

    def device_free(self, event: int) -> int | None:
        """Return what the driver had free at an out-of-memory event; None where it is not recorded."""
        return dict(self.trace.tables.device_free).get(self._begin + event)

    def ooms(self) -> NDArray[np.int64]:
        """Return the events at which the allocator gave up."""
        import numpy as np

        return np.flatnonzero(self.events.action == Action.OOM)

    def event_at(self, at: str | int) -> int:
        """Return the event that an instant stands for; the state meant is the one after it.

        Args:
            at: "peak" (of allocated bytes), "reserved_peak" (while reserved is at its peak, when most is active), "end",
                "oom" (the first), or a time in microseconds: since the epoch, or since the first event when it is
                smaller than that.

        Returns:
            An event index; `NONE` is the state before the first event.

        Raises:
            UllageError: There is no such instant.
        """
        if at == "peak":
            return self.history.peak_event[1]
        if at == "reserved_peak":
            return self.history.fullest_event
        if at == "end":
            return self.num_events - 1
        if at == "oom":
            ooms = self.ooms()
            if not len(ooms):
                raise UllageError(f"device {self.number} met no out-of-memory error in this recording")
            return int(ooms[0])
        if isinstance(at, str):
            raise UllageError(f"no instant is called {at!r} (peak, reserved_peak, end, oom, or a time)")
        first, last = self.span_us
        moment = at if at >= first else first + at
        if not self.num_events or moment < first or moment > last:
            raise UllageError(
                f"the recording of device {self.number} spans {format_duration(last - first)}; "
                f"{format_duration(moment - first)} is outside"
            )
        import numpy as np

        return int(np.searchsorted(self.events.time_us, moment, side="right")) - 1

    def last_growth(self) -> int:
        """Return the event at which reserved first reached its peak: the request that a new segment was made for.

        Returns:
            An event index; `NONE` where the peak was there before the first event.
        """
        event = self.history.peak_event[3]
        actions = self.events.action
        grows = (Action.SEGMENT_ALLOC, Action.SEGMENT_MAP)
        while event != NONE and event + 1 < self.num_events and actions[event] in grows:
            event += 1
        return event

    def counters_at(self, at: str | int) -> Counters:
        """Return the four sums at an instant.

        Args:
            at: As in `event_at`.

        Raises:
            UllageError: There is no such instant.

        Cost: as `layout_at`.
        """
        event = self.event_at(at)
        if event == NONE:
            return Counters(*self.history.before)
        layout = self.layouts_after([event])[event]
        allocated = layout.state == BlockState.ACTIVE_ALLOCATED
        active = layout.state != BlockState.INACTIVE
        return Counters(
            requested_bytes=int(layout.requested_bytes[active].sum()),
            allocated_bytes=int(layout.size_bytes[allocated].sum()),
            active_bytes=int(layout.size_bytes[active].sum()),
            reserved_bytes=int(layout.segment_bytes.sum()),
        )

    def allocated_after(self, event: int) -> int:
        """Return the bytes that are allocated after an event."""
        return int(self.blocks.size_bytes[self.live_after(event)].sum())

    def live_at(self, at: str | int = "peak") -> NDArray[np.int64]:
        """Return the rows of `blocks` that are allocated at an instant, oldest first.

        Args:
            at: As in `event_at`.

        Raises:
            UllageError: There is no such instant.
        """
        return self.live_after(self.event_at(at))

    def live_after(self, event: int) -> NDArray[np.int64]:
        """Return the rows of `blocks` that are allocated after an event (`NONE`: before the first)."""
        import numpy as np

        blocks = self.blocks
        freed = blocks.free_requested
        return np.flatnonzero((blocks.birth <= event) & ((freed == NONE) | (freed > event)))

    def layout_at(self, at: str | int = "peak") -> Layout:
        """Return the layout of every segment at an instant.

        Args:
            at: As in `event_at`.

        Raises:
            UllageError: There is no such instant.

        Cost: one pass over the events up to it, unless it was asked for before.
        """
        event = self.event_at(at)
        return self.layouts_after([event])[event]

    def layouts_after(self, events: list[int]) -> dict[int, Layout]:
        """Return the layouts after several events in one pass."""
        missing = sorted({event for event in events if event not in self._layouts})
        if missing:
            tables = _core.layouts_after(self.trace.tables, self.number, missing)
            for event, table in zip(missing, tables, strict=True):
                self._layouts[event] = _layout_of(event, table)
        return {event: self._layouts[event] for event in events}


def _layout_of(event: int, table: _core.LayoutTable) -> Layout:
    import numpy as np

    counts = table.blocks_end - table.blocks_begin
    segment_of_block = np.repeat(np.arange(len(counts)), counts)
    return Layout(
        event=event,
        segment=table.segment_lifetime[segment_of_block],
        address=table.address,
        size_bytes=table.size,
        requested_bytes=table.requested_size,
        state=table.state,
        lifetime=table.lifetime,
        segment_rows=table.segment_lifetime,
        segment_address=table.segment_address,
        segment_bytes=table.segment_size,
        segment_of_block=segment_of_block,
    )
