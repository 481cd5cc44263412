"""The errors that ullage raises. A message says what is wrong, where, and how to go on."""

from __future__ import annotations

READABLE = "a readable file"
"""What is expected of a file that the system does not let us open."""


class UllageError(Exception):
    """Base of every error that ullage raises on purpose."""


class TraceError(UllageError, ValueError):
    """A file that cannot be read as a trace.

    Attributes:
        path: The file, or "" where the bytes did not come from one.
        offset: The byte, after decompression, at which reading stopped.
        expected: What should have been there.
        found: What was there.
    """

    def __init__(self, *, offset: int, expected: str, found: str, path: str = "") -> None:
        self.path = path
        self.offset = offset
        self.expected = expected
        self.found = found
        where = f"{path}: " if path else ""
        if expected == READABLE:
            super().__init__(f"{where}cannot be read: {found}")
        else:
            super().__init__(f"{where}at byte {offset:,}: expected {expected}, found {found}")

    def with_path(self, path: str) -> TraceError:
        """Return the same error, naming the file."""
        return TraceError(offset=self.offset, expected=self.expected, found=self.found, path=path)


class ReplayError(UllageError, ValueError):
    """A policy that cannot be simulated: an unknown setting, a value out of its range, a model that does not exist."""


class DeviceError(UllageError, RuntimeError):
    """There is no GPU, no driver, or no permission to use it."""


class RuntimeMemoryError(UllageError, RuntimeError):
    """A request to something that manages memory in a running program; nothing was changed."""


class OutOfPagesError(RuntimeMemoryError):
    """A pool that has too few free pages for a request. Nothing was taken.

    Attributes:
        asked: The pages that were needed.
        free: The pages that were free.
        total: All pages of the pool.
    """

    def __init__(self, *, asked: int, free: int, total: int, what: str) -> None:
        self.asked, self.free, self.total = asked, free, total
        super().__init__(
            f"out of pages: {what} needs {asked:,}, {free:,} of {total:,} are free; "
            "free or swap out a sequence, or make the pool larger"
        )


class PageAccountError(RuntimeMemoryError, ValueError):
    """A page or sequence that is not what its user takes it for: freed already, or another pool's."""
