"""A file holds blocks, nobody sees it, and reads find what was written to it."""

from __future__ import annotations

import errno
import gc
import os
from pathlib import Path
from typing import Any

import pytest
import torch

from ullage.errors import RuntimeMemoryError
from ullage.runtime.weights.arena import PinnedArena
from ullage.runtime.weights.block_file import BlockFile
from ullage.runtime.weights.disk_plan import PAGE_BYTES


def read(file: BlockFile, offset: int, size_bytes: int) -> torch.Tensor:
    arena = PinnedArena(size_bytes, is_pinned=False)
    file.read(memoryview(arena.data.numpy()), offset)
    return arena.data


@pytest.mark.parametrize("direct", [False, True])
def test_reads_find_what_was_written_whether_it_reached_the_disk_or_not(tmp_path: Path, direct: bool) -> None:
    file = BlockFile(tmp_path, 4 * PAGE_BYTES)
    one, other = file.take(PAGE_BYTES + 100), file.take(2 * PAGE_BYTES)
    assert (one.offset, other.offset) == (0, 2 * PAGE_BYTES)
    one.data.fill_(1)
    one.rest()
    other.data.fill_(2)
    if direct:
        file.read_past_cache()
    assert read(file, 0, 2 * PAGE_BYTES).tolist() == [1] * (PAGE_BYTES + 100) + [0] * (PAGE_BYTES - 100)
    assert read(file, other.offset, 2 * PAGE_BYTES).unique().tolist() == [2]
    for value in (3, 4):
        one.data.fill_(value)
        assert read(file, 0, PAGE_BYTES).unique().tolist() == [value]
    file.read_through_cache()
    assert read(file, 0, PAGE_BYTES).unique().tolist() == [4]
    file.close()
    file.close()
    assert one.data[0] == 4


def test_the_folder_stays_empty_and_the_file_goes_with_its_blocks(tmp_path: Path) -> None:
    def num_open() -> int:
        return len(os.listdir("/proc/self/fd"))

    before = num_open()
    file = BlockFile(tmp_path, 2 * PAGE_BYTES)
    parts: list[Any] = [file.take(PAGE_BYTES), file.take(PAGE_BYTES)]
    file.read_past_cache()
    assert list(tmp_path.iterdir()) == []
    assert num_open() > before
    parts.clear()
    del file
    gc.collect()
    assert num_open() == before


def test_a_disk_that_is_too_small_is_an_error_now(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RuntimeMemoryError, match=r"are to lie in .* are free; name another folder by disk="):
        BlockFile(tmp_path, 1 << 60)

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(RuntimeMemoryError, match="No space left"):
        BlockFile(tmp_path, PAGE_BYTES)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(RuntimeMemoryError, match=r"weights cannot lie in .*nowhere: .*No such file"):
        BlockFile(tmp_path / "nowhere", PAGE_BYTES)


@pytest.mark.parametrize("free_bytes", [PAGE_BYTES - 1, PAGE_BYTES])
def test_a_file_is_read_past_the_cache_where_it_does_not_fit_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free_bytes: int
) -> None:
    file = BlockFile(tmp_path, PAGE_BYTES)
    asked: list[int] = []
    monkeypatch.setattr("ullage.runtime.weights.block_file.free_host_bytes", lambda: free_bytes)
    monkeypatch.setattr(file, "read_past_cache", lambda: asked.append(1))
    file.choose_reads()
    assert len(asked) == (free_bytes < PAGE_BYTES)


def test_a_file_system_that_cannot_read_past_the_cache_reads_through_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = BlockFile(tmp_path, PAGE_BYTES)
    part = file.take(PAGE_BYTES)
    part.data.fill_(7)
    real_open, real_read = os.open, os.preadv

    def refuses(path: Any, flags: int, *rest: Any, **more: Any) -> int:
        if flags & os.O_DIRECT:
            raise OSError(errno.EINVAL, "no such flag")
        return real_open(path, flags, *rest, **more)

    dropped: list[int] = []
    monkeypatch.setattr(file, "drop_cache", lambda: dropped.append(1))
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refuses)
        file.read_past_cache()
    assert not file.is_direct
    assert not dropped
    assert read(file, 0, PAGE_BYTES).unique().tolist() == [7]

    file.read_past_cache()
    direct = file._direct
    if direct is None:
        pytest.skip("this file system is such a one")
    assert dropped  # what nobody will look for there

    def refuses_to_read(descriptor: int, *rest: Any) -> int:
        if descriptor == direct:
            raise OSError(errno.EINVAL, "not aligned")
        return real_read(descriptor, *rest)

    monkeypatch.setattr(os, "preadv", refuses_to_read)
    assert read(file, 0, PAGE_BYTES).unique().tolist() == [7]
    assert not file.is_direct


@pytest.mark.parametrize("direct", [False, True])
def test_reads_that_come_in_parts_are_put_together_and_a_broken_disk_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, direct: bool
) -> None:
    file = BlockFile(tmp_path, 3 * PAGE_BYTES)
    part = file.take(3 * PAGE_BYTES)
    part.data.copy_(torch.arange(3 * PAGE_BYTES) % 251)
    if direct:
        file.read_past_cache()
    real = os.preadv

    def partly(descriptor: int, buffers: list[memoryview], offset: int) -> int:
        return real(descriptor, [buffers[0][:PAGE_BYTES]], offset)

    monkeypatch.setattr(os, "preadv", partly)
    assert torch.equal(read(file, 0, 3 * PAGE_BYTES), part.data)
    with pytest.raises(OSError, match="ends at byte 12,288, too early" if PAGE_BYTES == 4096 else "too early"):
        read(file, 2 * PAGE_BYTES, 2 * PAGE_BYTES)

    def broken(*_: Any) -> int:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "preadv", broken)
    with pytest.raises(OSError, match="Input/output"):
        read(file, 0, PAGE_BYTES)
