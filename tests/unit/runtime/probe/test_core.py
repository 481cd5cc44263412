"""What was measured while something else worked on the same core does not count."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.runtime.probe.fake_gpu import GB, MIB, FakeGpu, made_up
from ullage.runtime.probe.core import CoreWatch, loop_ns
from ullage.runtime.probe.gpu import Block, Run
from ullage.runtime.probe.result import ProbeResult, Temperature, Way
from ullage.runtime.probe.timing import Timing, timing_of_round, timing_of_rounds

FREE_NS, SHARED_NS = 60_000.0, 105_000.0


class Core:
    """A core on which something else works now and then."""

    def __init__(self, is_shared: Sequence[bool]) -> None:
        self._is_shared = iter([False] * 100 + list(is_shared))  # a watch first looks a hundred times
        self.watch = CoreWatch(lambda: SHARED_NS if next(self._is_shared) else FREE_NS)

    def timing(self, times_ns: Sequence[float]) -> Timing:
        def measure(look: Run) -> Sequence[float]:
            for _ in times_ns:
                look()
            return times_ns

        found, loops = self.watch.timed(measure)
        return timing_of_round(found, self.watch.was_free(loops))


@given(st.data(), st.lists(st.floats(1_000, 1e9), min_size=1, max_size=30))
def test_what_lies_between_two_looks_at_a_free_core_counts(data: st.DataObject, times: list[float]) -> None:
    is_shared = data.draw(st.lists(st.booleans(), min_size=len(times) + 1, max_size=len(times) + 1))
    free = [time for time, (before, after) in zip(times, pairwise(is_shared), strict=True) if not (before or after)]
    got = Core(is_shared).timing(times)
    assert got.time_ns == max(round(float(np.percentile(free or times, 10))), 1)
    assert got.shared_percent == round(100 - 100 * len(free) / len(times))
    every = timing_of_round(times)
    assert (got.p10_ns, got.p90_ns, got.num_timed) == (every.p10_ns, every.p90_ns, every.num_timed)


@pytest.mark.parametrize(("num_free", "want"), [(3, 100), (2, 100), (1, 140)])
def test_rounds_on_a_shared_core_count_where_nearly_all_are_such(num_free: int, want: int) -> None:
    rounds = [timing_of_round([100.0], [True])] * num_free + [timing_of_round([140.0], [False])] * (20 - num_free)
    joined = timing_of_rounds(rounds)
    assert joined.time_ns == want
    assert joined.shared_percent == 100 - 5 * num_free


def test_a_loop_takes_time() -> None:
    assert 0 < min(loop_ns() for _ in range(10)) < 100_000_000


class Neighboured(FakeGpu):
    """A GPU whose host's core is shared for a share of the time, and then does things at seven tenths of its speed.

    Args:
        share: Of the time.
        seed: Of when.
    """

    def __init__(self, share: float, seed: int) -> None:
        super().__init__()
        self._share, self._random, self._is_shared = share, random.Random(seed), False

    def loop_ns(self) -> float:
        was, self._is_shared = self._is_shared, self._random.random() < self._share
        return SHARED_NS if was or self._is_shared else FREE_NS

    def copying(self, target: Block, source: Block, size_bytes: int) -> Run:
        free = super().copying(target, source, size_bytes)
        if "pageable" not in (target.kind, source.kind):
            return free
        more_ns = size_bytes / self.speeds.pageable * 1e9 * (1 / 0.7 - 1)

        def run() -> None:
            free()
            self.now_ns += more_ns * self._is_shared

        return run

    def allocation_ns(self, way: Way, temperature: Temperature, size_bytes: int) -> tuple[float, float]:
        allocate, free = super().allocation_ns(way, temperature, size_bytes)
        speed = 0.7 if self._is_shared else 1
        return allocate / speed, free / speed


def pageable(result: ProbeResult) -> Timing:
    read = {one.kind: one.read for one in result.kinds}["pageable"]
    assert read is not None
    assert read.timing is not None
    return read.timing


@pytest.mark.parametrize("share", [0.0, 0.2, 0.4])
def test_allocations_cost_the_same_however_often_the_core_is_shared(share: float) -> None:
    usual = made_up().allocations
    for got, want in zip(made_up(Neighboured(share, 4)).allocations, usual, strict=True):
        for point, as_usual in zip(got.points, want.points, strict=True):
            assert (point.allocate.time_ns, point.free.time_ns) == (as_usual.allocate.time_ns, as_usual.free.time_ns)
            assert point.allocate.num_timed == 51
            assert (point.allocate.shared_percent > 20) == (share > 0)


@pytest.mark.parametrize("share", [0.0, 0.3, 0.6, 0.8])
def test_two_probes_agree_however_often_the_core_is_shared(share: float) -> None:
    results = [made_up(Neighboured(share, seed), num_rounds=30) for seed in range(2)]
    free_ns = 2_000 + 64 * MIB / (12 * GB) * 1e9
    for result in results:
        timing = pageable(result)
        assert timing.time_ns == pytest.approx(free_ns, rel=1e-3)
        assert timing.drift_percent == 0
        assert timing.shared_percent >= 100 * share - 10
        said = "its core had other work too" in " ".join(str(result).split())
        assert said == (share > 0.1)


def test_without_looks_the_same_two_probes_would_differ() -> None:
    """The control: all measurements count, of a core that is shared for 95 % of the time, then for 70 %."""
    times = []
    for share in (0.95, 0.7):
        gpu = Neighboured(share, 3)
        look = gpu.loop_ns
        gpu.loop_ns = lambda look=look: look() and FREE_NS  # type: ignore[method-assign, misc]
        times.append(pageable(made_up(gpu, num_rounds=30)).time_ns)
    assert times[0] > 1.05 * times[1]
