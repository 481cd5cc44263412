"""The longest annotations of a recording, by name: what a program said it was doing, for a strip below a timeline."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ullage.trace import annotation_spans

if TYPE_CHECKING:
    from ullage.trace import DeviceTrace

_MAX_SPANS = 2000  # of one name


def named_spans(device: DeviceTrace, *, max_names: int) -> dict[str, list[tuple[int, int]]]:
    """Group a device's annotations by name; a number at a name's end is dropped.

    Args:
        device: The device.
        max_names: The largest number of names: those whose spans last longest in all.

    Returns:
        For each name, (begin, end) in microseconds since the first event, cut to the recorded time; the first 2,000. One
        whose end is not recorded goes on to the end.
    """
    first, last = device.span_us
    spans: dict[str, list[tuple[int, int]]] = {}
    for span in annotation_spans(device):
        begin, end = max(span.begin_us, first), min(last if span.end_us is None else span.end_us, last)
        if begin <= end:
            name = re.sub(r"[\s#:_-]*\d+$", "", span.name[:200])
            spans.setdefault(name, []).append((begin - first, end - first))
    longest = sorted(spans, key=lambda name: -sum(end - begin for begin, end in spans[name]))[:max_names]
    return {name: spans[name][:_MAX_SPANS] for name in spans if name in longest}
