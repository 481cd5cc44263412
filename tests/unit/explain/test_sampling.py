"""Instants for a drawing: no maximum is lost, and each column begins with the state that it is handed."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from tests.recordings import COMPLETE, PARTIAL, device_of
from tests.unit.conftest import Load
from tests.unit.snapshot_builder import MIB, SnapshotBuilder
from ullage.explain.sampling import column_bounds, counters_after, extreme_events, highest_events
from ullage.trace import NONE


def test_a_column_holds_the_state_that_it_begins_with() -> None:
    values, bounds = np.asarray([5, 9, 2]), np.asarray([0, 2, 2, 3])
    assert highest_events(values, 7, bounds).tolist() == [1, 1, 1]
    assert highest_events(values, 10, bounds).tolist() == [NONE, 1, 1]


def test_of_equal_maxima_in_a_column_the_first_event_that_reaches_it_is_taken() -> None:
    assert highest_events(np.asarray([3, 8, 8, 1]), 0, np.asarray([0, 4])).tolist() == [1]


@pytest.mark.parametrize("num_columns", [1, 7, 80])
@pytest.mark.parametrize("name", sorted({*COMPLETE, *PARTIAL}))
def test_the_peaks_are_among_the_samples_of_every_recording(name: str, num_columns: int) -> None:
    device = device_of(name)
    sums = counters_after(device, extreme_events(device, num_columns))
    assert sums.allocated_bytes.max() == device.peak.allocated_bytes
    assert sums.active_bytes.max() == device.peak.active_bytes
    assert sums.reserved_bytes.max() == device.peak.reserved_bytes


@pytest.mark.parametrize("num_columns", [1, 7, 80])
def test_each_column_keeps_its_own_extremes(num_columns: int) -> None:
    device = device_of("split_mix")
    events = extreme_events(device, num_columns)
    bounds = column_bounds(device.since_start_us, num_columns)
    allocated = device.counters.allocated_bytes
    for begin, end in pairwise(bounds.tolist()):
        kept = allocated[events[(events >= begin) & (events < end)]]
        if begin < end:
            assert (kept.min(), kept.max()) == (allocated[begin:end].min(), allocated[begin:end].max())
            assert end - 1 in events


def test_the_state_before_the_recording_is_the_first_sample(load: Load) -> None:
    one = SnapshotBuilder()
    one.alloc(12 * MIB)
    device = load(one).device()
    events = extreme_events(device, 10)
    assert events.tolist() == [NONE, 0, 1]
    assert counters_after(device, events).allocated_bytes.tolist() == [0, 0, 12 * MIB]
