"""Writes files so that a failure loses nothing: each is written beside its target, and then takes its place."""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from typing import TYPE_CHECKING

from ullage.errors import UllageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


@contextlib.contextmanager
def replacing(targets: Sequence[str], *, source: str) -> Iterator[list[str]]:
    """Give the paths of new files to write to; when the body ends well, they take their targets' places.

    What is no regular file, such as a pipe, is written to directly.

    Args:
        targets: The files to be written.
        source: The file that is read meanwhile, which none of them may be.

    Raises:
        UllageError: A file cannot be written, or is the source. The targets are as they were.
    """
    parts: list[str] = []
    where = ""
    try:
        for where in targets:
            refuse_source(where, source)
            parts.append(_begun(where))
        where = ", ".join(targets[:1])
        yield parts
        for where, part in zip(targets, parts, strict=True):
            if part != where:
                os.replace(part, os.path.realpath(where))
    except OSError as error:
        raise UllageError(f"{where}: cannot be written: {error.strerror or error}") from None
    finally:
        for part, target in zip(parts, targets, strict=False):
            if part != target:
                with contextlib.suppress(OSError):
                    os.unlink(part)


def refuse_source(target: str, source: str) -> None:
    """Refuse to write over the file that is read.

    Raises:
        UllageError: They are the same file.
    """
    if os.path.exists(target) and os.path.exists(source) and os.path.samefile(target, source):
        raise UllageError(f"{target}: is the recording itself; write to another file")


def _begun(target: str) -> str:
    """Make an empty file in the target's folder, with the permissions that the target has or would have."""
    real = os.path.realpath(target)
    mode = os.stat(real).st_mode if os.path.exists(real) else None
    if mode is not None and not stat.S_ISREG(mode):
        if stat.S_ISDIR(mode):
            raise UllageError(f"{target}: is a folder; name a file")
        return target
    part = os.path.join(os.path.dirname(real), f".ullage-{secrets.token_hex(6)}.part")
    descriptor = os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
    try:
        if mode is not None:
            os.chmod(part, stat.S_IMODE(mode))
    finally:
        os.close(descriptor)
    return part
