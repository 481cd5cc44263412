"""Where measurements of a machine are kept on disk, and how a file there is replaced."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def cache_folder() -> Path:
    """Return the folder: $ULLAGE_CACHE, or ullage's in the user's cache.

    Example:
        >>> os.environ["ULLAGE_CACHE"] = "my-cache"
        >>> str(cache_folder())
        'my-cache'
        >>> del os.environ["ULLAGE_CACHE"]
    """
    root = os.environ.get("ULLAGE_CACHE") or os.path.join(
        os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "ullage"
    )
    return Path(root)


def file_word(text: str) -> str:
    """Turn a name into a part of a file's name.

    Example:
        >>> file_word("NVIDIA H200")
        'NVIDIA-H200'
    """
    return "".join(char if char.isalnum() else "-" for char in text)


def keep(path: Path, text: str) -> bool:
    """Write a file, which appears whole or not at all.

    Args:
        path: The file; its folder is made.
        text: What it holds.

    Returns:
        Whether it was written: a folder that cannot be written to is no error.
    """
    part = path.with_suffix(f".{os.getpid()}.part")
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        part.write_text(text, encoding="utf-8")
        part.replace(path)
        return True
    return False
