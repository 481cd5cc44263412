"""Each check speaks on its case, and is silent on a control that differs in one thing."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.architecture.source_tree import PACKAGE, ROOT
from ullage.doctor import PoolFact, Recorded, RoundupCost, Setup, TorchRange, examine
from ullage.doctor.examine import CHECKS


def torch(text: str) -> TorchRange | None:
    return TorchRange.parse(text)


def recorded(conf: str = "", torch_version: str = "2.10 or 2.11", **facts: object) -> Setup:
    settings = facts.pop("settings", {})
    return Setup(conf=conf, torch=torch(torch_version), recorded=Recorded(settings=settings, **facts))  # type: ignore[arg-type]


def variable(name: str, conf: str, torch_version: str = "2.13.0") -> Setup:
    return Setup(conf=conf, variable=name, torch=torch(torch_version))


EXPANDABLE = "expandable_segments:True"
COST = {"device": 0, "plain_bytes": 1000}
POOL = PoolFact(device=0, pool="(0, 1)", reserved_bytes=20 << 20)
SAVER = frozenset({"torch_memory_saver"})

# check, severity, a setup that it speaks of, a control
CASES = [
    ("unknown_key", "error", Setup(conf="expandable_segment:True"), Setup(conf=EXPANDABLE)),
    ("unknown_key", "error", Setup(conf="max_split_size_mb"), Setup(conf="max_split_size_mb:64")),
    ("unknown_key", "warning", recorded("new_key:1", "2.12 or newer"), recorded("backend:native", "2.12 or newer")),
    ("refused_value", "error", Setup(conf="expandable_segments:true"), Setup(conf=EXPANDABLE)),
    ("refused_value", "error", Setup(conf="max_split_size_mb:10"), Setup(conf="max_split_size_mb:20")),
    *(
        ("newer_key", "error", Setup(conf=conf, torch=torch(old)), Setup(conf=conf, torch=torch(new)))
        for conf, old, new in [
            ("max_non_split_rounding_mb:64", "2.5.1", "2.6.0"),
            ("graph_capture_record_stream_reuse:True", "2.8.0", "2.9.0"),
            ("per_process_memory_fraction:0.5", "2.9.1", "2.10.0"),
            ("large_segment_size_mb:64", "2.10.0", "2.11.0"),
            ("large_segment_size_mb:64", "2.8 or 2.9", "2.10 or 2.11"),
            ("throw_on_cudamalloc_oom:True", "2.11.0", "2.12.0"),
            ("pinned_max_cached_size_mb:64", "2.12.1", "2.13.0"),
        ]
    ),
    ("split_with_expandable", "warning", Setup(conf=f"max_split_size_mb:64,{EXPANDABLE}"), Setup(conf=EXPANDABLE)),
    (
        "split_with_expandable",
        "error",
        Setup(conf=f"max_split_size_mb:64,{EXPANDABLE}", torch=torch("2.2.1")),
        Setup(conf="max_split_size_mb:64,expandable_segments:False", torch=torch("2.2.1")),
    ),
    (
        "split_with_expandable",
        "warning",
        recorded(EXPANDABLE, settings={"max_split_size": 64 << 20, "expandable_segments": True}),
        recorded(settings={"max_split_size": 64 << 20, "expandable_segments": False}),
    ),
    (
        "several_variables",
        "warning",
        Setup(conf=EXPANDABLE, variable="PYTORCH_CUDA_ALLOC_CONF", shadowed={"PYTORCH_ALLOC_CONF": "backend:native"}),
        Setup(conf=EXPANDABLE, variable="PYTORCH_CUDA_ALLOC_CONF", shadowed={"PYTORCH_ALLOC_CONF": EXPANDABLE}),
    ),
    (
        "ignored_variable",
        "warning",
        variable("PYTORCH_ALLOC_CONF", EXPANDABLE, "2.9.1+cu128"),
        variable("PYTORCH_CUDA_ALLOC_CONF", EXPANDABLE, "2.9.1+cu128"),
    ),
    (
        "ignored_variable",
        "warning",
        variable("PYTORCH_ALLOC_CONF", EXPANDABLE, "2.9.1"),
        variable("PYTORCH_ALLOC_CONF", EXPANDABLE, "2.11.0"),
    ),
    (
        "untaken_expandable",
        "warning",
        recorded(EXPANDABLE, settings={"expandable_segments": False}),
        recorded(EXPANDABLE, settings={"expandable_segments": True}),
    ),
    ("no_caching", "warning", Setup(no_caching="PYTORCH_NO_CUDA_MEMORY_CACHING"), Setup()),
    ("backend", "info", Setup(conf="backend:cudaMallocAsync"), Setup(conf="backend:native")),
    ("backend", "warning", Setup(conf="backend:cudaMallocAsync,max_split_size_mb:64"), Setup(conf="backend:native")),
    (
        "collection_without_cap",
        "warning",
        Setup(conf="garbage_collection_threshold:0.8"),
        Setup(conf="garbage_collection_threshold:0.8,per_process_memory_fraction:0.9"),
    ),
    (
        "collection_without_cap",
        "info",
        recorded(settings={"garbage_collection_threshold": 0.6}),
        recorded(settings={"garbage_collection_threshold": 0.0}),
    ),
    (
        "roundup_cost",
        "warning",
        recorded(roundup=(RoundupCost(rounded_bytes=1050, **COST),)),
        recorded(roundup=(RoundupCost(rounded_bytes=1009, **COST),)),
    ),
    (
        "roundup_cost",
        "info",
        recorded(roundup=(RoundupCost(rounded_bytes=1049, **COST),)),
        recorded(roundup=(RoundupCost(device=0, rounded_bytes=0, plain_bytes=0),)),
    ),
    ("idle_roundup", "info", Setup(conf="roundup_power2_divisions:1"), Setup(conf="roundup_power2_divisions:2")),
    (
        "idle_roundup",
        "info",
        Setup(conf="roundup_power2_divisions:[256:1,>:1]"),
        Setup(conf="roundup_power2_divisions:[256:1,>:8]"),
    ),
    ("memory_saver", "warning", Setup(conf=EXPANDABLE, packages=SAVER), Setup(conf=EXPANDABLE)),
    ("memory_saver", "warning", Setup(conf=EXPANDABLE, packages=SAVER), Setup(packages=SAVER)),
    ("fixed_pools", "info", recorded(fixed_pools=(POOL,)), recorded()),
    ("changed_settings", "warning", recorded(num_events=100, num_conflicts=3), recorded(num_events=100)),
    (
        "changed_settings",
        "info",
        recorded(settings={"expandable_segments": True}),
        recorded(EXPANDABLE, settings={"expandable_segments": True}),
    ),
    ("native_stacks", "info", recorded(native_frames=28.6, num_events=9), recorded(native_frames=0.0, num_events=9)),
]


@pytest.mark.parametrize(("check", "severity", "case", "control"), CASES)
def test_a_check_speaks_on_its_case_and_not_on_its_control(
    check: str, severity: str, case: Setup, control: Setup
) -> None:
    (advice,) = examine(case)
    assert (advice.check, advice.severity) == (check, severity)
    assert advice.title
    assert advice.why.endswith(".")
    assert advice.next_step.endswith(".")
    assert advice.source
    assert examine(control) == []


def test_the_most_severe_comes_first() -> None:
    setup = Setup(conf="backend:cudaMallocAsync,roundup_power2_divisions:1,expandable_segments:true")
    severities = [advice.severity for advice in examine(setup)]
    assert severities == ["error", "warning", "info"]


def test_a_misspelt_key_gets_its_nearest_name() -> None:
    (advice,) = examine(Setup(conf="max_split_size:128"))
    assert "max_split_size_mb" in advice.next_step


def names_of_checks() -> set[str]:
    text = "".join(path.read_text("utf-8") for path in Path(PACKAGE, "doctor").glob("*.py"))
    return set(re.findall(r'check="(\w+)"', text)) | set(re.findall(r'_refused\("(\w+)"', text))


def test_every_check_has_a_case_and_a_line_in_the_docs() -> None:
    names = names_of_checks()
    assert len(names) == len(CHECKS)
    assert names == {case[0] for case in CASES}
    rows = (ROOT / "docs" / "doctor.md").read_text("utf-8")
    assert names == set(re.findall(r"^\| `(\w+)` \|", rows, re.MULTILINE))


def test_the_room_does_not_import_torch() -> None:
    trees = [ast.parse(path.read_text("utf-8")) for path in Path(PACKAGE, "doctor").glob("*.py")]
    imported = {
        alias.name for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names
    }
    assert "torch" not in imported
