"""The table of keys: what each takes."""

from __future__ import annotations

import pytest

from ullage.doctor.keys import KEYS, NEWEST

GOOD = [
    "backend:native",
    "backend:cudaMallocAsync",
    "max_split_size_mb:20",
    "max_non_split_rounding_mb:64",
    "roundup_power2_divisions:8",
    "roundup_power2_divisions:[256:1,512:2,>:8]",
    "garbage_collection_threshold:0.8",
    "expandable_segments:True",
    "large_segment_size_mb:64",
    "per_process_memory_fraction:0.9",
    "pinned_num_register_threads:8",
    "pinned_reserve_segment_size_mb:1024",
    "release_lock_on_cudamalloc:False",
]
BAD = [
    "backend:cudamallocasync",
    "max_split_size_mb:19",
    "max_split_size_mb:128MB",
    "max_non_split_rounding_mb:10",
    "roundup_power2_divisions:3",
    "roundup_power2_divisions:[200:2]",
    "garbage_collection_threshold:0",
    "garbage_collection_threshold:1.0",
    "garbage_collection_threshold:high",
    "expandable_segments:true",
    "expandable_segments:1",
    "large_segment_size_mb:0",
    "per_process_memory_fraction:1.5",
    "pinned_num_register_threads:256",
    "pinned_num_register_threads:3",
    "pinned_reserve_segment_size_mb:lots",
]


@pytest.mark.parametrize("text", GOOD)
def test_what_torch_takes_has_no_complaint(text: str) -> None:
    key, _, value = text.partition(":")
    assert KEYS[key].complaint(value) == ""


@pytest.mark.parametrize("text", BAD)
def test_what_torch_refuses_has_one(text: str) -> None:
    key, _, value = text.partition(":")
    assert KEYS[key].complaint(value) != ""


def test_no_key_is_newer_than_the_newest() -> None:
    assert max(key.since for key in KEYS.values() if key.since) <= NEWEST
