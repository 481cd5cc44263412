from __future__ import annotations

import pytest

import ullage
from tests.recordings import EXAMPLE, device_of
from ullage.errors import ReplayError
from ullage.replay import Policy, parse_conf, policy_from, recorded_policy
from ullage.replay.policy import split_conf

MIB = 1 << 20


def test_the_defaults_are_an_empty_string() -> None:
    assert parse_conf("") == Policy()
    assert Policy().conf() == ""


@pytest.mark.parametrize(
    ("conf", "policy"),
    [
        ("expandable_segments:True", Policy(expandable_segments=True)),
        ("max_split_size_mb:64", Policy(max_split_size_bytes=64 * MIB)),
        ("garbage_collection_threshold:0.6", Policy(garbage_collection_threshold=0.6)),
        ("roundup_power2_divisions:4", Policy(roundup_power2_divisions=(4,) * 16)),
        ("large_segment_size_mb:64", Policy(large_segment_size_bytes=64 * MIB)),
        ("per_process_memory_fraction:0.5", Policy(memory_fraction=0.5)),
        (
            "roundup_power2_divisions:[256:1,512:2,>:8]",
            Policy(roundup_power2_divisions=(1,) * 9 + (2,) + (8,) * 6),
        ),
    ],
)
def test_each_setting_is_read(conf: str, policy: Policy) -> None:
    assert parse_conf(conf) == policy


@pytest.mark.parametrize(
    "policy",
    [
        Policy(),
        Policy(expandable_segments=True, roundup_power2_divisions=(8,) * 16),
        Policy(max_split_size_bytes=128 * MIB, large_segment_size_bytes=64 * MIB),
        Policy(garbage_collection_threshold=0.8, memory_fraction=0.25),
        Policy(roundup_power2_divisions=(0,) * 8 + (2,) * 4 + (4,) * 4),
    ],
)
def test_a_policy_writes_the_string_that_reads_back_to_it(policy: Policy) -> None:
    rounding = tuple(d if d > 1 else 0 for d in parse_conf(policy.conf()).roundup_power2_divisions)
    assert rounding == policy.roundup_power2_divisions
    assert parse_conf(policy.conf()).max_split_size_bytes == policy.max_split_size_bytes
    assert parse_conf(policy.conf()).expandable_segments == policy.expandable_segments


@pytest.mark.parametrize(
    ("conf", "complaint"),
    [
        ("expandable_segments:true", "True or False"),
        ("max_split_size_mb:10", "at least 20"),
        ("max_split_size_mb:many", "number of MiB"),
        ("garbage_collection_threshold:1.5", "from 0 to below 1"),
        ("roundup_power2_divisions:3", "powers of two"),
        ("roundup_power2_divisions:[100:2]", "no power of two"),
        ("split_size:3", "no allocator setting"),
        ("expandable_segments", "key:value"),
        ("per_process_memory_fraction:0", "above 0"),
    ],
)
def test_what_pytorch_refuses_is_refused(conf: str, complaint: str) -> None:
    with pytest.raises(ReplayError, match=complaint):
        parse_conf(conf)


def test_settings_that_do_not_shape_device_memory_are_left_alone() -> None:
    assert parse_conf("pinned_num_register_threads:8,release_lock_on_cudamalloc:True") == Policy()


def test_commas_inside_brackets_do_not_part() -> None:
    assert split_conf("a:[1:2,>:4], b:c") == [("a", "[1:2,>:4]"), ("b", "c")]


def test_the_other_backend_is_another_allocator() -> None:
    with pytest.raises(ReplayError, match="--model"):
        parse_conf("backend:cudaMallocAsync")
    assert policy_from("backend:cudaMallocAsync").conf() == "cudaMallocAsync"
    assert policy_from("backend:native") == Policy()


def test_the_recorded_policy_is_read_from_the_file() -> None:
    assert recorded_policy(ullage.load(EXAMPLE)) == Policy()
    assert recorded_policy(device_of("stranded_weights.exp").trace) == Policy(expandable_segments=True)
    assert recorded_policy(device_of("split_mix").trace).max_split_size_bytes == 64 * MIB
    assert recorded_policy(device_of("roundup").trace).roundup_power2_divisions[9:12] == (2, 4, 8)
