"""Measures a machine's memory: the host's, the GPU's, and what lies between."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from ullage.errors import DeviceError, RuntimeMemoryError
from ullage.runtime.host_memory import free_host_bytes
from ullage.runtime.probe.allocation import measure_allocations
from ullage.runtime.probe.bandwidth import measure_bandwidth, measure_strides
from ullage.runtime.probe.core import CoreWatch
from ullage.runtime.probe.gpu import reason_of
from ullage.runtime.probe.host import measure_host
from ullage.runtime.probe.identity import NoSuchGpuError, identify
from ullage.runtime.probe.kinds import measure_resident_kinds
from ullage.runtime.probe.reach import measure_reach, tlbs_of
from ullage.runtime.probe.result import HostFigures, Machine, ProbeResult
from ullage.runtime.probe.rounds import measure_rounds
from ullage.runtime.probe.sizes import sizes_for
from ullage.runtime.probe.store import keep_probe

if TYPE_CHECKING:
    from collections.abc import Callable

    from ullage.runtime.probe.gpu import Gpu
    from ullage.runtime.probe.identity import Identity


def probe(
    *, device: int = 0, version: str = "", keep: bool = True, progress: Callable[[str], None] | None = None
) -> ProbeResult:
    """Measure the host and a GPU, in less than a minute.

    No setting of the GPU is changed, and all memory is given back. What fails says why, and leaves the rest. Other work on
    the GPU or the host meanwhile makes the figures those of what is left.

    Args:
        device: The GPU's number among those that the process sees.
        version: ullage's, for the record.
        keep: Whether the result is kept for `known_probe`.
        progress: Told what is measured next.

    Returns:
        The result; where there is no GPU that torch can use, of the host alone.

    Raises:
        NoSuchGpuError: The driver offers GPUs, but not this one; nothing was measured.

    Cost: waits for the GPU, empties PyTorch's cache, and takes for some seconds up to half of the GPU's free memory; nine
        tenths of it where nothing else is there.
    """
    start = time.monotonic()
    say = progress or (lambda _: None)
    found, why = _identified(device)
    say("the host's memory")
    host = measure_host()
    result = ProbeResult(machine=Machine(), host=host, why_no_gpu=why)
    if found is not None:
        try:
            from ullage.runtime.probe.cuda_gpu import CudaGpu

            say("starting torch")
            with CudaGpu(found) as gpu:
                result = measure_gpu(gpu, host, say)
        except RuntimeError as error:  # ullage's DeviceError is one too
            result = replace(result, why_no_gpu=reason_of(error))
    date = datetime.now(UTC).isoformat(timespec="seconds")
    result = replace(
        result,
        machine=replace(result.machine, ullage=version, date=date),
        took_ms=round(1000 * (time.monotonic() - start)),
    )
    if keep:
        keep_probe(result)
    return result


def _identified(device: int) -> tuple[Identity | None, str | None]:
    """Return the GPU, or why there is none."""
    try:
        return identify(device), None
    except NoSuchGpuError:
        raise
    except DeviceError as error:
        return None, reason_of(error)


def _host_bytes() -> int:
    """Return what the host has free, or 0 where it does not say."""
    try:
        return free_host_bytes()
    except RuntimeMemoryError:
        return 0


def measure_gpu(gpu: Gpu, host: HostFigures, say: Callable[[str], None]) -> ProbeResult:
    """Measure a GPU, part by part.

    Args:
        gpu: The GPU.
        host: What was measured of the host.
        say: Told what is measured next.

    Raises:
        DeviceError: Too little of it is free.
    """
    sizes = sizes_for(gpu.free_bytes(), gpu.machine.l2_bytes, gpu.machine.total_bytes, _host_bytes())
    gpu.warm_up()
    say("the GPU's own memory")
    device = measure_bandwidth(gpu, sizes.device, sizes.cached)
    strides = measure_strides(gpu, sizes.device)
    resident = measure_resident_kinds(gpu, sizes.device)
    watch = CoreWatch(gpu.loop_ns)
    copies, kinds = measure_rounds(gpu, sizes, watch, say)
    say("allocations")
    allocations = measure_allocations(gpu, sizes, watch)
    say("page reach")
    reach = measure_reach(gpu, sizes.reach)
    return ProbeResult(
        machine=gpu.machine,
        host=host,
        copies=copies,
        kinds=(*kinds, *resident),
        allocations=allocations,
        device=device,
        strides=strides,
        reach=reach,
        tlbs=tlbs_of(reach),
    )
