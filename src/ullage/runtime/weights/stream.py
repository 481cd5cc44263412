"""Runs a model whose weights do not fit on the GPU: blocks are copied from pinned host memory while others compute.

Those that the host has no memory for lie on disk, and are read ahead.
"""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import torch
from torch import nn

from ullage.errors import DeviceError, RuntimeMemoryError
from ullage.runtime.probe import known_probe
from ullage.runtime.weights.arena import PinnedArena, check_host_memory, lockable_bytes
from ullage.runtime.weights.block_file import BlockFile
from ullage.runtime.weights.blocks import Block, find_blocks
from ullage.runtime.weights.checkpoint import Checkpoint, MetaWeights
from ullage.runtime.weights.coding import STORAGES, Storage
from ullage.runtime.weights.copies import Arrival, CudaCopies, HostCopies
from ullage.runtime.weights.disk_copies import DiskBlock, DiskCopies
from ullage.runtime.weights.disk_plan import spill
from ullage.runtime.weights.disk_reader import DiskReader
from ullage.runtime.weights.graphs import check_not_graphed
from ullage.runtime.weights.homes import Home, stored_offsets
from ullage.runtime.weights.hosted import HostedBlock
from ullage.runtime.weights.link import measure_link
from ullage.runtime.weights.passes import Passes
from ullage.runtime.weights.plan import DEFAULT_SLOTS, NUM_LANDINGS, StreamPlan, plan_stream
from ullage.runtime.weights.prediction import StepClock, StreamPrediction, block_seconds
from ullage.runtime.weights.residents import move
from ullage.runtime.weights.ring import Copies, Ring
from ullage.runtime.weights.runner import BlockRunner

_FULL_SPEED = 20  # times the size of half speed: such a copy reaches 95 % of the largest
_STREAMED: WeakSet[nn.Module] = WeakSet()

if TYPE_CHECKING:
    from types import TracebackType


def stream(
    model: nn.Module,
    gpu_bytes: int,
    *,
    trunk: str | None = None,
    num_slots: int = DEFAULT_SLOTS,
    host_bytes: int | None = None,
    disk: str | Path | None = None,
    checkpoint: str | Path | None = None,
    storage: Storage | None = None,
    device: torch.device | str = "cuda",
) -> StreamedModel:
    """Let a model run with a part of its weights on the GPU.

    Weights that are not in use are tensors on the host, so that a model can be saved as ever, and changed between passes.

    Args:
        model: Any model that runs a list of blocks one after another; where it lies does not matter.
        gpu_bytes: What its weights may take on the GPU, the buffers among them; not its activations.
        trunk: The name of the list of blocks, such as "model.layers"; None: the list of modules with the most bytes.
        num_slots: The buffers that blocks are copied to; two are enough where blocks are alike.
        host_bytes: What may be pinned; None: nine tenths of what the host says is free.
        disk: A folder with room for what does not fit in that: such blocks lie there in a file, which goes with the stream, and
            are read ahead by threads. None: what does not fit is an error.
        checkpoint: A safetensors file, or a directory of some, from which what is on the meta device is read, straight to where
            it will lie; None: nothing is on the meta device.
        storage: "int8" or "fp8": matrices of streamed blocks lie on the host, and cross the link, in 8 bits with a scale for
            each row, and are decoded where they arrive; what they lose by it is lost for good. None: as they are.
        device: Where the model runs. On "cpu" all works, and nothing overlaps.

    Returns:
        The model's stream: `unstream` it to have the model as it was, or use it as a context.

    Raises:
        DeviceError: There is no GPU.
        ValueError: There is no such storage.
        RuntimeMemoryError: Not even the buffers fit on the GPU, the host or the disk has too little room, nothing can be
            streamed, or a module replays a CUDA graph of itself. The model is as it was.

    Cost: a copy of the streamed weights, block by block; a block's old memory is freed before the next is copied. What lies on
        disk is written there.
    """
    if storage is not None and storage not in STORAGES:
        raise ValueError(f"no storage is called {storage!r}: use one of {', '.join(STORAGES)}")
    if model in _STREAMED:
        raise RuntimeMemoryError("the model is streamed already: unstream() it first")
    check_not_graphed(model)
    where = torch.device(device)
    if where.type == "cuda":
        if not torch.cuda.is_available():
            raise DeviceError("streaming weights copies them to a GPU, and there is none; device='cpu' runs without")
        where = torch.device("cuda", torch.cuda.current_device() if where.index is None else where.index)
    loading = None if checkpoint is None else MetaWeights(model, Checkpoint(checkpoint))
    try:
        blocks, plan = _planned(model, gpu_bytes, trunk, num_slots, storage)
        if disk is not None:
            plan = spill(plan, lockable_bytes(host_bytes))
        check_host_memory(plan.pinned_bytes, host_bytes)
        return StreamedModel(model, blocks, plan, where, loading, storage, disk)
    except BaseException:
        if loading is not None:
            loading.undo()
        raise


