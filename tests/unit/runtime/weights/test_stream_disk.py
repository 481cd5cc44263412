"""A model of which some blocks lie on disk computes what it computes when all of it is there."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from tests.unit.runtime.weights import test_storage as coded
from tests.unit.runtime.weights.conftest import DEVICE
from tests.unit.runtime.weights.test_stream import (
    BLOCK_BYTES,
    Model,
    _in_place,
    _through_data,
    _with_other_memory,
    adapters_learn_the_same,
    expected,
    size_of,
    streamed,
    x_of,
)
from ullage.runtime.weights import StreamedModel, stream
from ullage.runtime.weights.disk_plan import paged
from ullage.runtime.weights.disk_reader import THREAD_NAME

NUM_BLOCKS = 6
STAGING_BYTES = 2 * paged(BLOCK_BYTES)
ON_DISK = pytest.mark.parametrize("num_pinned", [3, 1, 0])


def own_threads() -> list[threading.Thread]:
    return [one for one in threading.enumerate() if one.name.startswith(THREAD_NAME)]


@pytest.fixture(autouse=True)
def threads_are_gone() -> Iterator[None]:
    yield
    if own_threads():
        gc.collect()
        for one in own_threads():
            one.join(10)
    assert own_threads() == []


@pytest.fixture(params=["through the cache", "past it"])
def on_disk(tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Return what streams a model with so many of its streamed blocks pinned and the others on disk."""
    if request.param == "past it":
        monkeypatch.setattr("ullage.runtime.weights.block_file.free_host_bytes", lambda: 0)

    def make(model: nn.Module, num_pinned: int = 3, num_resident: int = 0, **options: Any) -> StreamedModel:
        host_bytes = num_pinned * BLOCK_BYTES + STAGING_BYTES
        run = streamed(model, num_resident, host_bytes=host_bytes, disk=tmp_path, **options)
        assert run.pinned_bytes == run.plan.pinned_bytes == host_bytes
        assert sum(run.plan.is_on_disk) == NUM_BLOCKS - num_resident - num_pinned
        assert list(tmp_path.iterdir()) == []
        return run

    return make


def place_of(run: Any) -> Any:
    return run._file


@ON_DISK
def test_outputs_are_the_same_bit_for_bit(on_disk: Callable[..., Any], num_pinned: int) -> None:
    model = Model()
    want = [expected(model, x_of(seed)) for seed in range(4)]
    with on_disk(model, num_pinned) as run, torch.no_grad():
        for seed in range(4):
            assert torch.equal(model(x_of(seed)), want[seed])
        assert own_threads()
        run.unstream()
        assert own_threads() == []
    assert torch.equal(expected(model, x_of()), want[1])


def test_blocks_on_the_gpu_in_pinned_memory_and_on_disk_are_one_model(on_disk: Callable[..., Any]) -> None:
    model, x = Model(), x_of()
    want = expected(model, x)
    with on_disk(model, num_pinned=1, num_resident=2) as run, torch.no_grad():
        assert sum(run.plan.is_resident) == 2
        assert torch.equal(model(x), want)


@ON_DISK
@pytest.mark.parametrize("checkpoints", [False, True])
def test_adapters_learn_the_same_bit_for_bit(on_disk: Callable[..., Any], num_pinned: int, checkpoints: bool) -> None:
    adapters_learn_the_same(checkpoints, lambda model: on_disk(model, num_pinned))


def test_the_model_is_left_as_it_was(on_disk: Callable[..., Any]) -> None:
    model = Model()
    before = {name: (one.device, one.clone(), id(one)) for name, one in model.state_dict(keep_vars=True).items()}
    run = on_disk(model, 0)
    saved = model.state_dict()
    assert all(torch.equal(saved[name].cpu(), one) for name, (_, one, _) in before.items())
    with torch.no_grad():
        model(x_of())
    run.unstream()
    run.unstream()
    for name, one in model.state_dict(keep_vars=True).items():
        assert (one.device, id(one)) == (before[name][0], before[name][2])
        assert torch.equal(one, before[name][1])


def _by_a_state_dict(weight: nn.Parameter) -> None:
    holder = nn.Module()
    holder.weight = weight
    holder.load_state_dict({"weight": weight.detach() * 2})


