"""What the unit tests share: a snapshot that a test built, written and loaded as a file."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import ullage
from tests.unit.snapshot_builder import SnapshotBuilder

Load = Callable[..., ullage.Trace]
Save = Callable[..., str]


@pytest.fixture
def save(tmp_path: Path) -> Save:
    """Return a function that writes a builder, a snapshot or bytes to a file, and returns the path."""

    def write(content: SnapshotBuilder | dict[str, Any] | bytes, name: str = "snapshot.pickle") -> str:
        if isinstance(content, SnapshotBuilder):
            content = content.snapshot()
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else pickle.dumps(content, protocol=4))
        return str(path)

    return write


@pytest.fixture
def load(save: Save) -> Load:
    """Return a function that writes a builder, a snapshot or bytes to a file and loads it."""

    def read(content: SnapshotBuilder | dict[str, Any] | bytes, *, mine: str | None = None) -> ullage.Trace:
        return ullage.load(save(content), mine=mine)

    return read