def _planned(
    model: nn.Module, gpu_bytes: int, trunk: str | None, num_slots: int, storage: Storage | None
) -> tuple[list[Block], StreamPlan]:
    blocks = find_blocks(model, trunk)
    everything = {id(one): one for one in chain(model.parameters(), model.buffers())}
    total = sum(one.numel() * one.element_size() for one in everything.values())
    other = total - sum(weight.size_bytes for block in blocks for weight in block.weights)
    stored = None if storage is None else [stored_offsets(block, storage)[1] for block in blocks]
    sizes = [block.size_bytes for block in blocks]
    return blocks, plan_stream(sizes, other, gpu_bytes, num_slots=num_slots, stored_bytes=stored)


class StreamedModel:
    """A model that is streamed. `stream` makes it.

    Attributes:
        plan: Which blocks stay, and what is moved.
    """

    def __init__(
        self,
        model: nn.Module,
        blocks: list[Block],
        plan: StreamPlan,
        device: torch.device,
        loading: MetaWeights | None = None,
        storage: Storage | None = None,
        disk: str | Path | None = None,
    ) -> None:
        """Take over a model's blocks.

        Args:
            model: The model.
            blocks: Its blocks, in the order in which they run.
            plan: Which of them are streamed.
            device: Where they run.
            loading: Where values come from; None: they are in the model.
            storage: How matrices lie on the host; None: as they are.
            disk: The folder of the file that the plan puts blocks in.

        Raises:
            RuntimeMemoryError: The host or the disk does not give the memory; the model is as it was.
        """
        self.plan = plan
        self._model, self._blocks, self._device = model, blocks, device
        self._storage = storage
        self._clock = StepClock(device)
        self._places = [
            (owner, key, tensor.device)
            for module in model.modules()
            for owner in (module._parameters, module._buffers)
            for key, tensor in owner.items()
            if tensor is not None
        ]
        self._hosted: list[HostedBlock] = []
        self._slots: list[torch.Tensor] = []
        self._staging: list[torch.Tensor] = []
        self._file: BlockFile | None = None
        self._disk: DiskCopies | None = None
        self._ring: Ring | None = None
        self._hooks: list[Any] = []
        self._is_done = False
        with torch.inference_mode(False), torch.no_grad():
            try:
                if plan.disk is not None and disk is not None:
                    self._file = BlockFile(disk, plan.disk_bytes)
                self._place(loading)
            except BaseException:
                self._restore()
                raise
        _STREAMED.add(model)

    def __enter__(self) -> StreamedModel:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.unstream()

    @property
    def pinned_bytes(self) -> int:
        """The host memory that is pinned for weights, and for reading them from disk."""
        return sum(len(one.data) for one in self._hosted if one.part is None) + sum(len(one) for one in self._staging)

    def predict(self, *args: Any, **kwargs: Any) -> StreamPrediction:
        """Say what a pass forwards will cost; `print` it.

        Args:
            args: What the model is called with. It is called twice, without gradients: so without a cache that it would fill.
            kwargs: The same.

        Raises:
            RuntimeMemoryError: The model does not run each of its blocks once.

        Cost: waits for the GPU: two passes forwards, and some copies of a block.
        """
        if self._is_done:
            raise RuntimeMemoryError("the model is no longer streamed: stream() it again")
        link = disk = float("inf")
        probed: int | None = None
        if self._hosted and self._ring is not None:
            if self._disk is not None:
                self._disk.settle()  # so that nothing is copied or read meanwhile
            pinned = [one.data for one in self._hosted if one.part is None and len(one.data)]
            source = (pinned or self._staging)[0][: self.plan.slot_bytes]
            link, probed = measure_link(source, self._slots[0]), _probed_link(self._device, len(source))
            self._ring.drop()  # a buffer now holds something else than it did
        seconds = block_seconds(self._model, [block.module for block in self._blocks], self._device, args, kwargs)
        if self._disk is not None:
            disk = self._disk.measure()  # of what two passes have left in the cache of files
        return StreamPrediction.of(self.plan, seconds, link, probed, disk)

    def measured_s(self) -> float:
        """Return how long the last pass forwards took, from its first block to its last, in seconds.

        Raises:
            RuntimeMemoryError: There was none, or no block is streamed.

        Cost: waits for it.
        """
        return self._clock.seconds()

    def unstream(self) -> None:
        """Put all weights back to where they were, and free buffers, pinned memory and file. A second time does nothing.

        Raises:
            torch.cuda.OutOfMemoryError: They were on the GPU, and no longer fit. The model stays streamed.

        Cost: waits for the GPU; a copy of the weights.
        """
        if self._is_done:
            return
        if self._disk is not None:
            self._disk.begin()  # what is not issued by now must not be
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        with torch.inference_mode(False), torch.no_grad():
            self._restore()

    def _place(self, loading: MetaWeights | None) -> None:
        fill = _copy if loading is None else loading.fill
        for index in self.plan.streamed:
            is_pinned = self._device.type == "cuda"
            file = self._file if self.plan.is_on_disk[index] else None
            self._hosted.append(
                HostedBlock(self._blocks[index], fill, is_pinned=is_pinned, storage=self._storage, file=file)
            )
        streamed = {id(weight.parameter) for one in self._hosted for weight in one.block.weights}
        others = {
            id(one): one for one in chain(self._model.parameters(), self._model.buffers()) if id(one) not in streamed
        }
        if loading is not None:
            for tensor in [one for one in others.values() if loading.has(one)]:
                data = torch.empty_like(tensor.data, device=self._device)
                fill(tensor, data)
                tensor.data = data
        move(others.values(), self._device, lambda tensor, data: None)
        if self._hosted:
            self._stream_hosted()

    def _stream_hosted(self) -> None:
        shape = (self.plan.num_slots, self.plan.slot_bytes)
        self._slots = list(torch.empty(shape, dtype=torch.uint8, device=self._device))
        sources, arrival = [one.data for one in self._hosted], self._arrival()
        to_slots: CudaCopies | HostCopies = HostCopies(sources, self._slots, arrival)
        if self._device.type == "cuda":
            to_slots = CudaCopies(sources, self._slots, self._device, arrival)
        self._disk = self._read_by_threads(to_slots)
        copies = to_slots if self._disk is None else self._disk
        for one in self._hosted:
            one.settle = copies.settle
        self._ring = Ring(len(self._hosted), self.plan.num_slots, _Versions(copies, self._hosted))
        passes = Passes(self._hosted, self._ring, self._clock, self._device)
        unseen = torch._dynamo.disable  # a block may be compiled with its hooks, and these are not to be
        model, first, last = self._model, self._blocks[0].module, self._blocks[-1].module
        self._hooks += [
            model.register_forward_pre_hook(unseen(passes.begin_call)),
            model.register_forward_hook(unseen(passes.end_call), always_call=True),
            model.register_load_state_dict_pre_hook(lambda *_: copies.settle()),
            first.register_forward_pre_hook(unseen(passes.begin_blocks)),
        ]
        for number, one in enumerate(self._hosted):
            runner = BlockRunner(number, self._hosted, self._ring, self._slots, passes)
            self._hooks += [
                one.block.module.register_forward_pre_hook(unseen(runner.before)),
                one.block.module.register_forward_hook(unseen(runner.after), always_call=True),
            ]
        self._hooks.append(last.register_forward_hook(unseen(passes.end_blocks)))

    def _read_by_threads(self, to_slots: CudaCopies | HostCopies) -> DiskCopies | None:
        """Return what brings blocks from the file; None where none lies there."""
        disk = self.plan.disk
        if disk is None or self._file is None:
            return None
        is_pinned = self._device.type == "cuda"
        for _ in range(disk.num_staging):
            self._staging.append(PinnedArena(disk.staging_bytes, is_pinned=is_pinned).data)
        self._file.choose_reads()
        blocks = {
            number: DiskBlock(
                name=one.block.name, offset=one.part.offset, size_bytes=one.part.size_bytes, version=one.version
            )
            for number, one in enumerate(self._hosted)
            if one.part is not None
        }
        return DiskCopies(to_slots, blocks, self._staging, DiskReader(self._file.read))

    def _arrival(self) -> Arrival | None:
        if self._storage is None or not self._hosted:
            return None
        landings = torch.empty(self.plan.landing_bytes, dtype=torch.uint8, device=self._device).chunk(NUM_LANDINGS)
        slots, hosted = self._slots, self._hosted
        return Arrival(landings, lambda landing, block, slot: hosted[block].land(landing, slot, slots[slot]))

    def _restore(self) -> None:
        """Put all back; what does not fit where it was leaves the model streamed."""
        moved: list[tuple[torch.Tensor, torch.Tensor]] = []
        homes: dict[int, Home] = {}
        for one in self._hosted:
            homes |= one.homes()
        by_device: dict[torch.device, dict[int, torch.Tensor]] = {}
        for owner, key, device in self._places:
            tensor = owner.get(key)  # a buffer may have been replaced
            if tensor is not None:
                by_device.setdefault(device, {})[id(tensor)] = tensor
        try:
            for device, tensors in by_device.items():
                for tensor in tensors.values():
                    home = homes.get(id(tensor))
                    if home is not None and tensor.data_ptr() == home.resting.data_ptr():
                        moved.append((tensor, tensor.data))
                        tensor.data = home.value().to(device, copy=True)
                move(tensors.values(), device, lambda tensor, data: moved.append((tensor, data)))
        except BaseException:
            for tensor, data in moved:
                tensor.data = data
            raise
        for hook in self._hooks:
            hook.remove()
        for one in self._hosted:
            one.close()
        if self._disk is not None:
            self._disk.close()
        if self._file is not None:
            self._file.close()
        _STREAMED.discard(self._model)
        self._hooks, self._hosted, self._slots, self._staging = [], [], [], []
        self._ring, self._disk, self._file, self._is_done = None, None, None, True


def _probed_link(device: torch.device, size_bytes: int) -> int | None:
    """Return the speed of pinned copies when `ullage probe` measured this GPU.

    None where it did not, and for copies so small that they show their start, not the link.
    """
    if device.type != "cuda":
        return None
    known = known_probe(device.index)
    curve = None if known is None else known.copy_curve("pinned", "to_gpu")
    if curve is None or curve.half_speed_bytes is None or size_bytes < _FULL_SPEED * curve.half_speed_bytes:
        return None
    return curve.top_bytes_per_s


def _copy(tensor: torch.Tensor, into: torch.Tensor) -> None:
    into.copy_(tensor.data)


class _Versions:
    """Notes with each copy how often its block had been changed."""

    def __init__(self, copies: Copies, hosted: list[HostedBlock]) -> None:
        self._copies, self._hosted = copies, hosted
        self.wait_for, self.done_with = copies.wait_for, copies.done_with
        self.foresee, self.begin = copies.foresee, copies.begin

    def copy_in(self, block: int, slot: int) -> None:
        self._hosted[block].copied_version = self._hosted[block].version()
        self._copies.copy_in(block, slot)
