"""Standard output whose reader may go away, as `head` does. Nothing is wrong then: the exit code stays the command's."""

from __future__ import annotations

import io
import os
from typing import Any, TextIO

from ullage.errors import UllageError


class _Descriptor(io.FileIO):
    """A file descriptor that takes what a broken pipe does not, and fails once where a disk is full."""

    _is_lost = False

    def write(self, data: Any) -> int:
        if not self._is_lost:
            try:
                return super().write(data)
            except BrokenPipeError:
                self._is_lost = True
            except OSError as error:
                self._is_lost = True
                raise UllageError(f"standard output cannot be written: {error.strerror}") from None
        return memoryview(data).nbytes


def without_broken_pipes(stream: TextIO | None) -> TextIO:
    """Return a stream to the same descriptor that drops what nobody reads; the stream itself where it has none.

    A stream that was closed before the program began (None) takes everything.

    Click and rich each end the process with status 1 when they meet a broken pipe. Here they meet none, so the command
    goes on to its own exit code: `ullage explain --fail-on error FILE | head -1` still fails.
    """
    if stream is None:
        return open(os.devnull, "w", encoding="utf-8")
    try:
        descriptor = stream.fileno()
    except (OSError, ValueError):
        return stream
    stream.flush()
    return io.TextIOWrapper(
        io.BufferedWriter(_Descriptor(descriptor, "w", closefd=False)),
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=stream.isatty(),
    )
