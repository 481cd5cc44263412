"""Builds small memory snapshots by running a naive caching allocator: what a test asks for, and the truth about it.

The allocator has torch's default rules and no others. One segment, as its `parts` list it::

    address                                                       address + size
    |<-- part: Life ------------->|<-- part: None (free) -->|<-- part: Life -->|

Stacks are written as "train.py:3 step < train.py:9 main", innermost first; "" is a request without a stack.
"""

from __future__ import annotations

import pickle
import re
from dataclasses import dataclass, field
from typing import Any

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
START_US = 1_700_000_000_000_000
TICK_US = 10
FIRST_ADDRESS = 0x7F00_0000_0000
DEFAULT_POOL = (0, 0)
EMPTY_CACHE = "torch/cuda/memory.py:224 empty_cache"

Frames = list[dict[str, Any]]


class SimulatedOutOfMemoryError(Exception):
    """The naive allocator found no room below its limit; an `oom` event was recorded."""


@dataclass
class Life:
    """One block from the request that made it to its end; event indices, -1 for what has not happened."""

    address: int
    size: int
    requested: int
    birth: int
    frames: Frames
    free_requested: int = -1
    death: int = -1


@dataclass
class Segment:
    """One driver allocation, cut into parts in address order."""

    address: int
    size: int
    stream: int
    pool: tuple[int, int]
    is_small: bool
    frames: Frames
    parts: list[tuple[int, Life | None]] = field(default_factory=list)  # (size, who lives there)

    @property
    def is_free(self) -> bool:
        return all(life is None for _, life in self.parts)


def frames_of(stack: str) -> Frames:
    """Return the frames that a stack such as "train.py:3 step < train.py:9 main" stands for."""
    frames = []
    for part in stack.split(" < ") if stack else []:
        found = re.fullmatch(r"(.+?):(\d+) (.*)", part)
        assert found, f"not FILE:LINE FUNCTION: {part!r}"
        frames.append({"filename": found[1], "line": int(found[2]), "name": found[3]})
    return frames


