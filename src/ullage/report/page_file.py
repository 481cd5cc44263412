"""Writes a report of one or more recordings as a page."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple

from ullage.errors import UllageError
from ullage.explain import explain
from ullage.fleet import Rank, odd_first, rank_of
from ullage.replay import WhatIf, what_if
from ullage.report.output_file import refuse_source, replacing
from ullage.report.page import page_of, rank_payload
from ullage.report.page.columns import pack
from ullage.trace import load

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from ullage.explain import Finding
    from ullage.trace import DeviceTrace, Trace


class _Packed(NamedTuple):
    rank: Rank
    findings: list[Finding]
    payload: bytes


def write_report(
    files: Sequence[str],
    output: str,
    *,
    device: int | None = None,
    cap_bytes: int | None = None,
    simulate: bool = True,
    read: Callable[[str], Trace] = load,
    progress: Callable[[int, str], None] = lambda index, path: None,
) -> dict[str, Any]:
    """Write one page for some recordings.

    Args:
        files: The recordings.
        output: The page's path. What is there is replaced when the page is complete, and stays where something fails.
        device: One device's number; None: all of each recording.
        cap_bytes: The limit under which other settings are simulated.
        simulate: Whether to simulate other settings.
        read: Loads one of them.
        progress: Called with a recording's index and path before it is read, and with "" at the end, also where it fails.

    Returns:
        What was written, as plain data.

    Raises:
        TraceError: A recording cannot be read.
        UllageError: No recording has events or segments, or the page cannot be written.
    """
    packed: list[_Packed] = []
    names = _names(files)
    try:
        for index, path in enumerate(files):
            progress(index, path)
            trace = read(path)
            several = len(files) > 1 or (device is None and len(trace.devices) > 1)
            packed.extend(_pack_trace(trace, names[index], device, cap_bytes, simulate=simulate, several=several))
    finally:
        progress(len(files), "")
    if not packed:
        raise UllageError(f"nothing to show: {files[0]} has no device with events or segments")
    order = odd_first([one.rank for one in packed])
    index_payload = pack({"ranks": [rank.to_json() for _, rank in order]}, {})
    payloads = (packed[place].payload for place, _ in order)
    findings = [finding for place, _ in order for finding in packed[place].findings]
    size = _write(output, files, page_of(_title(names), findings, _chained(index_payload, payloads)))
    return {
        "path": output,
        "bytes": size,
        "ranks": [rank.to_json() for _, rank in order],
        "num_findings": len(findings),
    }


def _title(names: Sequence[str]) -> str:
    return f"{names[0]} - ullage" if len(names) == 1 else f"{names[0]} and {len(names) - 1} more - ullage"


def _chained(first: bytes, others: Iterable[bytes]) -> Iterator[bytes]:
    yield first
    yield from others


def _names(files: Sequence[str]) -> list[str]:
    """Call each recording by the shortest end of its path that no other one has."""
    parts = [os.path.abspath(path).split(os.sep) for path in files]
    for length in range(1, max(len(one) for one in parts) + 1):
        names = ["/".join(one[-length:]) for one in parts]
        if len(set(names)) == len(names):
            return names
    return list(files)


def _pack_trace(
    trace: Trace, name: str, number: int | None, cap_bytes: int | None, *, simulate: bool, several: bool
) -> Iterator[_Packed]:
    devices = trace.devices if number is None else (trace.device(number),)
    for device in devices:
        called = name if len(devices) == 1 else f"{name} GPU {device.number}"
        yield _pack_device(device, called, cap_bytes, simulate=simulate, several=several)


def _pack_device(device: DeviceTrace, name: str, cap_bytes: int | None, *, simulate: bool, several: bool) -> _Packed:
    _ = device.history, device.segments  # what all of them need is there before they begin
    with ThreadPoolExecutor(max_workers=3) as pool:
        # The core works without Python's lock, and the findings are mostly NumPy's.
        what_ifs = pool.submit(_simulated, device, cap_bytes) if simulate else None
        drawing, changes = pool.submit(lambda: device.drawing), pool.submit(lambda: device.reserved_changes)
        findings = explain(device.trace, device=device.number)
        drawing.result()
        changes.result()
        payload = rank_payload(device, findings, what_ifs.result() if what_ifs else [], name=name)
    return _Packed(rank_of(device, name, with_highs=several), findings, payload)


def _simulated(device: DeviceTrace, cap_bytes: int | None) -> list[WhatIf]:
    """Simulate other settings; a recording without requests has none."""
    if not device.num_events:
        return []
    try:
        return what_if(device.trace, device=device.number, cap_bytes=cap_bytes)
    except UllageError:
        return []


def _write(path: str, files: Sequence[str], pieces: Iterable[str]) -> int:
    """Write a file as a whole or not at all; return its size."""
    for file in files[1:]:
        refuse_source(path, file)
    with replacing([path], source=files[0]) as (part,), open(part, "wb") as out:
        size = 0
        for piece in pieces:
            size += out.write(piece.encode())
    return size
