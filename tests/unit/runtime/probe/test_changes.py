"""Two probes of a GPU are compared: what is as it was is not said."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import cycle
from pathlib import Path

import pytest

from tests.unit.runtime.probe.fake_gpu import GB, HOST, FakeGpu, Speeds, made_up
from ullage.runtime.probe.changes import _USUAL, Changes, SpeedChange, _memory, changes_between, speeds
from ullage.runtime.probe.result import ProbeResult

PAIRS = Path(__file__).parents[4] / "benchmarks" / "results" / "probe_pairs.json"


def probed(**changed: float) -> ProbeResult:
    result = made_up(FakeGpu(replace(Speeds(), **changed)))  # type: ignore[arg-type]
    return replace(result, machine=replace(result.machine, date="2026-11-30T14:42:30+00:00"))


def between(before: ProbeResult, now: ProbeResult) -> Changes:
    found = changes_between(before, now)
    assert found is not None
    return found


def test_nothing_is_said_where_host_and_link_were_only_busier() -> None:
    found = between(probed(), probed(pinned=51 * GB, fault=1.3 * GB, pageable=9 * GB, device=4300 * GB))
    assert (str(found), found.changed, found.missing) == ("", (), ())
    assert found.num_speeds == len(list(speeds(probed()))) == 35


def test_nothing_is_said_of_any_pair_that_was_measured() -> None:
    pairs = json.loads(PAIRS.read_text())["pairs"]
    assert len(pairs) >= 20
    for pair in pairs:
        far = {name: share for name, share in pair["differences"].items() if abs(share) > _USUAL[_memory(name)]}
        assert far == {}


def test_a_link_that_became_slow_is_named_once_for_each_way() -> None:
    found = between(probed(), probed(pinned=25 * GB))
    by_name = {one.name: one.share for one in found.changed}
    assert set(by_name) >= {
        "copy pinned to_gpu",
        "copy pinned to_host",
        "pinned first_read",
        "pinned read",
        "pinned write",
    }
    assert by_name["copy pinned to_gpu"] == pytest.approx(25 / 55 - 1, rel=0.01)
    assert {_memory(name) for name in by_name} == {"pinned"}
    assert str(found) == (
        "Not as in the probe of 2026-11-30 14:42 UTC: pinned, copied to the GPU: 55 GB/s, now 25 GB/s (-54.5 %); pinned, "
        f"copied to the host: 55 GB/s, now 25 GB/s (-54.5 %). {35 - len(by_name)} of 35 speeds are as they were."
    )


def test_the_gpus_own_memory_is_named_once_by_its_read() -> None:
    found = between(probed(), probed(device=3000 * GB))
    assert len(found.changed) > 10
    assert str(found).startswith(
        "Not as in the probe of 2026-11-30 14:42 UTC: the GPU's own memory, read: 4.4 TB/s, now 3 TB/s (-31.8 %). "
    )


def test_the_largest_changes_come_first_and_no_more_than_four_are_named() -> None:
    found = between(
        probed(), probed(device=3000 * GB, l2=5000 * GB, pinned=25 * GB, mapped=20 * GB, prefetch=90 * GB, fault=GB)
    )
    shares = [abs(one.share) for one in found.changed]
    assert shares == sorted(shares, reverse=True)
    text = str(found)
    assert text.count(", now ") == 4
    assert "; and " in text


def test_up_and_down_are_told_apart_and_a_stride_alone_is_named_for_what_it_is() -> None:
    changes = [
        SpeedChange(name="stride 64", was_bytes_per_s=100 * GB, bytes_per_s=50 * GB),
        SpeedChange(name="mapped read", was_bytes_per_s=50 * GB, bytes_per_s=70 * GB),
        SpeedChange(name="mapped first_read", was_bytes_per_s=50 * GB, bytes_per_s=40 * GB),
    ]
    assert str(Changes(since="2026-01-02T03:04:05+00:00", num_speeds=35, changed=tuple(changes))) == (
        "Not as in the probe of 2026-01-02 03:04 UTC: the GPU's own memory, 4 bytes in each 64 bytes: 100 GB/s, now 50 GB/s "
        "(-50.0 %); mapped, read: 50 GB/s, now 70 GB/s (+40.0 %); mapped, first read: 50 GB/s, now 40 GB/s (-20.0 %). 32 of "
        "35 speeds are as they were."
    )


def test_what_is_no_longer_measured_is_said() -> None:
    broken = made_up(FakeGpu(broken={"managed": "not supported"}))
    found = between(made_up(), broken)
    assert found.changed == ()
    assert found.num_speeds == len(list(speeds(broken))) == 35 - len(found.missing)
    assert str(found) == (
        "Measured in the probe of 2026-01-02 03:04 UTC, and not now: managed by fault, managed prefetched."
    )
    assert between(broken, made_up()).missing == ()


@pytest.mark.parametrize("uuids", list(zip(cycle(["GPU-1", ""]), ["GPU-2", "GPU-1", ""], strict=False)))
def test_only_probes_of_one_gpu_are_compared(uuids: tuple[str, str]) -> None:
    before, now = (replace(made_up(), machine=replace(made_up().machine, uuid=one)) for one in uuids)
    assert changes_between(before, now) is None
    host = ProbeResult(machine=replace(now.machine, gpu="", uuid=""), host=HOST, why_no_gpu="none")
    assert changes_between(before, host) is None
