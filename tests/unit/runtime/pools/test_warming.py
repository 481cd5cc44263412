"""A warm pool serves a step without the driver; what does not fit is refused, and leaves nothing behind."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.runtime.pools.fake_allocator import MIB, FakeAllocator
from ullage.errors import DeviceError, RuntimeMemoryError
from ullage.runtime.pools import PoolNeeds, SegmentNeed, allocations_of, learn_needs, prewarm

Use = Callable[..., FakeAllocator]


def step_of(fake: FakeAllocator, requests: list[tuple[int, int]]) -> Callable[[], None]:
    """Return a step that holds all requests at once: sizes and streams."""

    def step() -> None:
        held = [fake.take(size, stream) for size, stream in requests]
        assert len(held) == len(requests)

    return step


def test_a_step_that_fits_asks_the_driver_for_nothing(use: Use) -> None:
    fake = use()
    step = step_of(fake, [(30 * MIB, 0), (12 * MIB, 0), (50 * MIB, 0)])
    done = prewarm(100 * MIB)
    assert (done.asked_bytes, done.reserved_bytes, done.num_device_allocs) == (100 * MIB, 100 * MIB, 1)
    assert allocations_of(step).num_device_allocs == 0
    assert fake.state().allocated_bytes == 0


def test_a_cold_pool_asks_for_each(use: Use) -> None:
    fake = use()
    seen = allocations_of(step_of(fake, [(30 * MIB, 0), (12 * MIB, 0), (MIB, 0)]))
    assert seen.num_device_allocs == 3
    assert seen.reserved_bytes == 44 * MIB


def test_sizes_are_held_at_the_same_time(use: Use) -> None:
    fake = use()
    prewarm([30 * MIB, 30 * MIB, 512, MIB, MIB])
    assert sorted(one.size for one in fake.held) == [2 * MIB, 2 * MIB, 30 * MIB, 30 * MIB]
    assert allocations_of(step_of(fake, [(30 * MIB, 0)] * 2 + [(MIB, 0)] * 2)).num_device_allocs == 0


def test_a_second_time_takes_nothing_more(use: Use) -> None:
    use()
    prewarm(64 * MIB)
    assert prewarm(64 * MIB).reserved_bytes == 0


REQUESTS = st.lists(st.tuples(st.integers(1, 40 * MIB), st.integers(0, 2)), min_size=1, max_size=20)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(REQUESTS)
def test_what_was_learned_is_reserved_again(use: Use, requests: list[tuple[int, int]]) -> None:
    first, streams = use(), [2, 0, 1]
    needs = learn_needs(step_of(first, requests), streams=streams)  # type: ignore[arg-type]
    second = use()
    done = prewarm(needs, streams=streams)  # type: ignore[arg-type]
    assert done.reserved_bytes == needs.size_bytes == first.state().reserved_bytes
    kinds = [sorted((one.size, one.stream, one.is_small) for one in fake.held) for fake in (first, second)]
    assert kinds[0] == kinds[1]


def test_a_learned_step_runs_without_the_driver_in_the_next_process(use: Use) -> None:
    requests = [(40 * MIB, 0), (5 * MIB, 0), (700_000, 0), (20 * MIB, 3)]
    needs = learn_needs(step_of(use(), requests), streams=[0, 3])  # type: ignore[list-item]
    assert needs.num_streams == 2
    fake = use()
    prewarm(needs, streams=[0, 3])  # type: ignore[list-item]
    assert allocations_of(step_of(fake, requests)).num_device_allocs == 0


@pytest.mark.parametrize("settings", [{"backend": "cudaMallocAsync"}, {"is_expandable": True}])
def test_where_a_pool_is_one_stretch_it_is_filled_by_one_request(use: Use, settings: dict[str, object]) -> None:
    fake = use(**settings)
    needs = PoolNeeds(segments=(SegmentNeed(size_bytes=30 * MIB), SegmentNeed(size_bytes=34 * MIB)))
    prewarm(needs)
    assert [one.size for one in fake.held] == [64 * MIB]


def test_whether_segments_grow_is_asked_once(use: Use, monkeypatch: pytest.MonkeyPatch) -> None:
    fake, asked = use(), list[bool]()
    del fake.is_expandable
    monkeypatch.setattr(FakeAllocator, "is_expandable", property(lambda self: bool(asked.append(True))), raising=False)
    prewarm(PoolNeeds(segments=tuple(SegmentNeed(size_bytes=size * MIB) for size in (30, 34, 38))))
    assert len(asked) == 1
    assert [one.size for one in fake.held] == [38 * MIB, 34 * MIB, 30 * MIB]


def test_without_a_snapshot_the_growth_is_learned(use: Use) -> None:
    fake = use(backend="cudaMallocAsync")
    assert learn_needs(step_of(fake, [(30 * MIB, 0)])).segments == (SegmentNeed(size_bytes=30 * MIB),)
    assert learn_needs(lambda: None).segments == ()


def test_only_what_the_step_took_is_learned(use: Use) -> None:
    fake = use()
    weights = fake.take(100 * MIB, None)
    cached = fake.take(50 * MIB, None)
    del cached
    needs = learn_needs(step_of(fake, [(50 * MIB, 0)]))
    assert needs.segments == (SegmentNeed(size_bytes=50 * MIB),)
    assert str(needs) == "50 MiB in 1 segment"
    assert weights is not None


def test_what_was_taken_on_other_streams_is_left_out_with_a_warning(use: Use) -> None:
    step = step_of(use(), [(30 * MIB, 0), (40 * MIB, 9)])
    with pytest.warns(UserWarning, match="took 40 MiB on streams that were not named"):
        needs = learn_needs(step)
    assert needs.segments == (SegmentNeed(size_bytes=30 * MIB),)


def test_pieces_are_no_larger_than_what_is_split(use: Use) -> None:
    fake = use()
    fake.most_split_bytes = 64 * MIB
    prewarm(150 * MIB)
    assert sorted(one.size for one in fake.held) == [22 * MIB, 64 * MIB, 64 * MIB]


def test_what_does_not_fit_is_refused_before_anything_is_taken(use: Use) -> None:
    fake = use(most_bytes=100 * MIB)
    with pytest.raises(RuntimeMemoryError, match="101 MiB do not fit: the GPU has 100 MiB free"):
        prewarm(101 * MIB)
    assert fake.num_device_allocs == fake.num_given_back == 0


def test_what_fails_on_the_way_is_given_back(use: Use) -> None:
    fake = use(most_bytes=100 * MIB)
    fake.says_free = 200 * MIB  # another process was faster
    with pytest.raises(RuntimeMemoryError, match=r"1 of 2 pieces did.*CUDA out of memory"):
        prewarm([60 * MIB, 60 * MIB])
    assert fake.held == []


@pytest.mark.parametrize("needs", [0, -5, [], [10, 0], PoolNeeds(segments=())])
def test_nothing_asked_for(use: Use, needs: int | list[int] | PoolNeeds) -> None:
    use()
    if isinstance(needs, PoolNeeds):
        assert prewarm(needs).reserved_bytes == 0
    else:
        with pytest.raises(RuntimeMemoryError, match="nothing was asked for"):
            prewarm(needs)


def test_a_missing_stream_is_named(use: Use) -> None:
    fake = use()
    needs = PoolNeeds(segments=(SegmentNeed(size_bytes=MIB * 30, stream=1),))
    with pytest.raises(RuntimeMemoryError, match="2 streams, and 1 given"):
        prewarm(needs)
    assert fake.held == []


def test_without_a_gpu_it_says_so() -> None:
    with pytest.raises(DeviceError, match="cpu is none"):
        prewarm(100, device="cpu")
