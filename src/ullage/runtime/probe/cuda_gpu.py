"""A real GPU: torch's tensors, events and streams, kernels in Triton, and what torch has no call for by cuda-bindings."""

from __future__ import annotations

import time
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any

from ullage.errors import DeviceError
from ullage.runtime.probe.core import loop_ns
from ullage.runtime.probe.gpu import NO_TRITON, Block
from ullage.runtime.probe.result import Machine
from ullage.runtime.probe.runtime_calls import RuntimeCalls

if TYPE_CHECKING:
    from ullage.runtime.probe.gpu import MemoryKind, Run
    from ullage.runtime.probe.identity import Identity
    from ullage.runtime.probe.result import Pattern, Temperature, Way

_QUEUE_CYCLES = 400_000  # about 0.2 ms, in which runs are queued
_CYCLES_PER_RUN = 40_000
_WARM_UP_NS = 300_000_000
_LINE_WORDS = 16  # of eight bytes


class CudaGpu:
    """One GPU; as a context, its memory is given back at the end. Works on a stream of its own.

    Args:
        found: The GPU.

    Raises:
        DeviceError: torch is missing, cannot be loaded, or cannot use it.
    """

    def __init__(self, found: Identity) -> None:
        try:
            import torch
        except ModuleNotFoundError:
            raise DeviceError("torch is missing: pip install 'ullage[probe]'") from None
        except (ImportError, OSError) as error:  # a library of CUDA that is missing or broken
            raise DeviceError(f"torch cannot be loaded: {error}") from None
        if not torch.cuda.is_available():
            raise DeviceError(
                f"torch {torch.__version__} cannot use the GPU: it was built for CPUs, or for another CUDA"
            )
        self._torch = torch
        self._kernels = _kernels()
        self._device = torch.device("cuda", found.index)
        self._stream = torch.cuda.Stream(self._device)
        self._scope = torch.cuda.stream(self._stream)
        self._sink = torch.zeros(1, dtype=torch.int32, device=self._device)
        self._torch_blocks: dict[int, Any] = {}
        free, total = torch.cuda.mem_get_info(self._device)
        self._calls = RuntimeCalls(found.index, self._stream.cuda_stream)  # last: only `close` undoes it
        self.machine = Machine(
            gpu=found.name,
            uuid=found.uuid,
            driver=found.driver,
            torch=str(torch.__version__),
            triton=self._kernels[1],
            cuda_bindings=self._calls.version,
            total_bytes=total,
            free_bytes=free,
            l2_bytes=found.l2_bytes,
            num_processors=found.num_processors,
            has_concurrent_managed=found.has_concurrent_managed,
            has_pageable_access=found.has_pageable_access,
            shares_page_tables=found.shares_page_tables,
        )

    def __enter__(self) -> CudaGpu:
        self._scope.__enter__()
        return self

    def __exit__(self, *failure: object) -> None:
        self._scope.__exit__(*failure)
        self.close()

    def free_bytes(self) -> int:
        """Return how much of its memory is free."""
        return int(self._torch.cuda.mem_get_info(self._device)[0])

    def allocate(self, kind: MemoryKind, size_bytes: int) -> Block:
        """Allocate a block; pinned memory is torch's where there is no cuda-bindings."""
        torch = self._torch
        if kind == "torch":
            tensor = torch.empty(size_bytes, dtype=torch.uint8, device=self._device)
            return self._kept(Block(kind=kind, address=tensor.data_ptr(), size_bytes=size_bytes, gpu=tensor))
        if kind == "pageable" or (kind in ("pinned", "mapped") and not self._calls.version):
            tensor = torch.empty(size_bytes, dtype=torch.uint8, pin_memory=kind != "pageable")
            return self._kept(Block(kind=kind, address=tensor.data_ptr(), size_bytes=size_bytes, host=tensor))
        torch.cuda.empty_cache()  # what torch keeps of earlier blocks is not there for others
        address = self._calls.allocate(kind, size_bytes)
        has_host = kind in ("pinned", "mapped", "managed")
        host = self._calls.host_tensor(torch, address, size_bytes) if has_host else None
        return Block(kind=kind, address=address, size_bytes=size_bytes, host=host)

    def _kept(self, block: Block) -> Block:
        self._torch_blocks[block.address] = block
        return block

    def free(self, block: Block) -> None:
        """Free a block, once nothing uses it. After an error that ends a context this does nothing: all is freed with that."""
        with suppress(RuntimeError):
            self._torch.cuda.synchronize()
            if self._torch_blocks.pop(block.address, None) is None:
                self._calls.free(block.kind, block.address)

    def copying(self, target: Block, source: Block, size_bytes: int) -> Run:
        """Prepare a copy."""
        to, out_of = (_tensor(one)[:size_bytes] for one in (target, source))
        return lambda: to.copy_(out_of, non_blocking=True)

    def reading(self, block: Block, size_bytes: int, *, num_rounds: int = 1) -> Run:
        """Prepare a kernel that reads the bytes, several times over in the same launch."""
        kernels = self._needed_kernels()
        num_parts = size_bytes // kernels.READ_BYTES
        shape = {"WORDS": kernels.READ_WORDS, "UNROLL": kernels.READ_UNROLL, "num_warps": kernels.NUM_WARPS}
        return self._launch(kernels.read_kernel, num_parts * num_rounds, block.address, self._sink, num_parts, **shape)

    def writing(self, block: Block, size_bytes: int) -> Run:
        """Prepare a kernel that writes the bytes."""
        kernels = self._needed_kernels()
        shape = {"WORDS": kernels.READ_WORDS, "UNROLL": kernels.READ_UNROLL, "num_warps": kernels.NUM_WARPS}
        return self._launch(kernels.write_kernel, size_bytes // kernels.READ_BYTES, block.address, 1, **shape)

    def reading_strided(self, block: Block, size_bytes: int, stride_bytes: int) -> Run:
        """Prepare a kernel that reads one word of four bytes in each stride."""
        kernels = self._needed_kernels()
        num_programs = max(size_bytes // stride_bytes // kernels.STRIDED_LANES, 1)
        shape = {"STRIDE_WORDS": stride_bytes // 4, "LANES": kernels.STRIDED_LANES}
        return self._launch(kernels.strided_kernel, num_programs, block.address, self._sink, **shape)

    def prefetching(self, block: Block) -> Run:
        """Prepare moving managed memory to the GPU."""
        return self._calls.prefetching(block.address, block.size_bytes)

    def touching(self, block: Block) -> Run:
        """Prepare writing the block by the host; it is done when the call returns."""
        return lambda: block.host.fill_(1)

    def accessing(
        self, pattern: Pattern, block: Block, footprint_bytes: int, stride_bytes: int, num_accesses: int
    ) -> Run:
        """Prepare accesses at one place in each stride, in random order; for a chain this lays it."""
        torch, kernels = self._torch, self._needed_kernels()
        num_places = footprint_bytes // stride_bytes
        places = torch.arange(num_places, device=self._device) * (stride_bytes // 8)
        places += torch.arange(num_places, device=self._device) * _LINE_WORDS % (stride_bytes // 8)
        words = block.gpu.view(torch.int64)
        if pattern == "gather":
            words[places] = 1
            programs = num_accesses // (kernels.GATHER_LANES * kernels.GATHER_ROUNDS)
            shape = {"LANES": kernels.GATHER_LANES, "ROUNDS": kernels.GATHER_ROUNDS}
            return self._launch(
                kernels.gather_kernel, programs, block.address, self._sink, num_places, stride_bytes, 12345, **shape
            )
        ring = places[torch.randperm(num_places, device=self._device)]
        words[ring] = ring.roll(-1)
        place = ring[:1].clone()
        return self._launch(kernels.chain_kernel, 1, block.address, place, num_accesses, num_warps=1)

    def _launch(self, kernel: Any, num_programs: int, *arguments: Any, **shape: Any) -> Run:
        """Prepare a launch; the kernel is compiled by the first."""

        def run() -> None:
            try:
                kernel[(num_programs,)](*arguments, **shape)
            except RuntimeError:
                raise
            except Exception as error:  # Triton's own classes, of several releases, share no other base
                raise DeviceError(f"Triton: {type(error).__name__}: {error}") from error

        return run

    def device_ns(
        self, run: Run, num_timed: int, *, num_runs: int = 1, before: Run | None = None, is_queued: bool = True
    ) -> list[float]:
        """Measure by events how long a run takes on the GPU."""
        cuda = self._torch.cuda
        start, end = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
        times = []
        for _ in range(num_timed):
            cuda.synchronize()  # some GPUs forbid the host their managed memory while they work
            if before is not None:
                before()
                cuda.synchronize()
            if is_queued:
                cuda._sleep(_QUEUE_CYCLES + _CYCLES_PER_RUN * num_runs)
            start.record()
            for _ in range(num_runs):
                run()
            end.record()
            end.synchronize()
            times.append(start.elapsed_time(end) * 1e6 / num_runs)
        return times

    def host_ns(self, run: Run, num_timed: int) -> list[float]:
        """Measure by the host's clock how long a run takes from its call until the GPU is done."""
        wait, times = self._stream.synchronize, []
        wait()
        for _ in range(num_timed):
            start = time.perf_counter_ns()
            run()
            wait()
            times.append(float(time.perf_counter_ns() - start))
        return times

    def loop_ns(self) -> float:
        """Time by the host's clock a short loop within the core."""
        return loop_ns()

    def allocation_ns(self, way: Way, temperature: Temperature, size_bytes: int) -> tuple[float, float]:
        """Measure by the host's clock one allocation, and its free."""
        if way != "torch":
            return self._calls.allocation_ns(way, temperature, size_bytes)
        torch, is_cold = self._torch, temperature == "cold"
        torch.cuda.synchronize()
        if is_cold:
            torch.cuda.empty_cache()
        start = time.perf_counter_ns()
        tensor = torch.empty(size_bytes, dtype=torch.uint8, device=self._device)
        allocated = time.perf_counter_ns()
        del tensor
        if is_cold:
            torch.cuda.empty_cache()
        return float(allocated - start), float(time.perf_counter_ns() - allocated)

    def warm_up(self) -> None:
        """Keep the GPU busy until its clocks are up."""
        first = self._torch.ones(1 << 20, device=self._device)
        end = time.perf_counter_ns() + _WARM_UP_NS
        while time.perf_counter_ns() < end:
            for _ in range(100):
                first.mul_(1.0)
            self._torch.cuda.synchronize()

    def close(self) -> None:
        """Give all memory back."""
        with suppress(RuntimeError):
            self._torch.cuda.synchronize()
        self._torch_blocks.clear()
        self._calls.close()
        with suppress(RuntimeError):
            self._torch.cuda.empty_cache()
            getattr(self._torch._C, "_host_emptyCache", lambda: None)()  # pinned memory; since torch 2.5

    def _needed_kernels(self) -> Any:
        kernels, _ = self._kernels
        if kernels is None:
            raise DeviceError(NO_TRITON)
        return kernels


def _tensor(block: Block) -> Any:
    tensor = block.host if block.gpu is None else block.gpu
    if tensor is None:
        raise DeviceError(f"{block.kind} memory is not copied here")
    return tensor


def _kernels() -> tuple[Any, str]:
    """Return the module of kernels and Triton's version; nothing where it is missing."""
    try:
        triton = import_module("triton")
        return import_module("ullage.runtime.probe.kernels"), str(triton.__version__)
    except ImportError:
        return None, ""
