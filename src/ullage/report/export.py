"""Writes a trace in the forms that other tools read."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from ullage.errors import UllageError
from ullage.explain import explain
from ullage.report.output_file import replacing
from ullage.report.parquet import require_pyarrow

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ullage.explain import Finding
    from ullage.trace import DeviceTrace, Trace

STANDARD_OUTPUT = "-"


@dataclass(frozen=True, kw_only=True)
class Outputs:
    """What to write, and where: a path each, or None.

    Attributes:
        perfetto: The file of a Perfetto trace.
        parquet: The folder of Parquet files.
        flamegraph: The file of folded stacks; "-" is standard output.

    Raises:
        UllageError: Two are one file, or what writes one is not installed.
    """

    perfetto: str | None = None
    parquet: str | None = None
    flamegraph: str | None = None

    def __post_init__(self) -> None:
        paths = [os.path.realpath(path) for path in (self.perfetto, self.parquet, self.flamegraph) if path]
        if len(set(paths)) < len(paths):
            raise UllageError("two outputs go to one path: give each its own")
        if self.perfetto == STANDARD_OUTPUT or self.parquet == STANDARD_OUTPUT:
            raise UllageError("only --flamegraph and --json can be written to standard output")
        if self.parquet is not None:
            require_pyarrow()

    @property
    def has_any(self) -> bool:
        """Whether there is something to write."""
        return any(path is not None for path in (self.perfetto, self.parquet, self.flamegraph))


class Written(NamedTuple):
    """A file that was written.

    Attributes:
        format: "perfetto", "parquet" or "flamegraph".
        path: Where.
        bytes: Its size.
        rows: Its packets, rows or stacks.
    """

    format: str
    path: str
    bytes: int
    rows: int


def write_outputs(
    trace: Trace,
    outputs: Outputs,
    *,
    device: int | None = None,
    at: str | int = "peak",
    progress: Callable[[str], None] = lambda _: None,
) -> list[Written]:
    """Write what was asked for. A file takes its place when it is whole; one that fails leaves what was there before.

    Args:
        trace: The trace.
        outputs: What to write.
        device: One device's number; None: all of them.
        at: The instant of the flame graph and of the finding `peak`, as in `DeviceTrace.event_at`.
        progress: Called with the path that is written next.

    Returns:
        The files, without what went to standard output.

    Raises:
        UllageError: There is no such device or instant, or a file cannot be written.
    """
    devices = trace.devices if device is None else (trace.device(device),)
    written: list[Written] = []
    findings = explain(trace, device=device, at=at) if outputs.perfetto or outputs.parquet else []
    if outputs.flamegraph is not None:
        progress(outputs.flamegraph)
        written += _write_flamegraph(trace, outputs.flamegraph, devices, at)
    if outputs.perfetto is not None:
        progress(outputs.perfetto)
        written += _write_perfetto(trace, outputs.perfetto, devices, findings)
    if outputs.parquet is not None:
        progress(outputs.parquet)
        written += _write_parquet(trace, outputs.parquet, findings, device)
    return written


def print_tables(trace: Trace, *, device: int | None = None, at: str | int = "peak") -> None:
    """Print a trace's tables as JSON, with its summary and its findings, as `ullage explain --json` prints them.

    Args:
        trace: The trace.
        device: One device's number; None: all of them.
        at: The instant of the finding `peak`.

    Raises:
        UllageError: There is no such device or instant.
    """
    from ullage.report.export_tables import export_tables
    from ullage.report.summary_json import summary_json
    from ullage.report.tables_json import write_json

    findings = explain(trace, device=device, at=at)
    head: dict[str, Any] = summary_json(trace, device=device)
    head |= {"findings": [finding.to_json() for finding in findings]}
    write_json(sys.stdout, head, export_tables(trace, findings, device=device))


def _write_flamegraph(trace: Trace, path: str, devices: Sequence[DeviceTrace], at: str | int) -> list[Written]:
    from ullage.report.flamegraph import folded_stacks

    lines = folded_stacks(devices, at)
    content = "".join(f"{line}\n" for line in lines).encode("utf-8", errors="replace")
    if path == STANDARD_OUTPUT:
        encoding = sys.stdout.encoding or "utf-8"
        print(content.decode("utf-8").encode(encoding, errors="replace").decode(encoding), end="")
        return []
    with replacing([path], source=trace.path) as (part,), open(part, "wb") as file:
        file.write(content)
    return [Written("flamegraph", path, len(content), len(lines))]


def _write_perfetto(
    trace: Trace, path: str, devices: Sequence[DeviceTrace], findings: Sequence[Finding]
) -> list[Written]:
    from ullage.report.perfetto import write_perfetto

    with replacing([path], source=trace.path) as (part,), open(part, "wb") as file:
        num_packets = write_perfetto(file, devices, findings)
        size = file.tell() if file.seekable() else 0
    return [Written("perfetto", path, size, num_packets)]


def _write_parquet(trace: Trace, folder: str, findings: Sequence[Finding], device: int | None) -> list[Written]:
    from ullage.report.export_tables import export_tables, num_rows
    from ullage.report.parquet import write_parquet

    tables = export_tables(trace, findings, device=device)
    paths = [os.path.join(folder, f"{name}.parquet") for name in tables]
    is_new = not os.path.isdir(folder)
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as error:
        raise UllageError(f"{folder}: cannot be made a folder: {error.strerror or error}") from None
    try:
        with replacing(paths, source=trace.path) as parts:
            for part, table in zip(parts, tables.values(), strict=True):
                write_parquet(part, table)
    except UllageError:
        if is_new:
            with suppress(OSError):
                os.rmdir(folder)
        raise
    rows = [num_rows(table) for table in tables.values()]
    return [Written("parquet", path, os.path.getsize(path), count) for path, count in zip(paths, rows, strict=True)]
