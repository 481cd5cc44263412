"""What was learned is kept in a file, and what is no such file is refused in one line."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ullage.errors import RuntimeMemoryError
from ullage.runtime.pools import PoolNeeds, SegmentNeed

SEGMENTS = st.builds(SegmentNeed, size_bytes=st.integers(1, 1 << 40), is_small=st.booleans(), stream=st.integers(0, 5))


@given(st.lists(SEGMENTS, max_size=8))
def test_what_is_saved_is_loaded(tmp_path_factory: pytest.TempPathFactory, segments: list[SegmentNeed]) -> None:
    path = tmp_path_factory.mktemp("needs") / "needs.json"
    needs = PoolNeeds(segments=tuple(segments))
    needs.save(path)
    assert PoolNeeds.load(path) == needs


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        "[" * 100_000,
        '{"version": 2, "segments": []}',
        '{"version": 1, "segments": [[0, true, 0]]}',
        '{"version": 1, "segments": [["9", true, 0]]}',
        '{"version": 1, "segments": [[9, true]]}',
        '{"version": 1, "segments": 3}',
        "\0",
    ],
)
def test_another_file_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "needs.json"
    path.write_text(text)
    with pytest.raises(RuntimeMemoryError, match="does not say what a pool needs"):
        PoolNeeds.load(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(RuntimeMemoryError, match=r"none\.json"):
        PoolNeeds.load(tmp_path / "none.json")
