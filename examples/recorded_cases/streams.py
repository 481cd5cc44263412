"""Several streams and threads: blocks that wait for a side stream after they were freed."""

from __future__ import annotations

import random
import sys
import threading

import torch

from recorded_cases.registry import MIB, Program, buffer, case

SLEEP_50_MS_CYCLES = 90_000_000


@case()
def record_stream_backlog() -> Program:
    side = torch.cuda.Stream()
    for _ in range(20):
        buf = buffer(256 * MIB)
        with torch.cuda.stream(side):
            torch.cuda._sleep(SLEEP_50_MS_CYCLES)
            buf.add_(1)
        buf.record_stream(side)
        del buf
    torch.cuda.synchronize()
    buffer(MIB)  # a request is what makes the allocator look at the finished events
    yield None


@case()
def record_stream_waited() -> Program:
    side = torch.cuda.Stream()
    for _ in range(20):
        buf = buffer(256 * MIB)
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            torch.cuda._sleep(SLEEP_50_MS_CYCLES)
            buf.add_(1)
        torch.cuda.current_stream().wait_stream(side)
        del buf
    torch.cuda.synchronize()
    buffer(MIB)
    yield None


@case()
def pending_end() -> Program:
    """Two buffers are finished with by the end; three more are freed but still wait for a long kernel."""
    side = torch.cuda.Stream()
    for size in (24 * MIB, 40 * MIB):
        buf = buffer(size)
        buf.record_stream(side)
        del buf
    torch.cuda.synchronize()
    buffer(MIB)
    with torch.cuda.stream(side):
        torch.cuda._sleep(100 * SLEEP_50_MS_CYCLES)
    for size in (700 * 1024, 12 * MIB, 30 * MIB + 512):
        buf = buffer(size)
        buf.record_stream(side)
        del buf
    buffer(24 * MIB)
    yield None


@case()
def two_threads() -> Program:
    barrier, live = threading.Barrier(2), {}

    def work(seed: int) -> None:
        rng = random.Random(seed)
        with torch.cuda.stream(torch.cuda.Stream()):
            barrier.wait()
            for _ in range(200):
                slot = seed, rng.randrange(12)
                live.pop(slot, None)
                live[slot] = buffer(2 ** rng.uniform(8, 25.5))

    sys.setswitchinterval(1e-5)
    threads = [threading.Thread(target=work, args=(seed,)) for seed in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    yield None
