"""The tables: one row for each event and block, null where there is nothing, and the same in Parquet and in JSON."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import duckdb
import polars
import pyarrow.parquet
import pytest

import ullage
from tests.recordings import EXAMPLE, path_of
from tests.unit.conftest import Load
from tests.unit.snapshot_builder import MIB, START_US, SnapshotBuilder, merged
from ullage.report.export_tables import export_tables, num_rows
from ullage.report.parquet import write_parquet
from ullage.report.tables_json import write_json

TABLES = {
    "events": "device event time_us action address size_bytes stream pool site",
    "counters": "device event requested_bytes allocated_bytes active_bytes reserved_bytes",
    "blocks": "device block birth_event free_requested_event death_event birth_us free_requested_us death_us "
    "is_freed_before_first address size_bytes requested_bytes state site segment is_open",
    "segments": "device segment birth_event death_event birth_us death_us address size_bytes stream pool pool_size "
    "is_expandable site",
    "sites": "site lead_frame lead num_frames",
    "site_frames": "site depth frame",
    "frames": "frame file line function kind",
    "annotations": "device time_us stage name",
    "steps": "device step first_event end_event source",
    "settings": "key value",
    "findings": "device bytes event kind severity title why next_step site evidence",
}
NAMES = ["graph_chain", "late_start", "metadata", "survivors", "wrapped", "context_state", "pending_end", "train_leak"]


def trace_named(name: str) -> ullage.Trace:
    return ullage.load(EXAMPLE if name == "train_leak" else path_of(name))


def tables_of(trace: ullage.Trace, device: int | None = None) -> dict[str, Any]:
    return export_tables(trace, ullage.explain(trace, device=device), device=device)


def as_json(trace: ullage.Trace, device: int | None = None) -> dict[str, dict[str, list[Any]]]:
    out = io.StringIO()
    write_json(out, {"path": trace.path}, tables_of(trace, device))
    plain = json.loads(out.getvalue())
    assert plain["path"] == trace.path
    tables: dict[str, dict[str, list[Any]]] = plain["tables"]
    return tables


def as_parquet(trace: ullage.Trace, folder: Path) -> Path:
    for name, table in tables_of(trace).items():
        write_parquet(str(folder / f"{name}.parquet"), table)
    return folder


# The running sum of what is allocated, from the blocks alone.
RUNNING_SUMS = """
with changes as (
  select device, coalesce(birth_event, -1) as event, size_bytes as change from '{0}/blocks.parquet'
  where not is_freed_before_first
  union all
  select device, free_requested_event, -size_bytes from '{0}/blocks.parquet' where free_requested_event is not null
), sums as (select device, event, sum(sum(change)) over (partition by device order by event) as allocated
            from changes group by device, event)
