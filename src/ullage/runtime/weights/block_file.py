"""A file that blocks are at home in while they are not in use. Nobody sees it, and it goes with the process, however that ends.

Each block is mapped, so that its weights are tensors on the host as ever: whoever writes to them writes to the file. Reads
see what was written, also those that go past the system's cache of files: Linux writes back first what they would miss.
"""

from __future__ import annotations

import errno
import mmap
import os
import tempfile
import weakref
from pathlib import Path

import torch

from ullage.errors import RuntimeMemoryError
from ullage.runtime.host_memory import free_host_bytes
from ullage.runtime.weights.disk_plan import paged
from ullage.units import format_bytes

_LACKS_DIRECT = (errno.EINVAL, errno.EOPNOTSUPP)


class FilePart:
    """A block's place in a file.

    Attributes:
        data: Its bytes, uint8 [size_bytes], mapped.
        offset: Where it begins in the file.
        size_bytes: What was asked for.
    """

    def __init__(self, descriptor: int, offset: int, size_bytes: int) -> None:
        """Map a part of a file.

        Args:
            descriptor: The file.
            offset: Where, in bytes; a whole number of pages.
            size_bytes: How much.
        """
        self.offset, self.size_bytes = offset, size_bytes
        self._mapping = mmap.mmap(descriptor, paged(size_bytes), offset=offset)
        self.data = torch.frombuffer(self._mapping, dtype=torch.uint8)[:size_bytes]

    def rest(self) -> None:
        """Write to the disk what was written, so that the system can take its memory back."""
        self._mapping.flush()
        self._mapping.madvise(mmap.MADV_DONTNEED)


class BlockFile:
    """A file without a name, as large as the blocks that will lie in it.

    Attributes:
        size_bytes: Its size.
        is_direct: Whether reads go past the system's cache of files.
    """

    def __init__(self, folder: str | Path, size_bytes: int) -> None:
        """Make a file.

        Args:
            folder: Where.
            size_bytes: Its size, taken at once, so that a full disk is an error now.

        Raises:
            RuntimeMemoryError: There is no such folder, or too little is free there; nothing is held.
        """
        self.size_bytes, self.is_direct = size_bytes, False
        self._end = 0
        try:
            free = os.statvfs(folder)
            if size_bytes > free.f_bavail * free.f_frsize:
                raise RuntimeMemoryError(
                    f"{format_bytes(size_bytes)} of weights are to lie in {folder}, where "
                    f"{format_bytes(free.f_bavail * free.f_frsize)} are free; name another folder by disk=, or pin more by "
                    "host_bytes="
                )
            with tempfile.TemporaryFile(dir=folder) as file:
                os.posix_fallocate(file.fileno(), 0, size_bytes)
                self._descriptor = os.dup(file.fileno())
        except OSError as error:
            raise RuntimeMemoryError(f"weights cannot lie in {folder}: {error}") from None
        self._direct: int | None = None
        self._close = weakref.finalize(self, os.close, self._descriptor)
        self._close_direct: weakref.finalize[..., BlockFile] | None = None

    def take(self, size_bytes: int) -> FilePart:
        """Return the next part of the file.

        Args:
            size_bytes: How much.

        Raises:
            RuntimeMemoryError: The system does not map it.
        """
        assert self._end + paged(size_bytes) <= self.size_bytes, "the file is smaller than its blocks"
        try:
            part = FilePart(self._descriptor, self._end, size_bytes)
        except OSError as error:
            raise RuntimeMemoryError(f"{format_bytes(size_bytes)} of a file cannot be mapped: {error}") from None
        self._end += paged(size_bytes)
        return part

    def choose_reads(self) -> None:
        """Let reads go past the system's cache of files if the file is larger than what the host has free for that.

        A file that is read from begin to end over and over finds nothing of itself in a cache that it does not fit into.
        """
        if self.size_bytes > free_host_bytes():
            self.read_past_cache()

    def read_past_cache(self) -> None:
        """Let reads go past the system's cache of files from now on, where the file system can; drop what is cached."""
        if self._direct is None:
            try:
                self._direct = os.open(f"/proc/self/fd/{self._descriptor}", os.O_RDONLY | os.O_DIRECT)
            except OSError:  # the file system has no such reads, or the container no /proc
                return
            self._close_direct = weakref.finalize(self, os.close, self._direct)
        self.is_direct = True
        self.drop_cache()

    def read_through_cache(self) -> None:
        """Let reads go through the system's cache of files, as they do at first."""
        self.is_direct = False

    def drop_cache(self) -> None:
        """Let the system forget what it keeps of the file in memory."""
        os.fsync(self._descriptor)
        os.posix_fadvise(self._descriptor, 0, 0, os.POSIX_FADV_DONTNEED)

    def read(self, into: memoryview, offset: int) -> None:
        """Read a part of the file; any thread may.

        Args:
            into: Where to, a whole number of pages, which begins at one.
            offset: Where from, in bytes; a whole number of pages.

        Raises:
            OSError: The disk does not give it, or the file ends before.
        """
        num_read = self._read_direct(into, offset) if self.is_direct else 0
        while num_read < len(into):
            count = os.preadv(self._descriptor, [into[num_read:]], offset + num_read)
            if count <= 0:
                raise OSError(errno.EIO, f"the file of weights ends at byte {offset + num_read:,}, too early")
            num_read += count

    def close(self) -> None:
        """Close the file; what is mapped stays. Nobody may read meanwhile. A second time does nothing."""
        self._close()
        if self._close_direct is not None:
            self._close_direct()

    def _read_direct(self, into: memoryview, offset: int) -> int:
        assert self._direct is not None
        try:
            return os.preadv(self._direct, [into], offset)
        except OSError as error:
            if error.errno not in _LACKS_DIRECT:
                raise
            self.is_direct = False  # some file systems say so here only
            return 0
