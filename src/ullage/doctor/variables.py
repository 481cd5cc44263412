"""Checks of the environment variables: which one torch reads, and which one it passes over."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ullage.doctor.advice import Advice

if TYPE_CHECKING:
    from ullage.doctor.setup import Setup

_IGNORES_EXPANDABLE = (2, 9, 1)


def check_several_variables(setup: Setup) -> list[Advice]:
    """Report a variable that loses to another one that says something else."""
    losers = {name: conf for name, conf in setup.shadowed.items() if conf != setup.conf}
    if not losers:
        return []
    lost = ", ".join(f"{name}={conf}" for name, conf in losers.items())
    return [
        Advice(
            check="several_variables",
            severity="warning",
            title=f"{setup.variable} wins: {' and '.join(losers)} is passed over",
            why=f"torch takes the first that is set of PYTORCH_CUDA_ALLOC_CONF, PYTORCH_HIP_ALLOC_CONF and "
            f"PYTORCH_ALLOC_CONF, and does not join them. Lost: {lost}. For the settings that "
            "all kinds of device share, torch 2.13 documents the opposite order: rely on neither.",
            next_step="Set one of them only.",
            source="instance() in c10/cuda/CUDAAllocatorConfig.h; the comment in c10/core/AllocatorConfig.h, torch 2.13",
        )
    ]


def check_ignored_variable(setup: Setup) -> list[Advice]:
    """Report expandable segments that torch 2.9.1 does not take from PYTORCH_ALLOC_CONF."""
    is_ignored = setup.torch is not None and setup.torch.may_be(_IGNORES_EXPANDABLE)
    if setup.variable != "PYTORCH_ALLOC_CONF" or not is_ignored or not setup.is_on("expandable_segments"):
        return []
    return [
        Advice(
            check="ignored_variable",
            severity="warning",
            title="torch 2.9.1 silently ignores expandable_segments in PYTORCH_ALLOC_CONF",
            why="Only the older name PYTORCH_CUDA_ALLOC_CONF turns it on there.",
            next_step=f"Set PYTORCH_CUDA_ALLOC_CONF={setup.conf}, or update torch to 2.11.",
            source="pytorch#183387",
        )
    ]


def check_no_caching(setup: Setup) -> list[Advice]:
    """Report that the caching allocator is off."""
    if not setup.no_caching:
        return []
    lost = f" {setup.variable}={setup.conf} does nothing either." if setup.conf else ""
    return [
        Advice(
            check="no_caching",
            severity="warning",
            title=f"{setup.no_caching} turns the caching allocator off",
            why="Each request goes to the driver, which is slow, and nothing is recorded: a snapshot stays empty. It is "
            f"off whatever the variable's value is.{lost}",
            next_step=f"unset {setup.no_caching}, other than under compute-sanitizer.",
            source="forceUncachedAllocator in c10/cuda/CUDACachingAllocator.cpp",
        )
    ]
