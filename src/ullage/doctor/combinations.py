"""Checks of settings that need, or do not bear, something else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ullage.doctor.advice import Advice
from ullage.units import format_bytes

if TYPE_CHECKING:
    from ullage.doctor.setup import Setup

_MIX_FIXED = (2, 3)  # pytorch#120022, merged in February 2024
_NATIVE_ONLY = (
    "max_split_size_mb",
    "max_non_split_rounding_mb",
    "roundup_power2_divisions",
    "garbage_collection_threshold",
    "expandable_segments",
    "large_segment_size_mb",
)


def check_collection_without_cap(setup: Setup) -> list[Advice]:
    """Report a garbage collection threshold without a memory fraction: there is nothing that it is a share of."""
    threshold = setup.values.get("garbage_collection_threshold", "")
    if not threshold and setup.recorded is not None:
        threshold = str(setup.recorded.settings.get("garbage_collection_threshold", 0.0) or "")
    if not threshold or setup.values.get("per_process_memory_fraction", "1") not in ("1", "1.0"):
        return []
    return [
        Advice(
            check="collection_without_cap",
            severity="info" if setup.recorded is not None else "warning",
            title=f"garbage_collection_threshold:{threshold} does nothing without a memory fraction",
            why="The threshold is a share of the process's cap, and without a cap torch never looks at it: this does "
            "nothing unless the program called torch.cuda.set_per_process_memory_fraction, which neither the "
            "environment nor a snapshot shows.",
            next_step="Call torch.cuda.set_per_process_memory_fraction(0.95) at the start (from torch 2.10 on: "
            "per_process_memory_fraction:0.95 in the same string), or take the threshold out.",
            source="malloc in c10/cuda/CUDACachingAllocator.cpp: garbage collection needs set_fraction",
        )
    ]


def check_split_with_expandable(setup: Setup) -> list[Advice]:
    """Report max_split_size_mb together with expandable segments."""
    if not (setup.has_max_split and setup.is_on("expandable_segments")):
        return []
    crashes = setup.torch is not None and setup.torch.may_be_before(_MIX_FIXED)
    now = (
        "torch before 2.3 stops at an internal assert."
        if crashes
        else "An expandable segment is as large as the GPU, so the limit has no meaning in it; reserved memory was seen to "
        "grow without end (torch 2.12), and on ROCm live data to be zeroed."
    )
    return [
        Advice(
            check="split_with_expandable",
            severity="error" if crashes else "warning",
            title="max_split_size_mb and expandable_segments do not go together",
            why=now,
            next_step="Keep expandable_segments:True and take max_split_size_mb out.",
            source="pytorch#119452, pytorch#123548, ROCm#6603",
        )
    ]


def check_memory_saver(setup: Setup) -> list[Advice]:
    """Report expandable segments where torch_memory_saver is installed."""
    if "torch_memory_saver" not in setup.packages or not setup.is_on("expandable_segments"):
        return []
    return [
        Advice(
            check="memory_saver",
            severity="warning",
            title="torch_memory_saver does not work with expandable_segments",
            why="It is installed here. It replaces cudaMalloc, which expandable segments do not call: memory cannot be "
            "paused, and newer versions refuse to start.",
            next_step="Programs that use it (SGLang, slime, verl) need expandable_segments:False.",
            source="torch_memory_saver#24",
        )
    ]


def check_fixed_pools(setup: Setup) -> list[Advice]:
    """Report private pools that expandable segments did not reach."""
    if setup.recorded is None or not setup.recorded.fixed_pools:
        return []
    pools = setup.recorded.fixed_pools
    named = ", ".join(f"{one.pool} on GPU {one.device}" for one in pools[:4]) + (", …" if len(pools) > 4 else "")
    whole = sum(one.reserved_bytes for one in pools)
    return [
        Advice(
            check="fixed_pools",
            severity="info",
            title=f"expandable_segments did not reach {format_bytes(whole)} in private pools",
            why=f"Segments of fixed size were made there while it was on: {named}. A MemPool with an allocator of its own "
            "(a CUDAPluggableAllocator, vLLM's sleep mode) never gets expandable segments, and older versions leave "
            "graphs' pools out too.",
            next_step="Count on the default pool only, or use a MemPool without its own allocator.",
            source="pytorch#147851, pytorch#169491, pytorch#128068",
        )
    ]


def check_backend(setup: Setup) -> list[Advice]:
    """Report the driver's own allocator: it records no history and takes none of the other settings."""
    backend = setup.values.get("backend", "native")
    if backend not in ("cudaMallocAsync", "hipMallocAsync"):
        return []
    ignored = [key for key in setup.values if key in _NATIVE_ONLY]
    also = f" It also ignores {', '.join(ignored)}." if ignored else ""
    return [
        Advice(
            check="backend",
            severity="warning" if ignored else "info",
            title=f"backend:{backend} records no history" + (f" and ignores {', '.join(ignored)}" if ignored else ""),
            why="The driver keeps the pool, so torch sees no segments and no blocks: a snapshot stays empty." + also,
            next_step="Use the native backend to record"
            + (", and take the settings out that it ignores." if ignored else "; nothing else needs to change."),
            source="c10/cuda/CUDAMallocAsyncAllocator.cpp, c10/cuda/CUDAAllocatorConfig.cpp",
        )
    ]
