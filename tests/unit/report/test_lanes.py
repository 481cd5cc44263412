"""Lanes: in one lane spans nest or do not meet, whatever they are."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ullage.report.lanes import nesting_lanes, nesting_order, separate_lanes

Spans = list[tuple[int, int]]
SPANS = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)).map(sorted).map(tuple), max_size=60)


def columns(spans: Spans) -> tuple[np.ndarray, np.ndarray]:
    return np.asarray([s for s, _ in spans], np.int64), np.asarray([e for _, e in spans], np.int64)


@given(SPANS)
def test_spans_in_a_separate_lane_do_not_meet_and_no_lane_is_too_many(spans: Spans) -> None:
    lanes = separate_lanes(*columns(spans)).tolist()
    for lane in set(lanes):
        mine = sorted(span for span, its in zip(spans, lanes, strict=True) if its == lane)
        assert all(end <= start for (_, end), (start, _) in pairwise(mine))
    at_once = [sum(start <= now < end for start, end in spans) for now in range(31)]
    if all(start < end for start, end in spans):
        assert len(set(lanes)) == max(at_once)


@given(SPANS)
def test_spans_in_a_nesting_lane_begin_and_end_like_brackets(spans: Spans) -> None:
    starts, ends = columns(spans)
    rows, begins = nesting_order(nesting_lanes(starts, ends), starts, ends)
    lanes = nesting_lanes(starts, ends)
    assert sorted(rows[begins].tolist()) == sorted(rows[~begins].tolist()) == list(range(len(spans)))
    open_rows: list[int] = []
    last: dict[int, int] = {}
    for row, is_begin in zip(rows.tolist(), begins.tolist(), strict=True):
        time = int(starts[row] if is_begin else ends[row])
        assert last.get(int(lanes[row]), 0) <= time
        last[int(lanes[row])] = time
        if is_begin:
            open_rows.append(row)
        else:
            assert open_rows.pop() == row


def test_spans_that_nest_share_a_lane() -> None:
    assert nesting_lanes(*columns([(0, 10), (1, 5), (2, 3), (5, 10)])).tolist() == [0, 0, 0, 0]


def test_a_thousand_spans_that_all_cross_still_get_lanes_of_their_own() -> None:
    spans = [(i, 2000 + i) for i in range(1000)]
    assert len(set(nesting_lanes(*columns(spans)).tolist())) == 1000