def round_size(size: int) -> int:
    """Return the block size that serves a request."""
    return max(-(-size // 512) * 512, 512)


def segment_size(rounded: int) -> int:
    """Return the size of the segment that is made where no free block serves a request."""
    if rounded <= MIB:
        return 2 * MIB
    return 20 * MIB if rounded < 10 * MIB else -(-rounded // (2 * MIB)) * 2 * MIB


class SnapshotBuilder:
    """Records what a naive allocator does, in the form of `torch.cuda.memory._snapshot()`.

    `lives` and `counters` are the truth: all blocks, and (requested, allocated, active, reserved) after each event.
    With `records_pools`, events name their pool, as from torch 2.12 on.
    """

    def __init__(
        self,
        *,
        device: int = 0,
        limit_bytes: int | None = None,
        settings: dict[str, Any] | None = None,
        records_pools: bool = False,
    ) -> None:
        self.device, self.limit_bytes, self.records_pools = device, limit_bytes, records_pools
        self.settings = {"PYTORCH_CUDA_ALLOC_CONF": "", "expandable_segments": False} | (settings or {})
        self.events: list[dict[str, Any]] = []
        self.annotations: list[dict[str, Any]] = []
        self.segments: list[Segment] = []
        self.lives: list[Life] = []
        self.counters: list[tuple[int, int, int, int]] = []
        self.now_us = START_US
        self._next_address = FIRST_ADDRESS

    # --- what a program does ---

    def alloc(
        self, size: int, at: str = "train.py:3 step", *, stream: int = 0, pool: tuple[int, int] = DEFAULT_POOL
    ) -> int:
        """Serve a request by best fit, and return its address.

        Raises:
            SimulatedOutOfMemoryError: It would take more than the limit, even after free segments were released.
        """
        rounded, frames = round_size(size), frames_of(at)
        found = self._best_fit(rounded, stream, pool)
        if found is None:
            self._make_room(segment_size(rounded), rounded, frames, stream, pool)
            found = self._add_segment(rounded, frames, stream, pool), 0
        segment, index = found
        life = self._take(segment, index, rounded, size, frames)
        self._record("alloc", frames, addr=life.address, size=size, stream=stream, pool=pool)
        return life.address

    def free(self, *addresses: int) -> None:
        """Free blocks that no stream holds up."""
        for address in addresses:
            self.request_free(address)
            self.complete_free(address)

    def request_free(self, address: int) -> None:
        """Free a block that still waits for another stream."""
        segment, _, life = self._find(address)
        life.free_requested = len(self.events)
        self._record_in(segment, "free_requested", life.frames, address, life.requested)

    def complete_free(self, address: int) -> None:
        """Make a freed block available again, and merge it with its free neighbours."""
        segment, index, life = self._find(address)
        life.death = len(self.events)
        segment.parts[index] = (life.size, None)
        if index + 1 < len(segment.parts) and segment.parts[index + 1][1] is None:
            segment.parts[index : index + 2] = [(segment.parts[index][0] + segment.parts[index + 1][0], None)]
        if index and segment.parts[index - 1][1] is None:
            segment.parts[index - 1 : index + 1] = [(segment.parts[index - 1][0] + segment.parts[index][0], None)]
        self._record_in(segment, "free_completed", life.frames, address, life.requested)

    def empty_cache(self, at: str = EMPTY_CACHE) -> None:
        """Give whole free segments back to the driver."""
        self._release_free_segments(frames_of(at))

    def annotate(self, name: str) -> None:
        """Open and close an annotation at this moment, such as "ProfilerStep#3"."""
        for stage in ("START", "END"):
            self.annotations.append({"name": name, "stage": stage, "device": self.device, "time_us": self.now_us})

    def wait(self, time_us: int) -> None:
        """Let time pass."""
        self.now_us += time_us

    # --- what the recorder wrote ---

    def snapshot(self) -> dict[str, Any]:
        """Return the snapshot as torch returns it."""
        return {
            "segments": [self._segment_dict(one) for one in sorted(self.segments, key=lambda one: one.address)],
            "device_traces": [[] for _ in range(self.device)] + [list(self.events)],
            "allocator_settings": dict(self.settings),
            "external_annotations": list(self.annotations),
        }

    def pickled(self, protocol: int = 4) -> bytes:
        """Return the bytes that `torch.cuda.memory._dump_snapshot` would write."""
        return pickle.dumps(self.snapshot(), protocol=protocol)

    @property
    def peak(self) -> tuple[int, ...]:
        """The largest value of each of the four sums."""
        return tuple(max(column) for column in zip(*self.counters, strict=True))

    # --- the allocator ---

    def _best_fit(self, rounded: int, stream: int, pool: tuple[int, int]) -> tuple[Segment, int] | None:
        holes = []
        for segment in self.segments:
            if (segment.stream, segment.pool, segment.is_small) != (stream, pool, rounded <= MIB):
                continue
            address = segment.address
            for index, (size, life) in enumerate(segment.parts):
                if life is None and size >= rounded:
                    holes.append((size, address, segment, index))
                address += size
        if not holes:
            return None
        _, _, segment, index = min(holes, key=lambda hole: hole[:2])
        return segment, index

    def _release_free_segments(self, frames: Frames) -> None:
        for life in [one for one in self.lives if one.free_requested >= 0 and one.death == -1]:
            self.complete_free(life.address)  # it waits for the GPU first
        for segment in [one for one in self.segments if one.is_free and one.pool == DEFAULT_POOL]:
            self.segments.remove(segment)
            self._record_in(segment, "segment_free", frames, segment.address, segment.size)

    def _make_room(self, needed: int, rounded: int, frames: Frames, stream: int, pool: tuple[int, int]) -> None:
        def is_full() -> bool:
            return self.limit_bytes is not None and sum(one.size for one in self.segments) + needed > self.limit_bytes

        if is_full() and pool == DEFAULT_POOL:  # nothing is given back while a private pool is in use
            self._release_free_segments(frames)
        if is_full():
            self._record("oom", frames, device_free=0, size=rounded, stream=stream, pool=pool)
            raise SimulatedOutOfMemoryError(f"{rounded} bytes")

    def _add_segment(self, rounded: int, frames: Frames, stream: int, pool: tuple[int, int]) -> Segment:
        size = segment_size(rounded)
        segment = Segment(self._next_address, size, stream, pool, rounded <= MIB, frames, [(size, None)])
        self._next_address += size + 2 * MIB  # segments never touch
        self.segments.append(segment)
        self._record_in(segment, "segment_alloc", frames, segment.address, size)
        return segment

    def _take(self, segment: Segment, index: int, rounded: int, requested: int, frames: Frames) -> Life:
        whole, _ = segment.parts[index]
        rest = whole - rounded
        splits = rest >= 512 if segment.is_small else rest > MIB
        address = segment.address + sum(size for size, _ in segment.parts[:index])
        life = Life(address, rounded if splits else whole, requested, len(self.events), frames)
        segment.parts[index : index + 1] = [(rounded, life), (rest, None)] if splits else [(whole, life)]
        self.lives.append(life)
        return life

    def _find(self, address: int) -> tuple[Segment, int, Life]:
        for segment in self.segments:
            for index, (_, life) in enumerate(segment.parts):
                if life is not None and life.address == address:
                    return segment, index, life
        raise AssertionError(f"no block lives at {address:#x}")

    def _record_in(self, segment: Segment, action: str, frames: Frames, address: int, size: int) -> None:
        self._record(action, frames, addr=address, size=size, stream=segment.stream, pool=segment.pool)

    def _record(self, action: str, frames: Frames, *, pool: tuple[int, int], **fields: int) -> None:
        known = {"pool_id": pool} if self.records_pools else {}
        self.events.append({"action": action, **fields, **known, "time_us": self.now_us, "frames": frames})
        self.now_us += TICK_US
        active = [life for segment in self.segments for _, life in segment.parts if life is not None]
        self.counters.append(
            (
                sum(life.requested for life in active),
                sum(life.size for life in active if life.free_requested == -1),
                sum(life.size for life in active),
                sum(segment.size for segment in self.segments),
            )
        )

    def _segment_dict(self, segment: Segment) -> dict[str, Any]:
        blocks, address = [], segment.address
        for size, life in segment.parts:
            state = (
                "inactive"
                if life is None
                else "active_pending_free"
                if life.free_requested >= 0
                else "active_allocated"
            )
            requested = life.requested if life else 0
            frames = life.frames if life else []
            blocks.append(
                {"address": address, "size": size, "requested_size": requested, "state": state, "frames": frames}
            )
            address += size
        active = [block for block in blocks if block["state"] != "inactive"]
        return {
            "device": self.device,
            "address": segment.address,
            "total_size": segment.size,
            "allocated_size": sum(block["size"] for block in active if block["state"] == "active_allocated"),
            "active_size": sum(block["size"] for block in active),
            "requested_size": sum(block["requested_size"] for block in active),
            "stream": segment.stream,
            "segment_type": "small" if segment.is_small else "large",
            "segment_pool_id": segment.pool,
            "is_expandable": False,
            "frames": segment.frames,
            "blocks": blocks,
        }


def merged(*snapshots: dict[str, Any]) -> dict[str, Any]:
    """Return one snapshot of several devices, each built on its own."""
    num_devices = max(len(one["device_traces"]) for one in snapshots)
    traces: list[list[dict[str, Any]]] = [[] for _ in range(num_devices)]
    for one in snapshots:
        for device, events in enumerate(one["device_traces"]):
            traces[device] += events
    return snapshots[0] | {
        "segments": [segment for one in snapshots for segment in one["segments"]],
        "device_traces": traces,
        "external_annotations": [note for one in snapshots for note in one["external_annotations"]],
    }
