"""Measured configurations are kept for a GPU, and no file is an obstacle."""

from __future__ import annotations

from pathlib import Path

import pytest

from ullage.runtime.kv import DecodeConfig, KVFormat, PageLayout
from ullage.runtime.kv.tuning import ConfigStore, candidates, config_key

LAYOUT = PageLayout(format=KVFormat.named("int4"), num_kv_heads=8, head_dim=128)
CONFIG = DecodeConfig(num_warps=2, num_stages=3, num_splits=6)


def test_a_configuration_outlives_the_process(tmp_path: Path) -> None:
    path = tmp_path / "cache" / "kv.json"
    ConfigStore(path).put("a", CONFIG)
    assert ConfigStore(path).get("a") == CONFIG
    assert ConfigStore(path).get("b") is None
    assert [one.name for one in path.parent.iterdir()] == ["kv.json"]


@pytest.mark.parametrize("text", ["", "{", "[1]", '{"a": 3}', '{"a": {"num_warps": 2}}'])
def test_a_damaged_file_is_as_good_as_none(tmp_path: Path, text: str) -> None:
    path = tmp_path / "kv.json"
    path.write_text(text)
    store = ConfigStore(path)
    assert store.get("a") is None
    store.put("a", CONFIG)
    assert ConfigStore(path).get("a") == CONFIG


def test_where_nothing_can_be_written_it_is_kept_in_memory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    store = ConfigStore(tmp_path / "file" / "kv.json")
    store.put("a", CONFIG)
    assert store.get("a") == CONFIG


def test_batches_and_lengths_count_by_their_power_of_two() -> None:
    assert config_key(LAYOUT, 17, 32, 100) == config_key(LAYOUT, 32, 32, 128) != config_key(LAYOUT, 33, 32, 128)


def test_candidates_fill_the_gpu_and_leave_no_part_without_a_page() -> None:
    few = candidates(LAYOUT, 1, 3, 132)
    assert {one.num_splits for one in few} == {1, 2, 3}
    many = candidates(LAYOUT, 512, 1000, 132)
    assert {one.num_splits for one in many} == {1, 2}
