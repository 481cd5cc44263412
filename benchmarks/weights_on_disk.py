"""Times passes whose streamed blocks lie on disk beside plain reads of as many bytes, and beside accelerate."""

from __future__ import annotations

import copy
import mmap
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from benchmarks.streamed_model import SHORT, Machine, forward, ids_of, least_bytes

from ullage.runtime.weights import StreamedModel, stream
from ullage.runtime.weights.blocks import find_blocks
from ullage.runtime.weights.disk_plan import NUM_STAGING, paged
from ullage.runtime.weights.disk_reader import CHUNK_BYTES, NUM_THREADS

READS = ("past the cache", "cold cache", "warm cache")


def prepare_reads(run: StreamedModel, kind: str) -> None:
    """Let the next pass read from the disk itself, or from what the system has cached of it."""
    file = run._file
    assert file is not None
    if kind == "past the cache":
        file.read_past_cache()
        return
    file.read_through_cache()
    if kind == "cold cache":
        file.drop_cache()


def plain_read_s(folder: Path, size_bytes: int, rounds: int) -> dict[str, list[float]]:
    """Time plain reads of a file by as many threads, in pieces of as many bytes, to memory that is there already."""
    times: dict[str, list[float]] = {}
    size_bytes = paged(size_bytes)
    into = memoryview(mmap.mmap(-1, size_bytes))
    with tempfile.TemporaryFile(dir=folder) as file, ThreadPoolExecutor(NUM_THREADS) as pool:
        for begin in range(0, size_bytes, CHUNK_BYTES):
            file.write(os.urandom(min(CHUNK_BYTES, size_bytes - begin)))
        os.fsync(file.fileno())
        for kind in READS:
            flags = os.O_RDONLY | (os.O_DIRECT if kind == READS[0] else 0)
            try:
                descriptor = os.open(f"/proc/self/fd/{file.fileno()}", flags)
            except OSError:  # a file system without such reads
                continue

            def read(begin: int, descriptor: int = descriptor) -> None:
                os.preadv(descriptor, [into[begin : begin + CHUNK_BYTES]], begin)

            for _ in range(rounds + 1):  # the first one fills the cache
                if kind != "warm cache":
                    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
                start = time.perf_counter()
                list(pool.map(read, range(0, size_bytes, CHUNK_BYTES)))
                times.setdefault(kind, []).append(time.perf_counter() - start)
            os.close(descriptor)
    return {kind: some[1:] for kind, some in times.items()}


def time_disk(model: Any, machine: Machine, rounds: int, folder: Path) -> dict[str, Any]:
    """Time passes with half of the streamed blocks on disk, and with all of them, where accelerate has them."""
    sizes = [one.size_bytes for one in find_blocks(model)]
    staging = NUM_STAGING * paged(max(sizes))
    half = staging + sum(sizes[len(sizes) // 2 :])
    found = {
        "half": time_share(model, machine, rounds, folder, half, READS),
        "all": time_share(model, machine, rounds, folder, staging, (READS[0], READS[2])),
    }
    for one in found.values():
        plain = plain_read_s(folder, one["disk_bytes"], rounds)
        one["plain_read_s"] = {kind: [statistics.median(some), min(some), max(some)] for kind, some in plain.items()}
    if machine.is_gpu:
        found["accelerate"] = {"pass_s": take_accelerate_from_disk(model, machine, folder)}
    return found


def time_share(
    model: Any, machine: Machine, rounds: int, folder: Path, host_bytes: int, reads: Sequence[str]
) -> dict[str, Any]:
    """Time passes with as many blocks on disk as do not fit the host's share."""
    ids = ids_of(SHORT, machine, model.config.vocab_size)
    want = forward(model, ids)
    found: dict[str, Any] = {}
    with stream(model, least_bytes(model), device=machine.device, host_bytes=host_bytes, disk=folder) as run:
        found["disk_bytes"], found["pinned_bytes"] = run.plan.disk_bytes, run.pinned_bytes
        found["blocks_on_disk"] = sum(run.plan.is_on_disk)
        for kind in reads:
            prepare_reads(run, kind)
            predicted = run.predict(input_ids=ids, use_cache=False, logits_to_keep=1)
            print(f"{found['blocks_on_disk']} blocks on disk, {kind}: {predicted}", file=sys.stderr, flush=True)
            is_same, passes, blocks = True, [], []
            for _ in range(rounds):
                prepare_reads(run, kind)
                passes.append(machine.seconds(lambda: forward(model, ids)))
                blocks.append(run.measured_s())
                prepare_reads(run, kind)
                is_same = is_same and bool(torch.equal(forward(model, ids), want))
            found[kind] = {
                "pass_s": [statistics.median(passes), min(passes), max(passes)],
                "blocks_s": [statistics.median(blocks), min(blocks), max(blocks)],
                # What a prediction of a cold cache measures is a warm one: its own passes fill it.
                "predicted_s": predicted.step_s,
                "disk_bytes_per_s": predicted.disk_bytes_per_s,
                "limit": predicted.limit,
                "same_logits": is_same,
            }
    return found


def take_accelerate_from_disk(model: Any, machine: Machine, folder: Path) -> list[float]:
    """Time two passes of a copy of the model that accelerate keeps on disk, all of it; the first pass fills the cache."""
    from accelerate import disk_offload

    ids = ids_of(SHORT, machine, model.config.vocab_size)
    other = copy.deepcopy(model).to("cpu")
    with tempfile.TemporaryDirectory(dir=folder) as place:
        disk_offload(other, place, execution_device=torch.device("cuda", 0))
        forward(other, ids)
        return [machine.seconds(lambda: forward(other, ids)) for _ in range(2)]
