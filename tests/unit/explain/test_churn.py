"""Retries and releases that are asked for again are counted; a few releases are not worth a word."""

from __future__ import annotations

from tests.unit.conftest import Load
from tests.unit.snapshot_builder import MIB, SnapshotBuilder
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


def emptied(num_times: int) -> SnapshotBuilder:
    one = SnapshotBuilder()
    for _ in range(num_times):
        one.free(one.alloc(30 * MIB, "train.py:3 step"))
        one.empty_cache("torch/cuda/memory.py:224 empty_cache < train.py:5 step")
    return one


def test_an_empty_cache_in_every_step_is_churn_but_no_retry(load: Load) -> None:
    (churn,) = find_churn(load(emptied(25)).device())
    assert churn.evidence["retries"] == 0
    assert {burst["reason"] for burst in churn.evidence["bursts"]} == {"empty_cache"}
    assert str(churn.site[0]) == "train.py:5 step"
    assert churn.bytes == 24 * 30 * MIB
    assert "empty_cache()" in churn.next_step


def test_a_few_releases_are_not_worth_a_word(load: Load) -> None:
    assert find_churn(load(emptied(5)).device()) == []
