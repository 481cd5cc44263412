"""A made-up GPU whose clock a test owns: each run takes what a few numbers say, so that every figure can be foretold."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from itertools import repeat
from unittest.mock import patch

from ullage.errors import DeviceError
from ullage.runtime.probe import rounds
from ullage.runtime.probe.gpu import Block, MemoryKind, Run
from ullage.runtime.probe.host import HostFigures
from ullage.runtime.probe.measure import measure_gpu
from ullage.runtime.probe.result import Machine, Pattern, ProbeResult, Sample, Temperature, Way
from ullage.runtime.probe.timing import timing_of

GB = 10**9
MIB, GIB = 1 << 20, 1 << 30


@dataclass
class Speeds:
    """Bytes a second, and nanoseconds; about those of an H200 behind PCIe."""

    device: float = 4400 * GB
    l2: float = 7000 * GB
    pinned: float = 55 * GB
    pageable: float = 12 * GB
    mapped: float = 50 * GB
    fault: float = 1.75 * GB
    prefetch: float = 48 * GB
    copy_ns: float = 2_000
    call_ns: float = 7_000
    tlb_reach: int = 512 * MIB
    tlb_page: int = 2 * MIB
    hit_ns: float = 300
    miss_ns: float = 600
    first_visit_ns: float = 0  # more, of a place that nothing was at before
    gathered_at_once: float = 20_000
    allocation_ns: dict[tuple[str, str], tuple[float, float]] = field(
        default_factory=lambda: {
            ("cuda_malloc", "cold"): (60_000, 33_000),
            ("pool", "cold"): (80_000, 40_000),
            ("pool", "warm"): (1_700, 1_600),
            ("torch", "cold"): (70_000, 40_000),
            ("torch", "warm"): (2_500, 600),
            ("managed", "cold"): (12_000, 20_000),
            ("pinned", "cold"): (9_000_000, 6_000_000),
        }
    )


class FakeGpu:
    """A GPU of made-up speeds; a kind of memory in `broken` cannot be allocated."""

    def __init__(
        self,
        speeds: Speeds | None = None,
        *,
        free: int = 128 * GIB,
        broken: dict[str, str] | None = None,
        has_concurrent_managed: bool = True,
        has_pageable_access: bool = False,
        shares_page_tables: bool = False,
    ) -> None:
        self.speeds = speeds or Speeds()
        self.now_ns = 0.0
        self.live: dict[int, Block] = {}
        self.most_bytes = 0
        self._free = free
        self._broken = broken or {}
        self._on_gpu: set[int] = set()
        self._next = 1
        self.loops_ns: Iterator[float] = repeat(60_000.0)
        self.machine = Machine(
            gpu="NVIDIA H200",
            uuid="GPU-01020304-0000-0000-0000-000000000000",
            driver="580.159.03",
            torch="2.11.0",
            triton="3.6.0",
            cuda_bindings="13.0.3",
            ullage="0.1.0",
            date="2026-01-02T03:04:05+00:00",
            total_bytes=140 * GIB,
            free_bytes=free,
            l2_bytes=50 * MIB,
            num_processors=132,
            has_concurrent_managed=has_concurrent_managed,
            has_pageable_access=has_pageable_access,
            shares_page_tables=shares_page_tables,
        )

    def free_bytes(self) -> int:
        return self._free - sum(one.size_bytes for one in self.live.values())

    def allocate(self, kind: MemoryKind, size_bytes: int) -> Block:
        if kind in self._broken:
            raise DeviceError(self._broken[kind])
        block = Block(kind=kind, address=self._next << 44, size_bytes=size_bytes)
        self._next += 1
        self.live[block.address] = block
        self.most_bytes = max(self.most_bytes, sum(one.size_bytes for one in self.live.values()))
        return block

    def free(self, block: Block) -> None:
        del self.live[block.address]

    def _run(self, cost_ns: float | Callable[[], float]) -> Run:
        def run() -> None:
            self.now_ns += cost_ns() if callable(cost_ns) else cost_ns

        return run

    def copying(self, target: Block, source: Block, size_bytes: int) -> Run:
        kinds = {target.kind, source.kind}
        if kinds == {"torch"}:
            return self._run(2 * size_bytes / self.speeds.device * 1e9)
        speed = self.speeds.pageable if "pageable" in kinds else self.speeds.pinned
        return self._run(self.speeds.copy_ns + size_bytes / speed * 1e9)

    def reading(self, block: Block, size_bytes: int, *, num_rounds: int = 1) -> Run:
        if num_rounds > 1:
            return self._run(num_rounds * size_bytes / self.speeds.l2 * 1e9)

        def cost_ns() -> float:
            speed = self.speeds.device
            if block.kind in ("mapped", "pageable"):
                speed = self.speeds.mapped
            if block.kind == "managed" and block.address not in self._on_gpu:
                speed = self.speeds.fault
                self._on_gpu.add(block.address)
            return size_bytes / speed * 1e9

        return self._run(cost_ns)

    def writing(self, block: Block, size_bytes: int) -> Run:
        return self.reading(block, size_bytes)

    def reading_strided(self, block: Block, size_bytes: int, stride_bytes: int) -> Run:
        return self._run(size_bytes / stride_bytes * min(stride_bytes, 32) / self.speeds.device * 1e9)

    def prefetching(self, block: Block) -> Run:
        def cost_ns() -> float:
            self._on_gpu.add(block.address)
            return block.size_bytes / self.speeds.prefetch * 1e9

        return self._run(cost_ns)

    def touching(self, block: Block) -> Run:
        end = block.address + block.size_bytes

        def touch() -> None:
            self._on_gpu -= {one for one in self._on_gpu if block.address <= one < end}

        return touch

    def accessing(
        self, pattern: Pattern, block: Block, footprint_bytes: int, stride_bytes: int, num_accesses: int
    ) -> Run:
        reach = self.speeds.tlb_reach * max(stride_bytes // self.speeds.tlb_page, 1)
        step_ns = self.speeds.hit_ns + self.speeds.miss_ns * max(1 - reach / footprint_bytes, 0)
        num_left = footprint_bytes // stride_bytes

        def cost_ns() -> float:
            nonlocal num_left
            num_first = min(num_left, num_accesses)
            num_left -= num_first
            whole = num_accesses * step_ns + num_first * self.speeds.first_visit_ns
            return whole if pattern == "chain" else whole / self.speeds.gathered_at_once

        return self._run(cost_ns)

    def device_ns(
        self, run: Run, num_timed: int, *, num_runs: int = 1, before: Run | None = None, is_queued: bool = True
    ) -> list[float]:
        times = []
        for _ in range(num_timed):
            if before is not None:
                before()
            start = self.now_ns
            for _ in range(num_runs):
                run()
            times.append((self.now_ns - start) / num_runs)
        return times

    def host_ns(self, run: Run, num_timed: int) -> list[float]:
        return [self.speeds.call_ns + one for one in self.device_ns(run, num_timed)]

    def loop_ns(self) -> float:
        return next(self.loops_ns)

    def allocation_ns(self, way: Way, temperature: Temperature, size_bytes: int) -> tuple[float, float]:
        if way in self._broken:
            raise DeviceError(self._broken[way])
        return self.speeds.allocation_ns[way, temperature]

    def warm_up(self) -> None:
        self.now_ns += 1

    def close(self) -> None:
        self.live.clear()


HOST = HostFigures(
    copies=tuple(
        Sample(name="copy", size_bytes=4096 * 4**step, timing=timing_of([4096 * 4**step / 10 + 200]))
        for step in range(9)
    ),
    first_touch=Sample(name="first_touch", size_bytes=64 * MIB, timing=timing_of([16384 * 250.0])),
    page_bytes=4096,
)


def made_up(gpu: FakeGpu | None = None, num_rounds: int = 6) -> ProbeResult:
    """Probe a made-up GPU, whose time costs none, so that the rounds have to be limited; without one, the usual one, once."""
    return _usual(num_rounds) if gpu is None else _probed(gpu, num_rounds)


@cache
def _usual(num_rounds: int) -> ProbeResult:
    return _probed(FakeGpu(), num_rounds)


def _probed(gpu: FakeGpu, num_rounds: int) -> ProbeResult:
    with patch.object(rounds, "_MOST", num_rounds):
        return measure_gpu(gpu, HOST, lambda _: None)
