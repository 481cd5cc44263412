"""What fails while blocks lie on disk is said where it matters, and leaves the stream usable and the model as it was."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.unit.runtime.weights.conftest import DEVICE
from tests.unit.runtime.weights.test_stream import BLOCK_BYTES, Model, expected, streamed, train, x_of
from tests.unit.runtime.weights.test_stream_disk import (
    NUM_BLOCKS,
    ON_DISK,
    STAGING_BYTES,
    on_disk,
    stop,
    threads_are_gone,
)
from ullage.errors import RuntimeMemoryError
from ullage.runtime.weights.disk_plan import paged

__all__ = ["on_disk", "threads_are_gone"]  # fixtures


def test_nothing_is_copied_any_more_when_buffers_are_given_back(
    on_disk: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, x = Model(), x_of()
    want, real, gate = expected(model, x), os.preadv, threading.Event()

    def slow(descriptor: int, buffers: list[memoryview], offset: int) -> int:
        if offset:
            gate.wait(10)
        return real(descriptor, buffers, offset)

    with on_disk(model, 0) as run, torch.no_grad():
        hook = model.blocks[0].register_forward_pre_hook(stop)
        restore, file = run._restore, run._file

        def check_and_restore() -> None:
            assert not run._disk._asked
            gate.set()
            restore()

        with monkeypatch.context() as patch:
            patch.setattr(os, "preadv", slow)
            with pytest.raises(ValueError, match="stop"):
                model(x)
            assert run._disk._asked  # block 1 is being read
            patch.setattr(run, "_restore", check_and_restore)
            run.unstream()
        hook.remove()
        with pytest.raises(OSError, match="Bad file descriptor"):
            file.read(memoryview(bytearray(paged(1))), 0)
    assert torch.equal(expected(model, x), want)


@ON_DISK
def test_an_error_in_a_layer_leaves_the_stream_usable(on_disk: Callable[..., Any], num_pinned: int) -> None:
    model, x = Model(), x_of()
    want = expected(model, x)
    with on_disk(model, num_pinned), torch.no_grad():
        for number in range(NUM_BLOCKS):
            hook = model.blocks[number].register_forward_pre_hook(stop)
            with pytest.raises(ValueError, match="stop"):
                model(x)
            hook.remove()
            assert torch.equal(model(x), want)


def test_a_read_error_is_raised_where_the_block_is_wanted_and_leaves_the_stream_usable(
    on_disk: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, x = Model(), x_of()
    want = expected(model, x)
    real = os.preadv
    broken_at = 2 * paged(BLOCK_BYTES)  # block 2's place in the file

    def broken(descriptor: int, buffers: list[memoryview], offset: int) -> int:
        if offset == broken_at:
            raise OSError(errno.EIO, "Input/output error")
        return real(descriptor, buffers, offset)

    def short(descriptor: int, buffers: list[memoryview], offset: int) -> int:
        return 0 if offset == broken_at else real(descriptor, buffers, offset)

    with on_disk(model, 0), torch.no_grad():
        for replaced, said in ((broken, "Input/output error"), (short, "too early")):
            with monkeypatch.context() as patch:
                patch.setattr(os, "preadv", replaced)
                for _ in range(2):
                    with pytest.raises(RuntimeMemoryError, match=rf"blocks\.2 cannot be brought .*{said}"):
                        model(x)
            assert torch.equal(model(x), want)
        with monkeypatch.context() as patch:
            patch.setattr(os, "preadv", broken)
            with pytest.raises(RuntimeMemoryError, match=r"blocks\.2"):
                model(x)
    assert torch.equal(expected(model, x), want)


def test_a_read_error_in_a_pass_backwards_is_raised_there(
    on_disk: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = Model(rank=2)
    want = train(Model(rank=2).to(DEVICE))

    def broken(*_: Any) -> int:
        raise OSError(errno.EIO, "Input/output error")

    with on_disk(model, 0):
        loss = model(x_of()).sum()
        with monkeypatch.context() as patch:
            patch.setattr(os, "preadv", broken)
            with pytest.raises(RuntimeMemoryError, match="Input/output error"):
                loss.backward()
        assert train(model) == want


def test_without_a_folder_too_little_host_memory_is_an_error_that_names_it() -> None:
    with pytest.raises(RuntimeMemoryError, match=r"pinned host memory are needed.*by disk="):
        streamed(Model(), host_bytes=100)


def test_a_host_or_disk_that_is_too_small_says_so_and_the_model_is_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, x = Model(), x_of()
    want = expected(model, x)
    before = {name: one.data_ptr() for name, one in model.named_parameters()}
    with pytest.raises(RuntimeMemoryError, match=f"give host_bytes={STAGING_BYTES} or more"):
        streamed(model, host_bytes=STAGING_BYTES - 1, disk=tmp_path)
    with pytest.raises(RuntimeMemoryError, match="weights cannot lie in"):
        streamed(model, host_bytes=STAGING_BYTES, disk=tmp_path / "nowhere")

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "posix_fallocate", full)
        with pytest.raises(RuntimeMemoryError, match="No space left"):
            streamed(model, host_bytes=STAGING_BYTES, disk=tmp_path)
    assert before == {name: one.data_ptr() for name, one in model.named_parameters()}
    with streamed(model, host_bytes=STAGING_BYTES, disk=tmp_path), torch.no_grad():
        assert torch.equal(model(x), want)


def test_a_prediction_where_a_read_fails_says_so(on_disk: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = Model(), x_of()

    def broken(*_: Any) -> int:
        raise OSError(errno.EIO, "Input/output error")

    with on_disk(model, 0) as run, torch.no_grad():
        model(x)
        with monkeypatch.context() as patch:
            patch.setattr(os, "preadv", broken)
            with pytest.raises(RuntimeMemoryError, match="file of weights cannot be read"):
                run._disk.measure()
        assert torch.equal(model(x), expected(Model(), x))
