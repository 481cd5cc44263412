"""The trace: the history of one process's GPU memory."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ullage.display import renderer
from ullage.errors import UllageError
from ullage.trace.device import DeviceTrace
from ullage.trace.sites import Sites, compile_mine
from ullage.trace.snapshot import read_tables
from ullage.trace.torch_version import version_from_keys

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from ullage import _core
    from ullage.trace.tables import Layout

Setting = bool | int | float | str


def load(path: str | os.PathLike[str], *, mine: str | None = None) -> Trace:
    """Load a memory snapshot.

    Args:
        path: What `torch.cuda.memory._dump_snapshot` wrote (pickle), the same as JSON, or either compressed with gzip,
            xz or zstd.
        mine: A regular expression; files whose path it is found in are the user's own. None: everything outside
            installed packages and the standard library.

    Raises:
        TraceError: The file cannot be read, or is no snapshot. Nothing in it was executed.
        UllageError: `mine` is no regular expression.

    Cost: linear in the file; reconstruction waits until it is asked for.
    """
    compile_mine(mine)  # before the reading, which takes longer
    return Trace(read_tables(path), path=os.fspath(path), mine=mine)


class Trace:
    """One process's GPU memory over time.

    Attributes:
        path: The file that it came from.
        settings: The allocator's settings; nested ones with dots, as in `roundup_power2_divisions.256`.
        devices: The devices that have events or segments, by number.
    """

    def __init__(self, tables: _core.Tables, *, path: str = "", mine: str | None = None) -> None:
        self.path = path
        self.tables = tables
        self.settings: dict[str, Setting] = tables.settings
        self.sites = Sites(tables, mine)
        self.devices = tuple(DeviceTrace(self, row) for row in range(len(tables.devices)))

    @property
    def torch_version(self) -> str:
        """The torch version, as far as the file tells: its own word, or a range that its keys allow."""
        return self.tables.torch_version or version_from_keys(self.tables)

    def device(self, number: int | None = None) -> DeviceTrace:
        """Return one device; None is the one with the most events.

        Raises:
            UllageError: The trace has no such device.
        """
        if number is None and self.devices:
            return max(self.devices, key=lambda device: device.num_events)
        for device in self.devices:
            if device.number == number:
                return device
        have = ", ".join(str(device.number) for device in self.devices) or "none"
        raise UllageError(f"{self.path or 'the trace'} has no device {number} (it has: {have})")

    def live_at(self, at: str | int = "peak", *, device: int | None = None) -> NDArray[np.int64]:
        """Return the rows of `DeviceTrace.blocks` that are allocated at an instant; see `DeviceTrace.live_at`."""
        return self.device(device).live_at(at)

    def layout_at(self, at: str | int = "peak", *, device: int | None = None) -> Layout:
        """Return the layout of every segment at an instant; see `DeviceTrace.layout_at`."""
        return self.device(device).layout_at(at)

    def plot(
        self,
        device: int | None = None,
        *,
        at: str | int | None = None,
        figsize: tuple[float, float] | None = None,
        num_lines: int | None = None,
    ) -> Figure:
        """Draw the timeline of one device; None is the one with the most events. See `DeviceTrace.plot`."""
        return self.device(device).plot(at=at, figsize=figsize, num_lines=num_lines)

    def __repr__(self) -> str:
        devices = "; ".join(device.title for device in self.devices[:4]) or "no devices"
        more = f"; {len(self.devices) - 4} more" if len(self.devices) > 4 else ""
        return f"<Trace {self.path[-200:]!r}: {devices}{more}>"

    def _repr_html_(self) -> str:
        html: str = renderer("notebook").trace_html(self)
        return html