@pytest.mark.parametrize("change", [_in_place, _through_data, _with_other_memory, _by_a_state_dict])
@pytest.mark.parametrize("number", [0, 3, 5])
def test_weights_that_are_changed_between_passes_are_not_stale(
    on_disk: Callable[..., Any], change: Callable[..., None], number: int
) -> None:
    model, x = Model(), x_of()
    with on_disk(model, 1), torch.no_grad():
        before = model(x)
        change(model.blocks[number].up.weight)
        after = model(x)
        assert not torch.equal(before, after)
    assert torch.equal(expected(model, x), after)


@pytest.mark.parametrize("change", [_in_place, _with_other_memory, _by_a_state_dict])
@pytest.mark.parametrize("number", [1, 3, 5])
def test_weights_that_a_hook_changes_within_a_pass_are_not_stale(
    on_disk: Callable[..., Any], change: Callable[..., None], number: int
) -> None:
    model, x = Model(), x_of()
    with on_disk(model, 0) as run, torch.no_grad():

        def wait_and_change(module: nn.Module, args: Any) -> None:
            with run._disk._changed:  # so that later blocks were read ahead with what they had before
                run._disk._changed.wait_for(lambda: not run._disk._staging.is_reading, 10)
            change(model.blocks[number].up.weight)

        hook = model.blocks[0].register_forward_pre_hook(wait_and_change)
        got = model(x)
        hook.remove()
    assert torch.equal(expected(model, x), got)


def test_a_change_while_a_block_runs_is_kept(on_disk: Callable[..., Any]) -> None:
    model, x = Model(), x_of()
    with on_disk(model, 0), torch.no_grad():
        hook = model.blocks[3].register_forward_pre_hook(lambda *_: _in_place(model.blocks[3].up.weight))
        got = model(x)
        hook.remove()
        assert torch.equal(model(x), got)
    assert torch.equal(expected(model, x), got)


def test_a_model_that_loads_a_state_dict_while_blocks_are_read_ahead_has_all_of_it(on_disk: Callable[..., Any]) -> None:
    model, other, x = Model(), Model(), x_of()
    with torch.no_grad():
        for one in other.parameters():
            one.mul_(1.5)
    want = expected(other, x)
    with on_disk(model, 0), torch.no_grad():
        hook = model.blocks[1].register_forward_pre_hook(stop)
        with pytest.raises(ValueError, match="stop"):
            model(x)
        hook.remove()
        model.load_state_dict(other.state_dict())
        assert torch.equal(model(x), want)
    assert torch.equal(expected(model, x), want)


@pytest.mark.parametrize("who", ["a state dict", "a block"])
def test_who_writes_to_weights_waits_for_what_is_being_read(
    on_disk: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, who: str
) -> None:
    model, real, gate = Model(), os.preadv, threading.Event()
    state = {name: one.clone() for name, one in model.state_dict().items()}

    def slow(descriptor: int, buffers: list[memoryview], offset: int) -> int:
        if offset:
            gate.wait(10)
        return real(descriptor, buffers, offset)

    with on_disk(model, 0) as run, torch.no_grad(), monkeypatch.context() as patch:
        patch.setattr(os, "preadv", slow)
        hook = model.blocks[0].register_forward_pre_hook(stop)
        with pytest.raises(ValueError, match="stop"):
            model(x_of())
        hook.remove()
        assert run._disk._asked
        opener = threading.Timer(0.05, gate.set)
        opener.start()
        if who == "a block":
            run._hosted[2].settle()
        else:
            model.load_state_dict(state)
        assert not run._disk._asked
        assert not run._disk._staging.is_reading
        opener.join()


def stop(module: nn.Module, args: Any) -> None:
    raise ValueError("stop")


def test_what_was_read_ahead_in_a_pass_that_broke_off_is_not_used_in_the_next(on_disk: Callable[..., Any]) -> None:
    model, x = Model(), x_of()
    with on_disk(model, 0) as run, torch.no_grad():

        def wait_and_stop(module: nn.Module, args: Any) -> None:
            with run._disk._changed:
                assert run._disk._changed.wait_for(lambda: not run._disk._staging.is_reading, 10)
            assert run._disk._staging.of(3) is not None
            raise ValueError("stop")

        hook = model.blocks[0].register_forward_pre_hook(wait_and_stop)
        with pytest.raises(ValueError, match="stop"):
            model(x)
        hook.remove()
        model.blocks[3].up.weight.data.mul_(1.5)  # no version tells of it
        got = model(x)
    assert torch.equal(expected(model, x), got)


def test_what_lies_on_disk_takes_no_memory(on_disk: Callable[..., Any]) -> None:
    with on_disk(Model(), 0) as run, torch.no_grad():
        address = run._hosted[0].data.data_ptr()
        assert resident_kib(address) == 0
        assert run._hosted[0].data.sum() > 0
        assert resident_kib(address) > 0


