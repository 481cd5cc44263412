"""Opens a PyTorch memory snapshot: pickle or JSON, plain or compressed, told apart by content."""

from __future__ import annotations

import contextlib
import os
import sys
from threading import Thread

from ullage import _core
from ullage.errors import READABLE, TraceError

TYPE_CHECKING = False  # as in `typing`, whose import would keep the reader waiting
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import BinaryIO, Protocol

    class Readable(Protocol):
        """What the decompressors have in common."""

        def read(self, size: int = ..., /) -> bytes:
            """Return up to so many bytes, fewer only at the end."""

        def close(self) -> None:
            """Let go of the file."""


_GZIP = b"\x1f\x8b"
_XZ = b"\xfd7zXZ\x00"
_ZSTD = b"\x28\xb5\x2f\xfd"

_EXPANSION_FLOOR = 1 << 30
_EXPANSION_LIMIT = 2000


def read_tables(path: str | os.PathLike[str]) -> _core.Tables:
    """Read a snapshot file into the core's tables. Nothing in the file is executed.

    Args:
        path: The file: what `torch.cuda.memory._dump_snapshot` wrote, or JSON of the same shape; gzip, xz or zstd.

    Raises:
        TraceError: The file is missing, unreadable, truncated, or no snapshot.
    """
    name = os.fspath(path)
    try:
        with open(name, "rb") as file:
            return _read_open_file(file, name)
    except OSError as error:
        reason = error.strerror or str(error)
        raise TraceError(path=name, offset=0, expected=READABLE, found=reason) from error
    except TraceError as error:
        raise error.with_path(name) from None


class BackgroundReader:
    """Reads a snapshot file in a thread of its own, for which the caller's Python need not stop.

    Args:
        path: As for `read_tables`.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._tables: _core.Tables | None = None
        self._error: BaseException | None = None
        # A daemon: a command that turns out to be mistyped does not wait for it.
        self._thread = Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        try:
            self._tables = read_tables(self.path)
        except BaseException as error:
            self._error = error

    def tables(self) -> _core.Tables:
        """Wait for the tables.

        Raises:
            TraceError: As `read_tables`.
        """
        self._thread.join()
        if self._tables is None:
            assert self._error is not None
            raise self._error
        return self._tables


def _read_open_file(file: BinaryIO, name: str) -> _core.Tables:
    magic = file.peek(6)[:6] if hasattr(file, "peek") else b""
    opened = _decompressed(file, magic)
    if opened is None:
        # The core reads the descriptor itself: hand it over at its start.
        if file.seekable():
            os.lseek(file.fileno(), 0, os.SEEK_SET)
            return _core.read_descriptor(file.fileno())
        return _core.read_callable(file.read)
    packed_size = os.stat(name).st_size
    return _core.read_callable(_guarded(opened, packed_size))


def _decompressed(file: BinaryIO, magic: bytes) -> Readable | None:
    if magic.startswith(_GZIP):
        import gzip

        return gzip.GzipFile(fileobj=file)
    if magic.startswith(_XZ):
        import lzma

        return lzma.LZMAFile(file)
    if magic.startswith(_ZSTD):
        return _open_zstd(file)
    return None


def _open_zstd(file: BinaryIO) -> Readable:
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        try:
            from backports import zstd
        except ImportError:
            raise TraceError(
                offset=0,
                expected="the package backports.zstd, to read a zstd file (pip install backports.zstd)",
                found="no such package",
            ) from None
    return zstd.ZstdFile(file)


def _guarded(opened: Readable, packed_size: int) -> Callable[[int], bytes]:
    """Return the file's read, with damage and decompression bombs turned into TraceError."""
    limit = max(_EXPANSION_FLOOR, _EXPANSION_LIMIT * packed_size)
    produced = 0

    def read(size: int) -> bytes:
        nonlocal produced
        try:
            chunk = opened.read(size)
        except (OSError, EOFError, ValueError) as error:
            raise TraceError(offset=produced, expected="an intact compressed file", found=str(error)) from None
        except Exception as error:
            # The decompressors' own error types (zlib.error, LZMAError, ZstdError) share no base but this.
            if type(error).__module__.partition(".")[0] not in {"zlib", "_lzma", "lzma", "backports", "compression"}:
                raise
            raise TraceError(offset=produced, expected="an intact compressed file", found=str(error)) from None
        produced += len(chunk)
        if produced > limit:
            with contextlib.suppress(OSError):
                opened.close()
            raise TraceError(
                offset=produced,
                expected=f"a file that grows at most {_EXPANSION_LIMIT:,} times when decompressed",
                found="more; decompress it yourself if you trust it",
            )
        return chunk

    return read