select max(allocated) from sums where device = {1}
"""


@pytest.mark.parametrize("name", NAMES)
def test_duckdb_and_polars_find_the_same_totals_as_the_trace(name: str, tmp_path: Path) -> None:
    trace = trace_named(name)
    device = trace.device()
    folder = as_parquet(trace, tmp_path)

    def asked(query: str) -> Any:
        (row,) = duckdb.sql(query.format(folder, device.number)).fetchall()
        return row[0]

    mine = polars.col("device") == device.number
    events = polars.read_parquet(folder / "events.parquet").filter(mine)
    blocks = polars.read_parquet(folder / "blocks.parquet").filter(mine)
    assert asked("select count(*) from '{0}/events.parquet' where device = {1}") == device.num_events == len(events)
    assert (
        asked("select count(*) from '{0}/blocks.parquet' where device = {1}") == len(device.blocks.birth) == len(blocks)
    )
    assert asked(RUNNING_SUMS) == device.peak.allocated_bytes

    live = (polars.col("birth_event").fill_null(-1) <= device.event_at("peak")) & (
        polars.col("free_requested_event").is_null() | (polars.col("free_requested_event") > device.event_at("peak"))
    )
    live &= ~polars.col("is_freed_before_first")
    assert blocks.filter(live)["size_bytes"].sum() == device.counters_at("peak").allocated_bytes
    oom = "select count(*) from '{0}/events.parquet' where action = 'oom' and device = {1}"
    assert asked(oom) == device.history.num_ooms == len(events.filter(polars.col("action") == "oom"))


@pytest.mark.parametrize("name", NAMES)
def test_the_counters_peak_where_the_device_does(name: str) -> None:
    trace = trace_named(name)
    device = trace.device()
    counters = as_json(trace, device.number)["counters"]
    for index, word in enumerate(("requested", "allocated", "active", "reserved")):
        before = device.history.before[index]
        assert max([before, *counters[f"{word}_bytes"]]) == device.peak[index]


@pytest.mark.parametrize("name", NAMES)
def test_parquet_and_json_hold_the_same_tables(name: str, tmp_path: Path) -> None:
    trace = trace_named(name)
    as_parquet(trace, tmp_path)
    tables = as_json(trace)
    assert {table: " ".join(columns) for table, columns in tables.items()} == TABLES
    for table, columns in tables.items():
        assert pyarrow.parquet.read_table(tmp_path / f"{table}.parquet").to_pydict() == columns
        assert {len(values) for values in columns.values()} == {num_rows(tables_of(trace)[table])}


def two_requests() -> SnapshotBuilder:
    one = SnapshotBuilder(settings={"max_split_size": -1}, records_pools=True)
    first = one.alloc(12 * MIB, "model.py:7 forward < train.py:3 main", pool=(3, 0))
    one.annotate("step 1")
    one.alloc(14 * MIB, "")
    one.request_free(first)
    return one


def test_rows_say_what_was_recorded_and_null_what_was_not(load: Load) -> None:
    tables = as_json(load(two_requests()))
    events, blocks = tables["events"], tables["blocks"]
    assert events["action"] == ["segment_alloc", "alloc", "segment_alloc", "alloc", "free_requested"]
    assert events["pool"] == ["(3, 0)", "(3, 0)", None, None, "(3, 0)"]
    assert [site is None for site in events["site"]] == [False, False, True, True, False]
    assert events["time_us"] == [START_US + 10 * i for i in range(5)]
    assert (blocks["birth_event"], blocks["birth_us"]) == ([1, 3], [START_US + 10, START_US + 30])
    assert (blocks["free_requested_event"], blocks["free_requested_us"]) == ([4, None], [START_US + 40, None])
    assert blocks["death_event"] == blocks["death_us"] == [None, None]
    assert blocks["state"] == ["active_pending_free", "active_allocated"]
    assert tables["segments"]["pool_size"] == ["large", "large"]
    assert (tables["annotations"]["name"], tables["annotations"]["stage"]) == (["step 1"] * 2, ["start", "end"])
    settings = dict(zip(tables["settings"]["key"], tables["settings"]["value"], strict=True))
    assert settings == {"PYTORCH_CUDA_ALLOC_CONF": '""', "expandable_segments": "false", "max_split_size": "-1"}


def test_a_site_leads_to_its_frames(load: Load) -> None:
    tables = as_json(load(two_requests()))
    site = tables["events"]["site"][1]
    assert tables["sites"]["lead"][site] == "model.py:7 forward"
    rows = [i for i, other in enumerate(tables["site_frames"]["site"]) if other == site]
    assert [tables["site_frames"]["depth"][i] for i in rows] == [0, 1]
    frames = [tables["site_frames"]["frame"][i] for i in rows]
    assert [tables["frames"]["function"][frame] for frame in frames] == ["forward", "main"]
    assert [tables["frames"]["line"][frame] for frame in frames] == [7, 3]
    assert [tables["frames"]["kind"][frame] for frame in frames] == ["user", "user"]


def test_a_block_that_waited_when_the_recording_began_is_told_from_one_that_was_never_freed(load: Load) -> None:
    one = two_requests()
    (first, _) = one.lives
    one.complete_free(first.address)
    snapshot = one.snapshot()
    snapshot["device_traces"] = [snapshot["device_traces"][0][-1:]]
    blocks = as_json(load(snapshot))["blocks"]
    assert sorted(
        zip(blocks["is_freed_before_first"], blocks["free_requested_event"], blocks["state"], strict=True)
    ) == [
        (False, None, "active_allocated"),
        (True, None, "inactive"),
    ]
    assert blocks["birth_event"] == [None, None]


def test_steps_follow_each_other_to_the_last_event() -> None:
    trace = trace_named("train_leak")
    steps = as_json(trace)["steps"]
    assert steps["step"] == list(range(1, len(trace.device().steps) + 1))
    assert steps["end_event"] == [*steps["first_event"][1:], trace.device().num_events]
    assert set(steps["source"]) == {trace.device().steps.source}


def test_findings_hold_the_event_that_they_are_about() -> None:
    findings = as_json(trace_named("survivors"))["findings"]
    row = findings["kind"].index("oom")
    assert findings["event"][row] == json.loads(findings["evidence"][row])["event"]
    assert findings["severity"][row] == "error"


def test_devices_are_one_below_the_other_or_one_alone(load: Load) -> None:
    devices = [SnapshotBuilder(device=number) for number in (0, 1)]
    for one in devices:
        one.alloc((12 + 2 * one.device) * MIB)
        one.annotate("step")
    trace = load(merged(*(one.snapshot() for one in devices)))
    blocks = as_json(trace)["blocks"]
    assert (blocks["device"], blocks["block"], blocks["size_bytes"]) == ([0, 1], [0, 0], [12 * MIB, 14 * MIB])
    alone = as_json(trace, 1)
    assert (alone["blocks"]["device"], alone["annotations"]["device"]) == ([1], [1, 1])


def test_a_recording_without_anything_has_the_same_columns(load: Load, tmp_path: Path) -> None:
    trace = load({"segments": [], "device_traces": [[]], "allocator_settings": {}, "external_annotations": []})
    tables = as_json(trace)
    assert {table: " ".join(columns) for table, columns in tables.items()} == TABLES
    assert all(values == [] for columns in tables.values() for values in columns.values())
    assert len(polars.read_parquet(as_parquet(trace, tmp_path) / "blocks.parquet")) == 0


def test_json_of_many_rows_is_in_pieces_that_join(monkeypatch: pytest.MonkeyPatch) -> None:
    trace = trace_named("survivors")
    whole = as_json(trace)
    monkeypatch.setattr("ullage.report.tables_json._CHUNK", 7)
    assert as_json(trace) == whole
    assert len(whole["events"]["event"]) > 14
