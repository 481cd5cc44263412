"""Checks that need a recording: what the settings cost there, and whether they were in force."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ullage.doctor.advice import Advice
from ullage.units import format_bytes, format_share, plural

if TYPE_CHECKING:
    from ullage.doctor.setup import Setup

_WORTH_SAYING, _WORTH_A_WARNING = 0.01, 0.05  # of what would be allocated without
_NATIVE_STACK = 4  # C++ frames in an average stack; stacks="python" has none


def check_roundup_cost(setup: Setup) -> list[Advice]:
    """Report what roundup_power2_divisions adds to the blocks that were live at the peak."""
    found = []
    for cost in setup.recorded.roundup if setup.recorded is not None else ():
        more = cost.rounded_bytes - cost.plain_bytes
        if more < _WORTH_SAYING * cost.plain_bytes or not more:
            continue
        found.append(
            Advice(
                check="roundup_cost",
                severity="warning" if more >= _WORTH_A_WARNING * cost.plain_bytes else "info",
                title=f"roundup_power2_divisions adds {format_bytes(more)} ({format_share(more, cost.plain_bytes)}) to the "
                f"peak of GPU {cost.device}",
                why=f"The blocks that were live there are rounded up to {format_bytes(cost.rounded_bytes)}; without it they "
                f"would take {format_bytes(cost.plain_bytes)}. It pays only where it saves more in fragmentation.",
                next_step="ullage replay FILE --conf '' shows what reserved would be without it; ullage tune FILE tries "
                "other numbers.",
                source="round_size in c10/cuda/CUDACachingAllocator.cpp, run over the blocks of this recording",
            )
        )
    return found


def check_native_stacks(setup: Setup) -> list[Advice]:
    """Report stacks with C++ frames: they cost time and room, and name no line of the user's."""
    if setup.recorded is None or setup.recorded.native_frames < _NATIVE_STACK:
        return []
    return [
        Advice(
            check="native_stacks",
            severity="info",
            title=f"Stacks were recorded with C++ frames: {setup.recorded.native_frames:.0f} in each of "
            f"{plural(setup.recorded.num_events, 'event')}",
            why='stacks="all" unwinds C++ too, about 50 ns a frame, and _dump_snapshot looks up the name of each address, '
            "which makes dumps slow. ullage needs the Python frames only.",
            next_step='Record with torch.cuda.memory._record_memory_history(stacks="python").',
            source="_record_memory_history in torch/cuda/memory.py, torch 2.13",
        )
    ]


def check_changed_settings(setup: Setup) -> list[Advice]:
    """Report settings that changed during the run: a snapshot holds only the last ones."""
    if setup.recorded is None:
        return []
    left_over = setup.recorded.settings.get("expandable_segments") is True and "expandable_segments" not in setup.values
    if not setup.recorded.num_conflicts and not left_over:
        return []
    contradict = (
        f"{plural(setup.recorded.num_conflicts, 'event')} of {setup.recorded.num_events:,} cannot have happened "
    )
    why = f"{contradict}under the settings in the file; else it is damaged, or of another allocator. "
    if not setup.recorded.num_conflicts:
        why = "expandable_segments is on, and the last string that was set does not name it. "
    return [
        Advice(
            check="changed_settings",
            severity="warning" if setup.recorded.num_conflicts else "info",
            title="The settings changed during the run, it seems",
            why=f"{why}A new string resets max_split_size_mb, roundup_power2_divisions and garbage_collection_threshold, and "
            "leaves expandable_segments as it was.",
            next_step="Set the variable once, before the program starts; look for _set_allocator_settings in it and in what "
            "it imports.",
            source="parseArgs in c10/cuda/CUDAAllocatorConfig.cpp; docs/reconstruction.md",
        )
    ]


def check_untaken_expandable(setup: Setup) -> list[Advice]:
    """Report expandable segments that were asked for and are off."""
    if setup.recorded is None or setup.values.get("expandable_segments") != "True":
        return []
    if setup.recorded.settings.get("expandable_segments") is not False:
        return []
    return [
        Advice(
            check="untaken_expandable",
            severity="warning",
            title="expandable_segments:True was set and not taken",
            why="The string in the file asks for it, and the allocator's own settings say that it was off: torch 2.9.1 "
            "ignores it in PYTORCH_ALLOC_CONF, and builds without the driver's interface (Windows, some others) have none.",
            next_step="Use PYTORCH_CUDA_ALLOC_CONF; look for 'expandable_segments not supported' in the program's output.",
            source="pytorch#183387, pytorch#122057",
        )
    ]
