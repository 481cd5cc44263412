"""What a probe measured, as plain data: sizes in bytes, times in nanoseconds, speeds in bytes a second, all whole numbers.

A part that could not be measured has `why`, and no figures.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from ullage.runtime.probe.timing import Timing, bytes_per_s

if TYPE_CHECKING:
    from ullage.runtime.probe.curves import Tlb

FORMAT = 6
"""The version of the JSON; another one is not read.

1 had page reach of first visits, 2 one block of each kind of memory, 3 whole blocks at once, 4 no drift, 5 nothing of the core.
"""

CopyKind = Literal["pageable", "pinned"]
Direction = Literal["to_gpu", "to_host"]
Kind = Literal[
    "pageable",
    "pageable_in_place",
    "pinned",
    "mapped",
    "managed_by_fault",
    "managed_prefetched",
    "stream_ordered",
    "device",
]
Way = Literal["cuda_malloc", "pool", "torch", "pinned", "managed"]
Temperature = Literal["cold", "warm"]
Pattern = Literal["chain", "gather"]


@dataclass(frozen=True, kw_only=True)
class Machine:
    """What was measured, and with what.

    Attributes:
        gpu: The GPU's name; "" where there is none.
        uuid: Which of that name, as nvidia-smi writes it; "" where it is not known.
        driver: The driver's version.
        torch: torch's version, "" where it is missing; the same for triton and cuda_bindings.
        ullage: ullage's version.
        date: When, in ISO 8601, UTC.
        total_bytes: The GPU's memory.
        free_bytes: What of it was free.
        l2_bytes: The GPU's cache.
        num_processors: Its multiprocessors.
        has_concurrent_managed: Whether host and GPU may use managed memory at once, which prefetches and more than fits need.
        has_pageable_access: Whether the GPU can read what malloc gave.
        shares_page_tables: Whether it does so through the host's page tables, as over NVLink-C2C.
    """

    gpu: str = ""
    uuid: str = ""
    driver: str = ""
    torch: str = ""
    triton: str = ""
    cuda_bindings: str = ""
    ullage: str = ""
    date: str = ""
    total_bytes: int = 0
    free_bytes: int = 0
    l2_bytes: int = 0
    num_processors: int = 0
    has_concurrent_managed: bool = False
    has_pageable_access: bool = False
    shares_page_tables: bool = False


@dataclass(frozen=True, kw_only=True)
class Sample:
    """Something done to a number of bytes.

    Attributes:
        name: What was done.
        size_bytes: The bytes that were of use.
        timing: How long it took; None: not measured.
        why: The reason for that.
    """

    name: str
    size_bytes: int
    timing: Timing | None = None
    why: str | None = None

    @property
    def bytes_per_s(self) -> int | None:
        """How fast it was; None: not measured."""
        return None if self.timing is None else bytes_per_s(self.size_bytes, self.timing.time_ns)

    @property
    def slow_bytes_per_s(self) -> int | None:
        """What nine measurements in ten reach, of rounds in a usual one; None: not measured."""
        return None if self.timing is None else bytes_per_s(self.size_bytes, self.timing.p90_ns)


@dataclass(frozen=True, kw_only=True)
class HostFigures:
    """What the host's memory does without a GPU.

    Attributes:
        copies: Copies within it, by size.
        first_touch: Writing one byte to each page of fresh memory.
        page_bytes: The size of a page.
    """

    copies: tuple[Sample, ...]
    first_touch: Sample
    page_bytes: int


@dataclass(frozen=True, kw_only=True)
class CopyPoint:
    """Copies of one size.

    Attributes:
        size_bytes: The size.
        latency: From the call to its end, as the host sees one copy.
        in_stream: One of many that follow each other on the GPU, as events see it.
    """

    size_bytes: int
    latency: Timing
    in_stream: Timing

    @property
    def bytes_per_s(self) -> int:
        """How fast copies that follow each other are."""
        return bytes_per_s(self.size_bytes, self.in_stream.time_ns)


@dataclass(frozen=True, kw_only=True)
class CopyCurve:
    """Copies between host and GPU by size.

    Attributes:
        kind: The host's memory.
        direction: Which way.
        points: By size; empty: not measured.
        half_speed_bytes: The size at which copies reach half of their largest speed.
        why: Why there are no points.
    """

    kind: CopyKind
    direction: Direction
    points: tuple[CopyPoint, ...] = ()
    half_speed_bytes: int | None = None
    why: str | None = None

    @property
    def top_bytes_per_s(self) -> int | None:
        """The largest speed; None: not measured."""
        return max((point.bytes_per_s for point in self.points), default=None)


@dataclass(frozen=True, kw_only=True)
class KindFigures:
    """What one kind of memory gives to a GPU that reads and writes a block of it.

    Memory that a kernel cannot reach is copied: its reads are copies to the GPU, its writes copies back.

    Attributes:
        kind: The kind.
        first_read: The first read by the GPU after the host wrote the block; for the GPU's own memory, the first of all.
        read: Later reads.
        write: Writes.
        why: Why nothing was measured.
    """

    kind: Kind
    first_read: Sample | None = None
    read: Sample | None = None
    write: Sample | None = None
    why: str | None = None

    @property
    def samples(self) -> tuple[Sample | None, Sample | None, Sample | None]:
        """First reads, later reads, and writes."""
        return self.first_read, self.read, self.write


@dataclass(frozen=True, kw_only=True)
class AllocationPoint:
    """Allocating and freeing one size, as the calls keep the host busy."""

    size_bytes: int
    allocate: Timing
    free: Timing


@dataclass(frozen=True, kw_only=True)
class AllocationCurve:
    """One way to get memory, by size.

    Attributes:
        way: The way.
        temperature: "cold": it has to ask the driver for memory, and its free gives it back; a pool's waits for the stream and
            trims. "warm": it reuses what it kept.
        points: By size; empty: not measured.
        why: Why there are none.
    """

    way: Way
    temperature: Temperature
    points: tuple[AllocationPoint, ...] = ()
    why: str | None = None


@dataclass(frozen=True, kw_only=True)
class ReachPoint:
    """Accesses, one a stride, over a footprint.

    Attributes:
        footprint_bytes: The range that the accesses are spread over.
        num_accesses: How many were timed together; of a chain, whole laps of places that were all visited before.
        timing: How long all of them took.
    """

    footprint_bytes: int
    num_accesses: int
    timing: Timing

    @property
    def step_ns(self) -> float:
        """What one access cost."""
        return self.timing.time_ns / self.num_accesses


@dataclass(frozen=True, kw_only=True)
class ReachCurve:
    """What an access costs as the footprint grows.

    Attributes:
        pattern: "chain": each address is read from memory, one after the other. "gather": all of the GPU at once.
        stride_bytes: There is one place to read in each of these.
        points: By footprint; empty: not measured.
        knee_bytes: The footprint at which an access costs 1.5 times the least; None: none that was tried.
        why: Why there are no points.
    """

    pattern: Pattern
    stride_bytes: int
    points: tuple[ReachPoint, ...] = ()
    knee_bytes: int | None = None
    why: str | None = None


@dataclass(frozen=True, kw_only=True)
class ProbeResult:
    """All that a probe measured; printed, it begins with the answer.

    Attributes:
        machine: What was measured.
        host: The host alone.
        copies: Between host and GPU.
        kinds: Each kind of memory.
        allocations: Each way to get some.
        device: The GPU's own memory: read, write, copy (bytes both read and written), l2_read.
        strides: Reads of one word in each stride; the name is the stride in bytes, the size the words.
        reach: Accesses over growing footprints.
        tlbs: The models that fit those: of gathers, of chains, or none.
        took_ms: How long the probe took.
        why_no_gpu: Why only the host was measured; None: a GPU was.
    """

    machine: Machine
    host: HostFigures
    copies: tuple[CopyCurve, ...] = ()
    kinds: tuple[KindFigures, ...] = ()
    allocations: tuple[AllocationCurve, ...] = ()
    device: tuple[Sample, ...] = ()
    strides: tuple[Sample, ...] = ()
    reach: tuple[ReachCurve, ...] = ()
    tlbs: tuple[Tlb, ...] = ()
    took_ms: int = 0
    why_no_gpu: str | None = None

    def copy_curve(self, kind: CopyKind, direction: Direction) -> CopyCurve | None:
        """Return the copies of one kind; None: they were not measured."""
        return next((one for one in self.copies if (one.kind, one.direction) == (kind, direction) and one.points), None)

    def kind(self, kind: Kind) -> KindFigures | None:
        """Return one kind of memory; None: it was not measured."""
        return next((one for one in self.kinds if one.kind == kind and one.why is None), None)

    def allocation(self, way: Way, temperature: Temperature) -> AllocationCurve | None:
        """Return one way to get memory; None: it was not measured."""
        wanted = way, temperature
        return next((one for one in self.allocations if (one.way, one.temperature) == wanted and one.points), None)

    def device_rate(self, name: str) -> int | None:
        """Return a speed of the GPU's own memory in bytes a second; None: it was not measured."""
        return next((one.bytes_per_s for one in self.device if one.name == name), None)

    def tlb(self, pattern: Pattern) -> Tlb | None:
        """Return the model of a pattern; None: its curves show none."""
        return next((one for one in self.tlbs if one.pattern == pattern), None)

    def to_json(self) -> dict[str, Any]:
        """Return it as plain data with stable keys, the advice too."""
        from ullage.runtime.probe.advice import advise
        from ullage.runtime.probe.plain import plain

        return {"format": FORMAT, **plain(self), "advice": [plain(one) for one in advise(self)]}

    def __str__(self) -> str:
        from ullage.runtime.probe.text import probe_text

        return probe_text(self)
