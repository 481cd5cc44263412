"""The text of a probe: the answer first, within 80 columns, whatever failed."""

from __future__ import annotations

import pytest

from tests.unit.runtime.probe.fake_gpu import GIB, HOST, MIB, FakeGpu, Speeds, made_up
from ullage.runtime.probe.result import Machine, ProbeResult


def test_the_answer_comes_first_then_advice_then_tables() -> None:
    parts = str(made_up()).split("\n\n")
    assert parts[0].startswith("NVIDIA H200: read 4.4 TB/s, copy 4.4 TB/s, L2 read 7 TB/s, pinned link 55 GB/s")
    assert parts[1].startswith("Small copies\n  Pack copies below ")
    assert [part.splitlines()[0].split()[0] for part in parts[2:]] == [
        "What",
        "Copies",
        "Allocate",
        "The",
        "Page",
        "The",
    ]


@pytest.mark.parametrize(
    "gpu",
    [
        FakeGpu(),
        FakeGpu(free=64 * MIB),
        FakeGpu(free=GIB, has_concurrent_managed=False, has_pageable_access=True),
        FakeGpu(Speeds(tlb_reach=1 << 50)),
        FakeGpu(broken=dict.fromkeys(("pinned", "pool", "cuda_malloc", "managed"), "x" * 90)),
        FakeGpu(broken=dict.fromkeys(("pageable", "pinned", "mapped", "managed", "device", "torch"), "out of memory")),
    ],
)
def test_no_line_is_wider_than_80_columns(gpu: FakeGpu) -> None:
    lines = str(made_up(gpu)).splitlines()
    assert [line for line in lines if len(line) > 80 and "x" * 90 not in line] == []
    assert [line for line in lines if line != line.rstrip()] == []


@pytest.mark.parametrize(("at_once", "least"), [(20_000, "15 ps"), (1e6, "0.3 ps")])
def test_an_access_of_the_whole_gpu_takes_picoseconds_and_never_nothing(at_once: float, least: str) -> None:
    text = str(made_up(FakeGpu(Speeds(gathered_at_once=at_once))))
    row = next(line for line in text.splitlines() if line.startswith("  gather"))
    assert f" {least} " in row
    assert " 0 ns" not in text


def test_a_row_that_failed_says_why() -> None:
    text = str(made_up(FakeGpu(broken={"managed": "needs cuda-bindings"})))
    assert "  managed, by fault     not measured: needs cuda-bindings" in text
    assert "  managed               not measured: needs cuda-bindings" in text


def test_without_a_gpu_one_line_says_why_and_the_host_follows() -> None:
    result = ProbeResult(machine=Machine(), host=HOST, why_no_gpu="no NVIDIA driver is installed here")
    first, rest = str(result).split("\n\n")
    assert first == "Only the host was measured: no NVIDIA driver is installed here."
    assert rest.startswith("The host's memory, one thread")
    assert "250 ns a page of 4 KiB" in rest
