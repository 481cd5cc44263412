"""What the page holds of one GPU's recording: its blocks, segments, sites and findings, packed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ullage.explain.moment import event_of, span_of
from ullage.report.page.columns import DELTAS, PLAIN, pack
from ullage.report.summary_json import summary_json
from ullage.trace import BEFORE_FIRST, NO_STACK, NONE, annotation_spans, event_categories

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from ullage.explain import Finding
    from ullage.replay import WhatIf
    from ullage.trace import DeviceTrace, Frame

_LONGEST_TEXT = 400
_LONGEST_US = 1 << 52
_MOST_MARKS = 20_000

Columns = dict[str, tuple["NDArray[Any]", str]]


def rank_payload(device: DeviceTrace, findings: Sequence[Finding], what_ifs: Sequence[WhatIf], *, name: str) -> bytes:
    """Pack one GPU of one recording.

    Args:
        device: The GPU.
        findings: Its findings, in the order to show.
        what_ifs: Its requests under other settings, in the order to show.
        name: What to call it.

    Returns:
        A deflate stream, as `columns.pack` writes it.

    Cost: linear in the events, a few passes.
    """
    lines = _Lines(device)
    category, categories = _categories(device)
    columns = {
        "event_time": (np.minimum(device.since_start_us, _LONGEST_US), DELTAS),
        "step_starts": (device.steps.bounds(device.num_events)[:-1], DELTAS),
        **_block_columns(device, category),
        **_segment_columns(device),
        **lines.columns(),
    }
    summary = summary_json(device.trace, device=device.number)
    head = {
        "name": name,
        "torch_version": summary["torch_version"],
        "settings": {key: str(value) for key, value in summary["settings"].items()},
        "summary": summary["devices"][0],
        "num_events": device.num_events,
        "peak_event": device.event_at("peak"),
        "drawn_height": device.drawing.height,
        "findings": [_finding(device, finding, lines) for finding in findings],
        "lines": lines.listed,
        "files": lines.files,
        "functions": lines.functions,
        "what_if": [_what_if(one) for one in what_ifs],
        "ooms": _ooms(device, lines),
        "spans": _spans(device),
        "steps_from": device.steps.source,
        "pools": [device.pool_name(pool) for pool in range(len(device.trace.tables.pools))],
        "categories": categories,
    }
    return pack(_clipped_tree(head), columns)


def clipped(text: str) -> str:
    """Shorten a text that nobody could read to its end, and say how much is gone."""
    if len(text) <= _LONGEST_TEXT:
        return text
    return f"{text[:_LONGEST_TEXT]}… ({len(text) - _LONGEST_TEXT:,} more characters)"


def _clipped_tree(value: Any) -> Any:
    """Clip every text inside plain data."""
    if isinstance(value, str):
        return clipped(value)
    if isinstance(value, dict):
        return {clipped(str(key)): _clipped_tree(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_clipped_tree(one) for one in value]
    return value.item() if isinstance(value, np.generic) else value


class _Lines:
    """The lines that lead the sites, and the sites' frames; each file and function is listed once."""

    def __init__(self, device: DeviceTrace) -> None:
        sites = device.trace.sites
        self._tables, self._ranks = device.trace.tables, sites.frame_ranks
        self._frames = [sites.frame(frame_id) for frame_id in range(self._tables.num_frames)]
        lead_ids, self._line_of_site = np.unique(sites.leads, return_inverse=True)
        leads = [sites.frame(int(frame_id)) for frame_id in lead_ids]
        self._index = {frame: index for index, frame in enumerate(leads)}
        self._files = _Listing(frame.file for frame in [*self._frames, *leads])
        self._functions = _Listing(frame.function for frame in self._frames)
        self.listed = [
            {"file": self._files.index[frame.file], "line": frame.line, "function": frame.function} for frame in leads
        ]

    @property
    def files(self) -> list[str]:
        return list(self._files.index)

    @property
    def functions(self) -> list[str]:
        return list(self._functions.index)

    def index_of(self, stack: Sequence[Frame]) -> int | None:
        """Return the line that leads a stack; None where it leads no site."""
        return self._index.get(stack[0] if stack else NO_STACK)

    def columns(self) -> Columns:
        """Return sites and frames as columns; the frames of a site are innermost first."""
        return {
            "site_line": (self._line_of_site, PLAIN),
            "site_starts": (self._tables.site_starts, DELTAS),
            "site_frames": (self._tables.site_frames, PLAIN),
            "frame_file": (_ints(self._files.index[frame.file] for frame in self._frames), PLAIN),
            "frame_line": (_ints(frame.line for frame in self._frames), PLAIN),
            "frame_function": (_ints(self._functions.index[frame.function] for frame in self._frames), PLAIN),
            "frame_rank": (_ints(self._ranks), PLAIN),
        }


class _Listing:
    """Texts, each once, and the place of each."""

    def __init__(self, texts: Iterable[str]) -> None:
        self.index: dict[str, int] = {}
        for text in texts:
            self.index.setdefault(text, len(self.index))


def _ints(values: Iterable[int]) -> NDArray[np.int64]:
    return np.fromiter(values, dtype=np.int64)


