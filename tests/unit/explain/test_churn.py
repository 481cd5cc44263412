"""Retries and releases that are asked for again are counted; a few releases are not worth a word."""

from __future__ import annotations

import pytest

from tests.unit.conftest import Load
from tests.unit.snapshot_builder import MIB, SimulatedOutOfMemoryError, SnapshotBuilder
from ullage.explain.churn import find_churn


def growing(num_requests: int) -> SnapshotBuilder:
    """Return requests that each release the block of the one before, just too small."""
    one = SnapshotBuilder(limit_bytes=200 * MIB)
    for number in range(num_requests):
        one.free(one.alloc((110 + 2 * number) * MIB, "train.py:3 step"))
        one.wait(1000)
    return one


def test_each_release_that_a_request_forced_is_a_retry(load: Load) -> None:
    (churn,) = find_churn(load(growing(5)).device())
    assert (churn.evidence["retries"], churn.evidence["num_device_free"]) == (4, 4)
    assert churn.bytes == sum(110 + 2 * number for number in range(4)) * MIB
    assert str(churn.site[0]) == "train.py:3 step"
    assert {burst["reason"] for burst in churn.evidence["bursts"]} == {"retry"}
    assert churn.severity == "warning"
    assert "make the largest request first" in churn.next_step


def test_the_largest_request_first_needs_no_retry(load: Load) -> None:
    one = SnapshotBuilder(limit_bytes=200 * MIB)
    for number in reversed(range(5)):
        one.free(one.alloc((110 + 2 * number) * MIB))
    assert find_churn(load(one).device()) == []


def emptied(num_times: int, *, below: str = "train.py:5 step", wait_us: int = 0) -> SnapshotBuilder:
    one = SnapshotBuilder()
    for _ in range(num_times):
        one.free(*[one.alloc(30 * MIB, "train.py:3 step") for _ in range(2)])
        one.empty_cache(f"torch/cuda/memory.py:224 empty_cache < {below}")
        one.wait(wait_us)
    return one


def forced(settings: dict[str, float]) -> SnapshotBuilder:
    """Return requests that each make the allocator release what the one before left, under some settings."""
    one = SnapshotBuilder(limit_bytes=200 * MIB, settings=settings)
    for number in range(25):
        one.free(one.alloc((110 + 2 * number) * MIB, "train.py:3 step"))
    return one


def test_an_empty_cache_in_every_step_is_churn_but_no_retry(load: Load) -> None:
    (churn,) = find_churn(load(emptied(25)).device())
    assert churn.evidence["retries"] == 0
    assert {burst["reason"] for burst in churn.evidence["bursts"]} == {"empty_cache"}
    assert str(churn.site[0]) == "train.py:5 step"
    assert churn.bytes == 24 * 60 * MIB
    assert "empty_cache()" in churn.next_step


def test_a_few_releases_are_not_worth_a_word(load: Load) -> None:
    assert find_churn(load(emptied(5)).device()) == []


def test_what_torch_releases_before_a_capture_is_not_the_users_to_drop(load: Load) -> None:
    assert find_churn(load(emptied(25, below="torch/cuda/graphs.py:249 __enter__ < train.py:5 step")).device()) == []


def test_many_bytes_given_back_in_next_to_no_time_are_no_warning(load: Load) -> None:
    (churn,) = find_churn(load(emptied(25, wait_us=100_000)).device())
    assert (churn.severity, churn.bytes > churn.evidence["num_device_free"] * MIB) == ("info", True)
    (slow,) = find_churn(load(emptied(25)).device())
    assert slow.severity == "warning"


@pytest.mark.parametrize(
    ("settings", "reason", "advice"),
    [
        ({}, "retry", "make the largest request first"),
        ({"garbage_collection_threshold": 0.6}, "garbage_collection", "garbage_collection_threshold"),
        ({"max_split_size": 64 * MIB}, "max_split_release", "max_split_size_mb"),
    ],
)
def test_the_advice_is_for_the_reason_of_most_bytes(
    settings: dict[str, float], reason: str, advice: str, load: Load
) -> None:
    (churn,) = find_churn(load(forced(settings)).device())
    assert churn.evidence["reason"] == reason
    assert advice in churn.next_step
    assert ("empty_cache" in churn.next_step, "largest retry" in churn.why) == (False, reason == "retry")


def test_an_out_of_memory_error_implies_a_retry_even_if_it_released_nothing(load: Load) -> None:
    one = growing(3)
    keep = one.alloc(100 * MIB, "train.py:4 keep")
    with pytest.raises(SimulatedOutOfMemoryError):
        one.alloc(150 * MIB, "train.py:9 step")
    one.free(keep)
    (churn,) = find_churn(load(one).device())
    assert churn.evidence["retries"] == 3
    assert churn.title.startswith("3 allocator retries: ")


@pytest.mark.parametrize("settings", [{}, {"garbage_collection_threshold": 0.6}])
def test_releases_directly_before_an_error_are_its_retry(settings: dict[str, float], load: Load) -> None:
    one = SnapshotBuilder(limit_bytes=100 * MIB, settings=settings)
    one.free(one.alloc(90 * MIB))
    with pytest.raises(SimulatedOutOfMemoryError):
        one.alloc(150 * MIB)
    (churn,) = find_churn(load(one).device())
    assert churn.evidence["retries"] == 1
    assert churn.title.startswith("1 allocator retry: 1 driver release,")
