"""Held at the end: the blocks that were still allocated after the last event, by line and age."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ullage.explain.attribution import describe, share_by_age, share_by_site
from ullage.explain.finding import Finding
from ullage.trace import NONE
from ullage.units import format_bytes, format_share

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ullage.trace import DeviceTrace

# What PyTorch requests for a (cuBLAS handle, stream) pair: 2 x 4 MiB + 8 x 16 KiB before Hopper, 32 MiB on Hopper and
# Blackwell (at::cuda::getChosenWorkspaceSize, torch 2.11). cuBLASLt's own is 1 MiB there (measured, torch 2.11, H200).
_CUBLAS_WORKSPACES = (32 << 20, 8_519_680)
_CUBLASLT_WORKSPACE = 1 << 20

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
    workspaces = _workspaces(device, rows)
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
            + (", all of it cuBLAS workspaces" if only_workspaces else ""),
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


def _workspaces(device: DeviceTrace, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Pick the blocks that have a cuBLAS workspace's size, and are as few a stream as workspaces are."""
    blocks = device.blocks
    requested = blocks.requested_bytes[rows]
    large = rows[np.isin(requested, _CUBLAS_WORKSPACES) & (blocks.birth[rows] != NONE)]
    if not len(large):
        return large
    # A loop that keeps tensors of just this size makes many more of them than there are handles.
    num_streams = len(np.unique(device.segments.stream[blocks.segment[large]]))
    if len(large) > 2 * num_streams:
        return large[:0]
    return np.concatenate([large, rows[requested == _CUBLASLT_WORKSPACE][: len(large)]])
