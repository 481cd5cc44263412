"""Held at the end: the blocks that were still allocated after the last event, by line and age."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ullage.explain.attribution import describe, share_by_age, share_by_site
from ullage.explain.finding import Finding
from ullage.explain.workspaces import find_workspaces
from ullage.units import format_bytes, format_share, plural

if TYPE_CHECKING:
    from ullage.trace import DeviceTrace

_MIN_BYTES = 1 << 20
_MOSTLY = 0.95  # of what is held, for it to be called workspaces
_MANY_STREAMS = 3  # the main stream and one side stream are no reason for advice


def find_held(device: DeviceTrace) -> list[Finding]:
    """Report what is still allocated after the last event; silent below 1 MiB."""
    event = device.num_events - 1
    rows = device.live_after(event)
    blocks = device.blocks
    total = int(blocks.size_bytes[rows].sum())
    if total < _MIN_BYTES:
        return []
    shares = share_by_site(device, rows, event)
    workspaces = np.intersect1d(rows, find_workspaces(device))
    workspace_bytes = int(blocks.size_bytes[workspaces].sum())
    mostly_workspaces = workspace_bytes >= _MOSTLY * total
    num_streams = len(np.unique(device.segments.stream[blocks.segment[workspaces]]))
    top = shares[0]
    note = ""
    if workspace_bytes:
        note = (
            f" {format_bytes(workspace_bytes)} of it, on {plural(num_streams, 'stream')}, has the size of cuBLAS "
            "workspaces, which PyTorch keeps for each handle and stream: most likely not a leak."
        )
    return [
        Finding(
            kind="held",
            severity="info",
            device=device.number,
            bytes=total,
            title=f"Held at the end: {format_bytes(total)} in {plural(len(rows), 'block')}"
            + (f"; {_how_much(workspace_bytes, total)} has the size of cuBLAS workspaces" if mostly_workspaces else ""),
            why=f"{format_share(top.bytes, total)} of it was asked for by {describe(top.lead)}.{note}",
            next_step=_next_step(mostly_workspaces, num_streams),
            site=top.stack,
            evidence={
                "by_site": [share.to_json() for share in shares],
                "by_age": share_by_age(device, rows, event),
                "likely_cublas_workspace_bytes": workspace_bytes,
                "likely_cublas_workspace_streams": num_streams,
            },
        )
    ]


def _how_much(part: int, total: int) -> str:
    return "all of it" if part == total else f"{format_bytes(part)} of it"


def _next_step(mostly_workspaces: bool, num_streams: int) -> str:
    if not mostly_workspaces:
        return "If the work was done by then, look for what still refers to the tensors made at these lines."
    if num_streams >= _MANY_STREAMS:
        lead = f"If they are workspaces: reuse one side stream in place of {num_streams:,} streams with one each."
    else:
        lead = "Nothing, if they are workspaces: no tensor owns them."
    return f"{lead} torch._C._cuda_clearCublasWorkspaces() frees them, CUBLAS_WORKSPACE_CONFIG=:16:8 makes them small."