def _block_columns(device: DeviceTrace, category: NDArray[np.int64]) -> Columns:
    """Return the blocks: `free` and `death` as distances from what comes before, sizes and sites as one of few kinds."""
    blocks, never = device.blocks, device.num_events
    birth = blocks.birth.astype(np.int64)
    freed = blocks.free_requested.astype(np.int64)
    freed = np.where(freed == NONE, never, np.where(freed == BEFORE_FIRST, birth, freed))
    death = np.where(blocks.death == NONE, never, blocks.death.astype(np.int64))
    kind, kinds = _kinds(blocks.size_bytes, blocks.requested_bytes, blocks.site, category)
    segment_address = device.segments.address
    place = (blocks.address - segment_address[blocks.segment]).astype(np.int64) if len(birth) else birth
    return {
        "block_birth": (birth, DELTAS),
        "block_life": (freed - birth, PLAIN),
        "block_wait": (death - freed, PLAIN),
        "block_kind": (kind, PLAIN),
        "block_segment": (blocks.segment, PLAIN),
        "block_place": (place, PLAIN),
        "block_drawn": (device.drawing.offset, PLAIN),
        "kind_size": (kinds[0], PLAIN),
        "kind_requested": (kinds[1], PLAIN),
        "kind_site": (kinds[2], PLAIN),
        "kind_category": (kinds[3], PLAIN),
    }


def _kinds(
    size: NDArray[np.int64], requested: NDArray[np.int64], site: NDArray[np.int32], category: NDArray[np.int64]
) -> tuple[NDArray[np.int64], list[NDArray[Any]]]:
    """Return which combination of values each block has, and the combinations."""
    if not len(size):
        return np.empty(0, np.int64), [size, requested, site, category]
    key = np.zeros(len(size), dtype=np.int64)
    for digit in (_ranks(size), _ranks(requested), site.astype(np.int64) + 1, category):
        radix = int(digit.max()) + 1
        if int(key.max()) > (1 << 62) // radix:
            key = _ranks(key)
        key = key * radix + digit
    _, first, kind = np.unique(key, return_index=True, return_inverse=True)
    return kind, [column[first] for column in (size, requested, site, category)]


def _ranks(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """Number the values from 0, by size."""
    return np.unique(values, return_inverse=True)[1].astype(np.int64)


def _categories(device: DeviceTrace) -> tuple[NDArray[np.int64], list[str]]:
    """Return which category each block has, from 1, 0 for none; and the categories' names."""
    birth = device.blocks.birth
    names: dict[str, int] = {}
    by_event = np.zeros(device.num_events + 1, dtype=np.int64)  # the last row is for what is older
    for event, name in event_categories(device).items():
        by_event[event] = names.setdefault(name, len(names) + 1)
    return by_event[np.where(birth == NONE, device.num_events, birth)], list(names)


def _segment_columns(device: DeviceTrace) -> Columns:
    segments = device.segments
    death = np.where(segments.death == NONE, device.num_events, segments.death.astype(np.int64))
    reserved = device.reserved_changes
    streams, stream = np.unique(segments.stream, return_inverse=True)
    return {
        "segment_birth": (segments.birth, DELTAS),
        "segment_death": (death, PLAIN),
        "segment_size": (segments.size_bytes, PLAIN),
        "segment_address_low": ((segments.address & np.uint64(0xFFFFFFFF)).astype(np.int64), PLAIN),
        "segment_address_high": ((segments.address >> np.uint64(32)).astype(np.int64), PLAIN),
        "segment_pool": (segments.pool, PLAIN),
        "segment_pool_size": (segments.pool_size, PLAIN),
        "segment_stream": (stream, PLAIN),
        "segment_expandable": (segments.is_expandable, PLAIN),
        "streams": (np.clip(streams, -(1 << 52), 1 << 52), PLAIN),
        "reserved_event": (reserved[0], DELTAS),
        "reserved_bytes": (reserved[1], DELTAS),
    }


def _finding(device: DeviceTrace, finding: Finding, lines: _Lines) -> dict[str, Any]:
    return finding.to_json() | {
        "event": event_of(device, finding),
        "span": span_of(device, finding),
        "on_line": lines.index_of(finding.site) if finding.site else None,
    }


def _what_if(one: WhatIf) -> dict[str, Any]:
    plain = one.to_json()
    plain["outcome"].pop("waste")
    return plain


def _ooms(device: DeviceTrace, lines: _Lines) -> list[dict[str, Any]]:
    events = device.events
    return [
        {
            "event": event,
            "bytes": int(events.size_bytes[event]),
            "device_free_bytes": device.device_free(event),
            "on_line": lines.index_of(device.trace.sites.user_stack(int(events.site[event]))),
        }
        for event in device.ooms()[:_MOST_MARKS].tolist()
    ]


def _spans(device: DeviceTrace) -> list[list[Any]]:
    first_us = device.span_us[0]
    return [
        [span.name, span.begin_us - first_us, None if span.end_us is None else span.end_us - first_us]
        for span in annotation_spans(device)[:_MOST_MARKS]
    ]
