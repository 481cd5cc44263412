"""A recording whose every text tries to become markup, to run, to reverse what is around it, or to be a megabyte long."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

from tests.unit.report.hostile_names import NAMES
from tests.unit.snapshot_builder import MIB, SimulatedOutOfMemoryError, SnapshotBuilder

RUN = "window.hacked = 1"
TEXTS = (
    *NAMES,
    f"<script>{RUN}</script>",
    f"</script><script>{RUN}</script>",
    f"</noscript><script>{RUN}</script>",
    f"</title><script>{RUN}</script>",
    f"<img src=x onerror='{RUN}'>",
    f"<svg onload={RUN}>",
    "<!--",
    "-->",
    "]]>",
    "<![CDATA[",
    "&lt;b&gt; &amp; &#60;",
    "\"'`${window.hacked = 1}",
    "\x00nul\x7f",
    "\ud800\udfff\udc00",
    "\u202e\u2066\u200f\ufeff\u2028\u061c",
    "=HYPERLINK(1)\t\r\n",
    f"javascript:{RUN}",
    "__proto__",
    "constructor",
    "",
)
FILE_NAME = f'"><img src=x onerror="{RUN}"> <b> \u202egnp.{{}}\'&amp;.pickle'


def hostile_snapshot() -> dict[str, Any]:
    """Return a snapshot in which such texts stand wherever a snapshot has texts."""
    builder = SnapshotBuilder(limit_bytes=200 * MIB, settings={"PYTORCH_CUDA_ALLOC_CONF": TEXTS[0]})
    kept: list[int] = []
    for step in range(len(TEXTS)):
        builder.annotate(f"ProfilerStep#{step}")
        kept.append(builder.alloc(2 * MIB, f"kept.py:{step + 1} keep < loop.py:9 main"))
        builder.free(builder.alloc(3 * MIB, f"step.py:{step + 1} step < loop.py:9 main"))
    with pytest.raises(SimulatedOutOfMemoryError):
        builder.alloc(190 * MIB, "last.py:1 last")
    snapshot = builder.snapshot()
    for event in snapshot["device_traces"][0]:
        event["frames"] = [renamed(frame) for frame in event["frames"]]
        if event["action"] == "oom":
            event["device_free"] = 2**63 - 1
    for segment in snapshot["segments"]:
        segment["frames"] = [renamed(frame) for frame in segment["frames"]]
        for block in segment["blocks"]:
            block["frames"] = [renamed(frame) for frame in block["frames"]]
    for index, text in enumerate(TEXTS):
        snapshot["allocator_settings"][text] = text
        for stage in ("START", "END"):
            time_us = builder.now_us - 1000 + 10 * index
            snapshot["external_annotations"].append({"name": text, "stage": stage, "device": 0, "time_us": time_us})
    return snapshot


def renamed(frame: dict[str, Any]) -> dict[str, Any]:
    """Return a frame whose function and file are one of the texts."""
    text = TEXTS[frame["line"] % len(TEXTS)]
    return frame | {"name": text, "filename": f"{text}.py" if frame["filename"] == "kept.py" else frame["filename"]}


def write_hostile(folder: Path) -> Path:
    """Write the recording under a name that is no better; return its path."""
    path = folder / FILE_NAME.replace("/", "_")
    path.write_bytes(pickle.dumps(hostile_snapshot(), protocol=4))
    return path
