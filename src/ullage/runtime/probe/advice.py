"""Which memory to use for what, and why: a pure function of what was measured."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ullage.units import MIB, format_bytes
from ullage.units import format_rate as rate
from ullage.units import format_step_ns as step
from ullage.units import format_time_ns as time

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ullage.runtime.probe.result import (
        AllocationPoint,
        CopyCurve,
        Kind,
        ProbeResult,
        Sample,
        Temperature,
        Way,
    )

_NEAR = 0.9  # of a speed: a way that is simpler may be this much slower
_ANOTHER_LEVEL = 2  # times the reach of the one before
_MOST_READS = 1000
_USUAL_BYTES = 64 * MIB  # of an allocation


@dataclass(frozen=True, kw_only=True)
class Advice:
    """What to do in one case.

    Attributes:
        topic: The case: small_copies, large_copies, read_once, used_again, larger_than_gpu, allocation, random_access,
            from_managed.
        do: What to do.
        because: The figures that say so.
    """

    topic: str
    do: str
    because: str


def advise(result: ProbeResult) -> tuple[Advice, ...]:
    """Return what the figures say, a case each; cases whose figures are missing are left out.

    Args:
        result: What was measured.
    """
    parts = (_small_copies, _large_copies, _read_once, _used_again, _larger_than_gpu, _allocation, _random_access)
    return tuple(one for part in parts for one in part(result)) + tuple(_from_managed(result))


def _small_copies(result: ProbeResult) -> Iterator[Advice]:
    pinned = result.copy_curve("pinned", "to_gpu")
    if pinned is None or pinned.half_speed_bytes is None:
        return
    latency = time(pinned.points[0].latency.time_ns)
    half = format_bytes(pinned.half_speed_bytes)
    yield Advice(
        topic="small_copies",
        do=f"Pack copies below {half} into one pinned buffer, and copy that.",
        because=f"A copy of {format_bytes(pinned.points[0].size_bytes)} takes {latency} from call to end, and below {half} "
        f"less than half of {rate(pinned.top_bytes_per_s)} is reached.",
    )


def _large_copies(result: ProbeResult) -> Iterator[Advice]:
    pinned, pageable = result.copy_curve("pinned", "to_gpu"), result.copy_curve("pageable", "to_gpu")
    if pinned is None or pageable is None:
        return
    fast, slow = pinned.points[-1], pageable.points[-1]
    speeds = f"{format_bytes(fast.size_bytes)}: pinned {rate(fast.bytes_per_s)}, pageable {rate(slow.bytes_per_s)}"
    if slow.bytes_per_s >= _NEAR * fast.bytes_per_s:
        yield Advice(
            topic="large_copies", do="Copy from memory as it is: pinning it gains nothing here.", because=f"{speeds}."
        )
        return
    costs = [one for one in _pinning_costs(result, pinned, pageable) if one.saved_ns > 0]
    if not costs:
        return
    yield Advice(topic="large_copies", do=_pinned_how(costs), because=costs[-1].because)


@dataclass(frozen=True, kw_only=True)
class _PinningCost:
    """What a new pinned buffer costs, what touching as many fresh pageable pages does, and what a copy from it saves."""

    size_bytes: int
    pinning_ns: int
    touching_ns: int
    saved_ns: int

    @property
    def num_copies(self) -> int:
        """How many copies pay for the buffer; 0: it is cheaper than pageable memory."""
        return max(math.ceil((self.pinning_ns - self.touching_ns) / self.saved_ns), 0)

    @property
    def because(self) -> str:
        return (
            f"{format_bytes(self.size_bytes)}: a new pinned buffer, and its free, cost {time(self.pinning_ns)}, touching as "
            f"many fresh pageable pages {time(self.touching_ns)}; a copy saves {time(self.saved_ns)}."
        )


def _pinning_costs(result: ProbeResult, pinned: CopyCurve, pageable: CopyCurve) -> list[_PinningCost]:
    """Return the costs at each size that copies and allocations were both measured at, ascending."""
    curve, touch = result.allocation("pinned", "cold"), result.host.first_touch
    if curve is None or touch.timing is None:
        return []
    by_size = {one.size_bytes: one.allocate.time_ns + one.free.time_ns for one in curve.points}
    slow_ns = {one.size_bytes: one.in_stream.time_ns for one in pageable.points}
    return [
        _PinningCost(
            size_bytes=one.size_bytes,
            pinning_ns=by_size[one.size_bytes],
            touching_ns=touch.timing.time_ns * one.size_bytes // touch.size_bytes,
            saved_ns=slow_ns[one.size_bytes] - one.in_stream.time_ns,
        )
        for one in pinned.points
        if one.size_bytes in by_size.keys() & slow_ns.keys()
    ]


def _pinned_how(costs: Sequence[_PinningCost]) -> str:
    largest = costs[-1]
    if largest.num_copies == 0:
        first = next(index for index in range(len(costs)) if not any(one.num_copies for one in costs[index:]))
        others = f", from {format_bytes(costs[first].size_bytes)} on; keep smaller ones" if first else ""
        return f"Pin fresh buffers even for one copy{others}."
    when = "the first copy" if largest.num_copies == 1 else f"about {largest.num_copies} copies"
    others = ", smaller ones later" if costs[0].num_copies > largest.num_copies else ""
    return (
        f"Copy through a pinned buffer that is kept; a new one of {format_bytes(largest.size_bytes)} pays from {when} on"
        f"{others}."
    )


def _read_once(result: ProbeResult) -> Iterator[Advice]:
    copied, mapped, device = _copy_device_mapped(result)
    if copied is None or mapped is None or device is None:
        return
    by_copy = round(1 / (1 / copied + 1 / device))
    figures = f"A kernel reads host memory in place at {rate(mapped)}; copied first, at {rate(by_copy)}."
    if mapped >= _NEAR * by_copy:
        do = "Let the kernel read pinned memory in place (zero-copy): no copy, no second buffer."
        if result.machine.shares_page_tables:
            do = "Let the kernel read host memory in place: no copy, no second buffer."
    else:
        do = "Copy it to the GPU from pinned memory, in pieces while the kernel works on the last one."
    yield Advice(topic="read_once", do=do, because=figures)


def _used_again(result: ProbeResult) -> Iterator[Advice]:
    copied, mapped, device = _copy_device_mapped(result)
    if copied is None or mapped is None or device is None:
        return
    figures = f"Reads: {rate(device)} on the GPU, {rate(mapped)} in place."
    if mapped >= _NEAR * device:
        yield Advice(topic="used_again", do="Leave it where it is: reads are as fast there.", because=figures)
        return
    num_reads = max(math.ceil((1 / copied) / (1 / mapped - 1 / device)), 1)
    if num_reads > _MOST_READS:
        do = "Leave it where it is."
    else:
        do = (
            f"Copy what is read {num_reads} times or more to the GPU's memory."
            if num_reads > 1
            else "Copy it to the GPU."
        )
    yield Advice(topic="used_again", do=do, because=f"{figures} The copy runs at {rate(copied)}.")


def _larger_than_gpu(result: ProbeResult) -> Iterator[Advice]:
    copied, mapped, _ = _copy_device_mapped(result)
    prefetched, faulted = _rate(result, "managed_prefetched"), _rate(result, "managed_by_fault")
    ways = [
        ("copies from pinned memory through two buffers", copied),
        ("reading pinned memory in place", mapped),
        ("managed memory, prefetched", prefetched),
        ("managed memory by fault", faulted),
    ]
    known = [(name, speed) for name, speed in ways if speed is not None]
    if copied is None or len(known) < 2:
        return
    best = max(speed for _, speed in known)
    # A kernel reads a weight more than once: over a link that nothing caches, a way in place has to be faster by itself.
    needed = _NEAR * best if result.machine.shares_page_tables else copied / _NEAR
    if mapped is not None and mapped >= max(needed, _NEAR * best):
        do = "Leave weights in host memory and read them in place."
    elif copied >= _NEAR * best:
        do = "Stream weights from pinned memory by copies, through two buffers on a stream of their own."
    else:
        do = f"Use {max(known, key=lambda one: one[1])[0]}."
    if prefetched is None and not result.machine.has_concurrent_managed:
        do += " Managed memory cannot be larger than the GPU, nor prefetched, here."
    figures = "; ".join(f"{name} {rate(speed)}" for name, speed in known)
    yield Advice(topic="larger_than_gpu", do=do, because=f"{figures[0].upper()}{figures[1:]}.")


def _allocation(result: ProbeResult) -> Iterator[Advice]:
    named: list[tuple[str, Way, Temperature]] = [
        ("PyTorch's cache", "torch", "warm"),
        ("a warm stream-ordered pool", "pool", "warm"),
        ("one that gives all back", "pool", "cold"),
        ("cudaMalloc", "cuda_malloc", "cold"),
    ]
    size = _usual_size(result, [(way, temperature) for _, way, temperature in named])
    costs = [
        (name, point.allocate.time_ns + point.free.time_ns)
        for name, way, temperature in named
        if (point := _at(result, way, temperature, size)) is not None
    ]
    if len(costs) < 2:
        return
    cheapest = min(cost for _, cost in costs)
    figures = ", ".join(f"{name} {time(cost)}" for name, cost in costs)
    near = [name for name, cost in costs if cost <= 2 * cheapest]
    do = "Any allocator does: costs are alike."
    if len(near) < len(costs):
        do = f"Take short-lived memory from {' or '.join(near)}."
    yield Advice(topic="allocation", do=do, because=f"{format_bytes(size)}, allocated and freed: {figures}.")


def _random_access(result: ProbeResult) -> Iterator[Advice]:
    gather, chain = result.tlb("gather"), result.tlb("chain")
    first = gather or chain
    if first is None:
        return
    what = "an access of a full GPU" if first is gather else "one access after the other"
    yield Advice(
        topic="random_access",
        do=f"Keep what is read at random within {format_bytes(first.reach_bytes)}, or sort the accesses.",
        because=f"Within {format_bytes(first.reach_bytes)} {what} costs {step(first.hit_ps / 1000)}; beyond, each that misses "
        f"{step(first.miss_ps / 1000)} more ({first.num_entries:,} entries for pages of {format_bytes(first.page_bytes)}).",
    )
    if first is chain or chain is None or chain.reach_bytes < _ANOTHER_LEVEL * first.reach_bytes:
        return
    within = format_bytes(chain.reach_bytes)
    hit, miss = step(chain.hit_ps / 1000), step(chain.miss_ps / 1000)
    because = f"One access after the other costs {hit} within it, a miss {miss} more"
    costs = _gathered_beyond(result, chain.reach_bytes)
    if costs is not None:
        near, far, footprint = costs
        because += f"; of a full GPU, {step(near)} within it, {step(far)} over {format_bytes(footprint)}"
    yield Advice(
        topic="random_access",
        do=f"Above all within {within}: there another level of the TLB ends.",
        because=f"{because}.",
    )


def _gathered_beyond(result: ProbeResult, reach_bytes: int) -> tuple[float, float, int] | None:
    """Return what an access of a full GPU costs up to a reach and over the largest footprint, in nanoseconds, and that."""
    curves = [one.points for one in result.reach if one.pattern == "gather" and one.points]
    points = max(curves, key=lambda one: one[-1].footprint_bytes, default=())
    near = [one.step_ns for one in points if one.footprint_bytes <= reach_bytes]
    if not near or points[-1].footprint_bytes <= reach_bytes:
        return None
    return max(near), points[-1].step_ns, points[-1].footprint_bytes


def _from_managed(result: ProbeResult) -> Iterator[Advice]:
    """Say how a program leaves managed memory, or why it need not."""
    copied = _copied_rate(result)
    faulted = _first(result, "managed_by_fault")
    if copied is None or faulted is None or faulted.bytes_per_s is None:
        return
    if faulted.bytes_per_s >= _NEAR * copied:
        yield Advice(
            topic="from_managed",
            do="Stay with managed memory: its faults cost nothing here.",
            because=f"First read after a host write {rate(faulted.bytes_per_s)}, a pinned copy {rate(copied)}.",
        )
        return
    yield Advice(
        topic="from_managed",
        do="Host writes, then a kernel: write into a pinned buffer, then cudaMemcpyAsync on the kernel's stream.",
        because=f"By fault {rate(faulted.bytes_per_s)}, by copy {rate(copied)}.",
    )
    prefetched = _rate(result, "managed_prefetched")
    if prefetched is not None:
        yield Advice(
            topic="from_managed",
            do="cudaMemPrefetchAsync to the GPU: the same copy; where managed memory has to stay, prefetch before each use.",
            because=f"Prefetched {rate(prefetched)}, by copy {rate(copied)}.",
        )
    back = result.copy_curve("pinned", "to_host")
    if back is not None:
        yield Advice(
            topic="from_managed",
            do="The host reads results: cudaMemcpyAsync into a pinned buffer, then wait for an event after it.",
            because=f"By copy {rate(back.top_bytes_per_s)}; the host takes managed pages back one fault at a time.",
        )
    yield from _managed_calls(result)


def _managed_calls(result: ProbeResult) -> Iterator[Advice]:
    size = _usual_size(result, [("pool", "warm"), ("pool", "cold"), ("managed", "cold")])
    warm, cold = _at(result, "pool", "warm", size), _at(result, "pool", "cold", size)
    managed = _at(result, "managed", "cold", size)
    if warm is not None and managed is not None:
        yield Advice(
            topic="from_managed",
            do="cudaMallocManaged: cudaMallocAsync on the stream that uses it; cudaFree: cudaFreeAsync after the last use.",
            because=f"{format_bytes(size)}: {time(warm.allocate.time_ns)} and {time(warm.free.time_ns)}, managed "
            f"{time(managed.allocate.time_ns)} and {time(managed.free.time_ns)}; cudaFree also waits for the GPU.",
        )
    if warm is not None and cold is not None and cold.allocate.time_ns > 2 * warm.allocate.time_ns:
        yield Advice(
            topic="from_managed",
            do="Raise the pool's cudaMemPoolAttrReleaseThreshold once, or each synchronisation gives its memory back.",
            because=f"An allocation of {format_bytes(size)}: kept {time(warm.allocate.time_ns)}, "
            f"given back {time(cold.allocate.time_ns)}.",
        )


def _copy_device_mapped(result: ProbeResult) -> tuple[int | None, int | None, int | None]:
    """Return the speeds of a pinned copy to the GPU, of reads of mapped memory, and of the GPU's own."""
    return _copied_rate(result), _rate(result, "mapped"), result.device_rate("read")


