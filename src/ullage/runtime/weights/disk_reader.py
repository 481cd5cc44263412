"""Reads stretches of a file by several threads at a time: one alone does not keep a disk busy."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

NUM_THREADS = 8
CHUNK_BYTES = 8 << 20
THREAD_NAME = "ullage-disk"


@dataclass(eq=False)
class Reading:
    """A stretch that is to be read.

    Attributes:
        offset: Where it begins in the file, in bytes.
        into: Where it goes.
        drain: Called on a thread of the reader before anything is written there; it may wait.
        is_wanted: Tells whether to go on.
        done: Called once on such a thread, when nothing is written there any more: with None where all was read, else with
            what went wrong. Where reading was no longer wanted, it does not matter.
    """

    offset: int
    into: memoryview
    drain: Callable[[], None]
    is_wanted: Callable[[], bool]
    done: Callable[[BaseException | None], None]
    error: BaseException | None = field(default=None, init=False)
    num_left: int = field(default=0, init=False)


class DiskReader:
    """Threads that read, the stretch that was begun first before the next. They end with `close`, or with the reader."""

    def __init__(
        self,
        read: Callable[[memoryview, int], None],
        *,
        num_threads: int = NUM_THREADS,
        chunk_bytes: int = CHUNK_BYTES,
    ) -> None:
        """Prepare; threads begin when they are needed.

        Args:
            read: Fills a stretch of memory from an offset; it is called on several threads, and raises where it cannot.
            num_threads: How many.
            chunk_bytes: What one of them reads at a time.
        """
        self._read, self._chunk_bytes = read, chunk_bytes
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(num_threads, thread_name_prefix=THREAD_NAME)

    def start(self, reading: Reading) -> None:
        """Begin to read a stretch, after those before."""
        self._pool.submit(self._open, reading)

    def close(self) -> None:
        """Wait for the threads to end; what they did not begin is not read. A second time does nothing."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _open(self, reading: Reading) -> None:
        begins = range(0, len(reading.into), self._chunk_bytes)
        reading.num_left = len(begins)
        num_begun = 0
        try:
            reading.drain()
            with self._lock:  # so that two stretches do not mix
                for begin in begins:
                    self._pool.submit(self._read_chunk, reading, begin)
                    num_begun += 1
        except BaseException as error:  # the copy before failed, or the program ends
            self._end(reading, len(begins) - num_begun, error)

    def _read_chunk(self, reading: Reading, begin: int) -> None:
        error: BaseException | None = None
        try:
            if reading.error is None and reading.is_wanted():
                self._read(reading.into[begin : begin + self._chunk_bytes], reading.offset + begin)
        except BaseException as caught:  # whoever waits for the block gets it
            error = caught
        self._end(reading, 1, error)

    def _end(self, reading: Reading, num_ended: int, error: BaseException | None) -> None:
        with self._lock:
            reading.error = reading.error or error
            reading.num_left -= num_ended
            is_last = reading.num_left == 0
        if is_last:
            reading.done(reading.error)
