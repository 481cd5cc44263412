"""Two probes of a machine are compared: what is as it was is not said."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from tests.unit.runtime.probe.fake_gpu import GB, HOST, FakeGpu, Speeds, made_up
from ullage.runtime.probe.changes import changes_between, speeds
from ullage.runtime.probe.result import Machine, ProbeResult


def probed(date: str = "2026-11-30T14:42:30+00:00", **changed: float) -> ProbeResult:
    result = made_up(FakeGpu(replace(Speeds(), **changed)))  # type: ignore[arg-type]
    return replace(result, machine=replace(result.machine, date=date))


def test_nothing_is_said_where_all_speeds_are_as_they_were() -> None:
    found = changes_between(probed(), probed(pinned=56 * GB, fault=1.8 * GB))
    assert (str(found), found.changed) == ("", ())
    assert found.num_speeds == len(list(speeds(probed()))) > 20


def test_what_changed_is_said_the_largest_change_first() -> None:
    before = probed()
    found = changes_between(before, probed(date="later", pageable=11 * GB, pinned=25 * GB))
    by_name = {one.name: one for one in found.changed}
    assert by_name["copy pinned to_gpu"].share == pytest.approx(25 / 55 - 1, rel=0.01)
    assert by_name["pageable read"].share == pytest.approx(11 / 12 - 1, rel=0.01)
    assert not any("managed" in name or "stride" in name for name in by_name)
    shares = [abs(one.share) for one in found.changed]
    assert shares == sorted(shares, reverse=True)
    text = str(found)
    assert text.startswith("Not as in the probe of 2026-11-30 14:42: ")
    assert "copy pinned to gpu 55 GB/s, now 25 GB/s (-55 %); copy pinned to host 55 GB/s" in text
    assert "pinned read" not in text  # the same link
    assert text.endswith(f"(-8 %). {found.num_speeds - len(shares)} of {found.num_speeds} are within 5 %.")


def test_no_more_than_four_are_named() -> None:
    text = str(changes_between(probed(), probed(pinned=25 * GB, device=3000 * GB, fault=GB)))
    assert text.count("now") == 4
    assert re.search(r"; and \d+ more\. ", text)


def test_a_speed_that_only_one_has_is_not_compared() -> None:
    broken = made_up(FakeGpu(broken={"managed": "not supported"}))
    found = changes_between(made_up(), broken)
    assert found.changed == ()
    assert found.num_speeds == len(list(speeds(broken))) < len(list(speeds(made_up())))
    host = ProbeResult(machine=Machine(), host=HOST, why_no_gpu="none")
    assert changes_between(host, made_up()).num_speeds == 0