def _copied_rate(result: ProbeResult) -> int | None:
    curve: CopyCurve | None = result.copy_curve("pinned", "to_gpu")
    return None if curve is None else curve.top_bytes_per_s


def _first(result: ProbeResult, kind: Kind) -> Sample | None:
    figures = result.kind(kind)
    return None if figures is None else figures.first_read


def _rate(result: ProbeResult, kind: Kind) -> int | None:
    """Return the speed of the read after the host wrote; of mapped memory, which does not move, of all."""
    figures = result.kind(kind)
    sample = None if figures is None else (figures.read if kind == "mapped" else figures.first_read)
    return None if sample is None else sample.bytes_per_s


def _usual_size(result: ProbeResult, ways: Sequence[tuple[Way, Temperature]]) -> int:
    """Return the largest size up to 64 MiB that each of these ways was measured at, of those that were."""
    curves = [curve for way, temperature in ways if (curve := result.allocation(way, temperature)) is not None]
    sizes = [{point.size_bytes for point in curve.points if point.size_bytes <= _USUAL_BYTES} for curve in curves]
    return max(set.intersection(*sizes), default=0) if sizes else 0


def _at(result: ProbeResult, way: Way, temperature: Temperature, size: int) -> AllocationPoint | None:
    """Return what a size cost; None: it was not measured."""
    curve = result.allocation(way, temperature)
    return None if curve is None else next((one for one in curve.points if one.size_bytes == size), None)
