"""Threads read a stretch in pieces, one stretch before the next, and say once when it is there."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

from ullage.runtime.weights.disk_reader import THREAD_NAME, DiskReader, Reading

CONTENT = bytes(number % 251 for number in range(10_000))


def read_content(into: memoryview, offset: int) -> None:
    into[:] = CONTENT[offset : offset + len(into)]


class Ended:
    """Takes note of what was said at the end of a reading."""

    def __init__(self) -> None:
        self.said: list[BaseException | None] = []
        self._event = threading.Event()

    def __call__(self, error: BaseException | None) -> None:
        self.said.append(error)
        self._event.set()

    def wait(self) -> BaseException | None:
        assert self._event.wait(10)
        return self.said[0]


def reading(into: bytearray, offset: int = 0, **parts: Callable[..., Any]) -> tuple[Reading, Ended]:
    ended = Ended()
    calls: dict[str, Any] = {"drain": lambda: None, "is_wanted": lambda: True, **parts}
    return Reading(offset, memoryview(into), calls["drain"], calls["is_wanted"], ended), ended


def reader(read: Callable[[memoryview, int], None] = read_content, **options: int) -> DiskReader:
    return DiskReader(read, **{"num_threads": 4, "chunk_bytes": 100, **options})


@pytest.mark.parametrize("size_bytes", [1, 100, 101, 1000, 9950])
def test_all_of_a_stretch_is_read(size_bytes: int) -> None:
    one, into = reader(), bytearray(size_bytes)
    job, ended = reading(into, offset=50)
    one.start(job)
    assert ended.wait() is None
    one.close()
    assert bytes(into) == CONTENT[50 : 50 + size_bytes]
    assert ended.said == [None]


def test_stretches_are_read_one_after_another() -> None:
    begun: list[int] = []

    def read(into: memoryview, offset: int) -> None:
        begun.append(offset)

    one = reader(read, num_threads=1)
    gate = threading.Event()
    jobs = [reading(bytearray(400), offset=1000 * number, drain=gate.wait) for number in range(3)]
    for job, _ in jobs:
        one.start(job)
    gate.set()
    for _, ended in jobs:
        ended.wait()
    one.close()
    assert begun == [1000 * number + begin for number in range(3) for begin in (0, 100, 200, 300)]


def test_several_threads_read_one_stretch() -> None:
    together = threading.Barrier(4)
    one = reader(lambda into, offset: together.wait(10) and None)
    job, ended = reading(bytearray(400))
    one.start(job)
    assert ended.wait() is None
    one.close()


def test_nothing_is_written_before_the_buffer_is_drained() -> None:
    drained: list[bool] = []
    seen: list[bool] = []
    one = reader(lambda into, offset: seen.append(bool(drained)))
    job, ended = reading(bytearray(400), drain=lambda: drained.append(True))
    one.start(job)
    ended.wait()
    one.close()
    assert seen == [True] * 4


def test_an_error_of_a_piece_or_of_the_copy_before_is_said_once_and_at_the_end() -> None:
    def fail(into: memoryview, offset: int) -> None:
        raise OSError(5, "broken")

    one = reader(fail)
    job, ended = reading(bytearray(1000))
    one.start(job)
    assert "broken" in str(ended.wait())

    def refuse() -> None:
        raise RuntimeError("the copy failed")

    other, also = reading(bytearray(1000), drain=refuse)
    one.start(other)
    assert "the copy failed" in str(also.wait())
    one.close()
    assert [len(ended.said), len(also.said)] == [1, 1]


def test_what_is_no_longer_wanted_is_not_read_on() -> None:
    read: list[int] = []
    one = reader(lambda into, offset: read.append(offset))
    job, ended = reading(bytearray(1000), is_wanted=lambda: False)
    one.start(job)
    ended.wait()
    one.close()
    assert read == []


def test_what_was_not_begun_is_not_read_after_close() -> None:
    began, gate = threading.Event(), threading.Event()
    read: list[int] = []

    def wait(into: memoryview, offset: int) -> None:
        read.append(offset)
        began.set()
        assert gate.wait(10)

    one = reader(wait, num_threads=1)
    one.start(reading(bytearray(1000))[0])
    assert began.wait(10)
    opener = threading.Timer(0.05, gate.set)
    opener.start()
    one.close()
    opener.join()
    assert read == [0]


def num_threads() -> int:
    return sum(one.name.startswith(THREAD_NAME) for one in threading.enumerate())


def test_threads_end_with_close_and_with_the_reader() -> None:
    before = num_threads()
    for closes in (True, False):
        one = reader()
        job, ended = reading(bytearray(1000))
        one.start(job)
        ended.wait()
        assert num_threads() > before
        own = [thread for thread in threading.enumerate() if thread.name.startswith(THREAD_NAME)]
        if closes:
            one.close()
            one.close()
        del one
        gc.collect()
        for thread in own:
            thread.join(10)
        assert num_threads() == before


def test_a_process_ends_whatever_is_still_to_be_read() -> None:
    code = (
        "import time\n"
        "from ullage.runtime.weights.disk_reader import DiskReader, Reading\n"
        "reader = DiskReader(lambda into, offset: time.sleep(0.001), chunk_bytes=10)\n"
        "again = lambda error: start()\n"
        "def start(): reader.start(Reading(0, memoryview(bytearray(1000)), lambda: None, lambda: True, again))\n"
        "start()\n"
    )
    subprocess.run([sys.executable, "-c", code], timeout=60, check=True, capture_output=True)