def resident_kib(address: int) -> int:
    """Return what of the mapping that an address is in lies in memory."""
    is_here = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        first = line.split()[0]
        if "-" in first and not first.endswith(":"):
            begin, end = (int(one, 16) for one in first.split("-"))
            is_here = begin <= address < end
        elif is_here and first == "Rss:":
            return int(line.split()[1])
    raise AssertionError("no such mapping")


def test_a_checkpoint_is_read_straight_to_the_disk(on_disk: Callable[..., Any], tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    save_file(Model().state_dict(), folder / "model.safetensors")
    with torch.device("meta"):
        model = Model()
    for one in model.buffers():
        assert one.device.type == "meta"
    host_bytes = BLOCK_BYTES + STAGING_BYTES
    others = size_of(model) - NUM_BLOCKS * (2 * 16 * 16 + 2 * 16) * 4
    run = stream(
        model,
        others + 2 * BLOCK_BYTES,
        checkpoint=folder,
        device=DEVICE,
        host_bytes=host_bytes,
        disk=tmp_path,
    )
    with run, torch.no_grad():
        assert sum(run.plan.is_on_disk) == NUM_BLOCKS - 1
        assert torch.equal(model(x_of()), expected(Model(), x_of()))
    assert torch.equal(expected(model, x_of()), expected(Model(), x_of()))


@pytest.mark.parametrize("storage", ["int8", "fp8"])
def test_blocks_in_8_bits_lie_on_disk_so(storage: str, tmp_path: Path) -> None:
    model, x = Model(), x_of()
    want = expected(coded.rounded(model, storage), x)
    budget = size_of(model) - NUM_BLOCKS * (2 * 16 * 16 + 2 * 16) * 4 + 2 * (BLOCK_BYTES + coded.CODED_BYTES)
    host_bytes = coded.CODED_BYTES + 2 * paged(coded.CODED_BYTES)
    options: dict[str, Any] = {"device": DEVICE, "storage": storage, "host_bytes": host_bytes, "disk": tmp_path}
    with stream(model, budget, **options) as run, torch.no_grad():
        assert sum(run.plan.is_on_disk) == NUM_BLOCKS - 1
        assert run.pinned_bytes == host_bytes
        for _ in range(2):
            assert torch.equal(model(x), want)
        assert torch.equal(
            model.state_dict()["blocks.3.up.weight"].cpu(),
            coded.rounded(Model(), storage).state_dict()["blocks.3.up.weight"],
        )
    assert torch.equal(expected(model, x), want)


def test_what_the_host_has_memory_for_is_not_on_disk(tmp_path: Path) -> None:
    model = Model()
    with streamed(model, disk=tmp_path) as run, torch.no_grad():
        assert run.plan.disk is None
        assert place_of(run) is None
        model(x_of())
        assert own_threads() == []


def test_a_prediction_says_what_is_read_and_when_the_disk_limits(on_disk: Callable[..., Any]) -> None:
    model, x = Model(), x_of()
    want = expected(model, x)
    for num_pinned in (3, 0):
        with on_disk(model, num_pinned) as run, torch.no_grad():
            found = run.predict(x)
            assert found.disk_bytes == run.plan.disk_bytes == (NUM_BLOCKS - num_pinned) * paged(BLOCK_BYTES)
            assert 0 < found.disk_bytes_per_s < float("inf")
            assert found.step_s >= max(found.read_s, found.compute_s, found.copy_s * 0.99)
            assert "are read from disk at" in str(found)
            assert torch.equal(model(x), want)
            assert run.measured_s() > 0


def test_threads_and_file_go_with_a_model_that_nobody_unstreamed(on_disk: Callable[..., Any]) -> None:
    before = num_open()
    model = Model()
    run = on_disk(model, 0)
    with torch.no_grad():
        model(x_of())
    assert own_threads()
    threads = own_threads()
    del run, model
    gc.collect()
    for one in threads:
        one.join(10)
    assert own_threads() == []
    assert num_open() == before


def test_what_the_file_took_is_free_as_soon_as_the_model_is_as_it_was(on_disk: Callable[..., Any]) -> None:
    before = num_open()
    gc.disable()
    try:
        model = Model()
        with on_disk(model, 0), torch.no_grad():
            model(x_of())
        assert num_open() == before
    finally:
        gc.enable()


def num_open() -> int:
    if gc.isenabled():
        gc.collect()
    return len(os.listdir("/proc/self/fd"))
