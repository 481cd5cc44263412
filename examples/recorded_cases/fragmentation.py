"""Reserved memory that cannot be used: survivors, stranded tails, retries, and what the settings do about it."""

from __future__ import annotations

import contextlib
import random

import torch

from recorded_cases.registry import GIB, MIB, Program, buffer, case, churn, limit_memory


@case()
def survivors() -> Program:
    limit_memory(16 * GIB)
    big = buffer(11 * GIB)
    del big
    keep, message = [buffer(16 * MIB) for _ in range(40)], None
    try:
        buffer(11 * GIB)
    except torch.cuda.OutOfMemoryError as error:
        message = str(error)
    yield {"num_kept": len(keep), "oom_message": message}


@case(variants={"split": "max_split_size_mb:20", "exp": "expandable_segments:True"})
def stranded_weights() -> Program:
    keep = []
    for _ in range(16):
        t = buffer(530 * MIB)
        del t
        keep.append(buffer(270 * MIB))
    yield None


@case()
def stranded_weights_first() -> Program:
    keep = [buffer(270 * MIB) for _ in range(16)]
    for _ in keep:
        t = buffer(530 * MIB)
        del t
    yield None


def growing_requests(order: list[int]) -> Program:
    torch.cuda.set_per_process_memory_fraction(0.1)
    cap, retries = torch.cuda.get_device_properties(0).total_memory * 0.1, []
    for i in order:
        x = buffer(cap * (0.55 + 0.005 * i))
        del x
        retries.append(torch.cuda.memory_stats()["num_alloc_retries"])
    yield {"retries_after_step": retries}


@case()
def retries() -> Program:
    yield from growing_requests(list(range(40)))


@case()
def retries_first() -> Program:
    yield from growing_requests(list(reversed(range(40))))


@case(
    conf="roundup_power2_divisions:[256:1,512:2,1024:4,>:8]",
    variants={"div4": "roundup_power2_divisions:4"},
)
def roundup() -> Program:
    rng = random.Random(2)
    yield from churn(300, 24, lambda: int(2 ** rng.uniform(6, 30.5)))


@case(conf="max_split_size_mb:64")
def split_mix() -> Program:
    rng = random.Random(3)
    yield from churn(400, 30, lambda: int(2 ** rng.uniform(16, 28.5)))


@case(conf="max_split_size_mb:64")
def split_mix_capped() -> Program:
    limit_memory(int(2.6 * GIB))
    rng = random.Random(3)
    yield from churn(400, 30, lambda: int(2 ** rng.uniform(16, 28.5)))


@case(conf="garbage_collection_threshold:0.6")
def gc_mix() -> Program:
    limit_memory(int(3.5 * GIB))
    rng = random.Random(4)
    yield from churn(400, 30, lambda: int(2 ** rng.uniform(16, 28.5)))


def set_allocator(settings: str) -> None:
    if hasattr(torch._C, "_accelerator_setAllocatorSettings"):
        torch._C._accelerator_setAllocatorSettings(settings)
    else:
        torch.cuda.memory._set_allocator_settings(settings)


def near_step(rng: random.Random, factor: int) -> int:
    """Return a size just below one of a few round ones, so that what is left of a reused block is often small."""
    if rng.random() < 0.3:
        return int(2 ** rng.uniform(9, 20))
    return factor * rng.choice([2, 4, 8, 12, 16, 24, 32]) * MIB - rng.randrange(900 * 1024)


@case()
def settings_change() -> Program:
    """The settings change twice on the way; a snapshot knows only the last ones."""
    rng, live = random.Random(11), {}
    for settings in ("", "max_split_size_mb:32", "roundup_power2_divisions:8"):
        if settings:
            set_allocator(settings)
        for _ in range(80):
            slot = rng.randrange(16)
            live.pop(slot, None)
            live[slot] = buffer(near_step(rng, 2))
    yield None


@case()
def expandable_toggle() -> Program:
    """Ordinary segments, then expandable ones, then ordinary ones again, with buffers that outlive each change."""
    rng, live, seen = random.Random(5), {}, {}
    for phase, settings in enumerate(["", "expandable_segments:True", "expandable_segments:False"]):
        if settings:
            set_allocator(settings)
        for _ in range(80):
            slot = rng.randrange(16)
            live.pop(slot, None)
            live[slot] = buffer(near_step(rng, 1 + phase))
        seen[f"reserved_bytes_{phase}"] = torch.cuda.memory_reserved()
    yield seen


@case()
def mem_pool() -> Program:
    """Two pools made by the program, one of which never splits a block where torch can do that, beside the default."""
    try:
        pools = [torch.cuda.MemPool(), torch.cuda.MemPool(no_split=True)]
    except TypeError:
        pools = [torch.cuda.MemPool(), torch.cuda.MemPool()]
    rng, live = random.Random(12), {}
    for step in range(240):
        slot = step % 3, rng.randrange(8)
        live.pop(slot, None)
        with torch.cuda.use_mem_pool(pools[step % 3]) if step % 3 < 2 else contextlib.nullcontext():
            live[slot] = buffer(near_step(rng, 1))
    yield {"pool_ids": [pool.id for pool in pools]}
