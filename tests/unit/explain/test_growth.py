"""Growth names what rises step after step, and is silent for what settles, goes or comes and goes."""

from __future__ import annotations

import pytest

from tests.unit.conftest import Load
from tests.unit.snapshot_builder import KIB, MIB, SimulatedOutOfMemoryError, SnapshotBuilder
from ullage.explain.growth import find_growth

KEPT = "train.py:7 step < train.py:20 main"
WORK = "train.py:8 step < train.py:20 main"


def loop(
    kept_bytes: list[int], *, kept_at: str = KEPT, annotated: bool = True, frees_after: int = 0
) -> SnapshotBuilder:
    """Return a loop that keeps so many bytes in each step (0: nothing), and frees each after so many steps (0: never).

    Sizes of 4 MiB fill segments of 20 MiB without tails.
    """
    one, kept = SnapshotBuilder(), []
    one.alloc(4 * MIB, "train.py:1 main")
    for step, size in enumerate(kept_bytes):
        if annotated:
            one.annotate(f"ProfilerStep#{step}")
        one.free(one.alloc(4 * MIB, WORK))
        if size:
            kept.append(one.alloc(size, kept_at))
        if frees_after and len(kept) > frees_after:
            one.free(kept.pop(0))
    return one


def test_a_block_kept_in_each_step_is_growth_at_its_line(load: Load) -> None:
    (growth,) = find_growth(load(loop([4 * MIB] * 10)).device())
    assert str(growth.site[0]) == "train.py:7 step"
    assert growth.bytes == 9 * 4 * MIB
    assert growth.evidence["bytes_per_step"] == 4 * MIB
    assert (growth.evidence["rising_steps"], growth.evidence["num_steps"]) == (9, 9)
    assert growth.severity == "warning"
    assert growth.title == "4 MiB more every step, 36 MiB in 9 steps: train.py:7 step"


def test_growth_is_found_without_annotations(load: Load) -> None:
    (growth,) = find_growth(load(loop([4 * MIB] * 10, annotated=False)).device())
    assert str(growth.site[0]) == "train.py:7 step"
    assert growth.evidence["steps_from"] == "the period of the request stream"


def test_growth_that_starts_late_says_since_when(load: Load) -> None:
    (growth,) = find_growth(load(loop([0] * 4 + [4 * MIB] * 12)).device())
    assert growth.evidence["bytes_per_step"] == 4 * MIB
    assert growth.evidence["first_step"] == 5
    assert growth.evidence["since_us"] > 0


@pytest.mark.parametrize(
    ("kept_bytes", "frees_after", "why"),
    [
        ([0] * 12, 0, "nothing is kept"),
        ([8 * MIB] * 3 + [0] * 12, 0, "a warm-up settles"),
        ([4 * MIB, 0, 4 * MIB, 4 * MIB, 0, 4 * MIB] + [0] * 14, 0, "a cache fills and stops"),
        ([4 * MIB] * 20, 3, "a window of three moves on"),
        ([64 * KIB] * 10, 0, "it is not worth a word"),
        ([4 * MIB] * 3, 0, "three steps are no trend"),
    ],
)
def test_what_settles_or_goes_is_not_growth(kept_bytes: list[int], frees_after: int, why: str, load: Load) -> None:
    assert find_growth(load(loop(kept_bytes, frees_after=frees_after)).device()) == [], why


def test_a_tensor_made_anew_and_larger_each_time_is_one_object(load: Load) -> None:
    one, held = SnapshotBuilder(), None
    for step in range(12):
        one.annotate(f"ProfilerStep#{step}")
        one.free(one.alloc(4 * MIB, WORK))
        larger = one.alloc(4 * MIB * (step + 1), KEPT)
        if held is not None:
            one.free(held)
        held = larger
    (growth,) = find_growth(load(one).device())
    assert "concatenation" in growth.why
    assert growth.evidence["num_blocks"] == 1
    assert "Allocate it once" in growth.next_step


def test_private_pools_have_a_finding_of_their_own(load: Load) -> None:
    one = SnapshotBuilder()
    for step in range(10):
        one.annotate(f"ProfilerStep#{step}")
        one.free(one.alloc(4 * MIB, WORK))
        one.alloc(4 * MIB, KEPT, pool=(0, step + 1))
    assert find_growth(load(one).device()) == []


def test_growth_that_ends_in_an_error_is_an_error(load: Load) -> None:
    one = SnapshotBuilder(limit_bytes=160 * MIB)
    for step in range(11):
        one.annotate(f"ProfilerStep#{step}")
        one.free(one.alloc(700, WORK))
        one.alloc(14 * MIB, KEPT)
    with pytest.raises(SimulatedOutOfMemoryError):
        one.alloc(14 * MIB, KEPT)
    (growth,) = find_growth(load(one).device())
    assert growth.severity == "error"
