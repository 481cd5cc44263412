"""Held at the end: the blocks that were still allocated after the last event, by line and age."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ullage.explain.attribution import describe, share_by_age, share_by_site
from ullage.explain.finding import Finding
from ullage.explain.workspaces import find_workspaces
from ullage.units import format_bytes, format_share

if TYPE_CHECKING:
    from ullage.trace import DeviceTrace

_MIN_BYTES = 1 << 20


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
    only_workspaces = total - workspace_bytes < _MIN_BYTES
    top = shares[0]
    if only_workspaces:
        next_step = (
            "Nothing, if that is all: these are owned by no tensor. torch._C._cuda_clearCublasWorkspaces() frees them, "
            "CUBLAS_WORKSPACE_CONFIG=:16:8 makes them small."
        )
    else:
        next_step = "If the work was done by then, look for what still refers to the tensors made at these lines."
    note = ""
    if workspace_bytes:
        note = (
            f" {format_bytes(workspace_bytes)} of it has the size of cuBLAS workspaces, one for each handle and stream: "
            "not a leak."
        )
    return [
        Finding(
            kind="held",
            severity="info",
            device=device.number,
            bytes=total,
            title=f"Held at the end: {format_bytes(total)} in {len(rows):,} blocks"
            + (", all of it of the size of cuBLAS workspaces" if only_workspaces else ""),
            why=f"{format_share(top.bytes, total)} of it was asked for by {describe(top.lead)}.{note}",
            next_step=next_step,
            site=top.stack,
            evidence={
                "by_site": [share.to_json() for share in shares],
                "by_age": share_by_age(device, rows, event),
                "likely_cublas_workspace_bytes": workspace_bytes,
            },
        )
    ]
