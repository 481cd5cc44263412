"""Allocator policies: what PYTORCH_CUDA_ALLOC_CONF can say, checked as PyTorch checks it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ullage.errors import ReplayError

if TYPE_CHECKING:
    from collections.abc import Callable

    from ullage import _core
    from ullage.trace import Trace

_MIB = 1 << 20
_NUM_BUCKETS = 16

# Settings that do not shape device memory; accepted and left alone (torch 2.14, c10/core/AllocatorConfig.h).
NEUTRAL_KEYS = frozenset(
    {
        "release_lock_on_cudamalloc",
        "graph_capture_record_stream_reuse",
        "throw_on_cudamalloc_oom",
        "pinned_use_cuda_host_register",
        "pinned_num_register_threads",
        "pinned_use_background_threads",
        "pinned_reserve_segment_size_mb",
        "pinned_free_catch_all",
        "pinned_max_round_threshold_mb",
        "pinned_max_cached_size_mb",
    }
)


@dataclass(frozen=True, kw_only=True)
class Policy:
    """The settings of PyTorch's caching allocator that shape memory.

    Attributes:
        max_split_size_bytes: Blocks of at least this size are never split; None: no limit.
        max_non_split_rounding_bytes: By how much such a block may exceed its request.
        roundup_power2_divisions: Divisions for each power of two from 1 MiB to 32 GiB; 0 and 1 are off.
        garbage_collection_threshold: A share of the cap; 0 is off. Without a cap it does nothing.
        expandable_segments: One growing segment for each stream and pool.
        large_segment_size_bytes: The segment for requests between 1 and 10 MiB.
        memory_fraction: `per_process_memory_fraction` of the GPU; 1 is no limit.

    Raises:
        ReplayError: A value is out of its range.
    """

    max_split_size_bytes: int | None = None
    max_non_split_rounding_bytes: int = 20 * _MIB
    roundup_power2_divisions: tuple[int, ...] = field(default=(0,) * _NUM_BUCKETS)
    garbage_collection_threshold: float = 0.0
    expandable_segments: bool = False
    large_segment_size_bytes: int = 20 * _MIB
    memory_fraction: float = 1.0

    def __post_init__(self) -> None:
        if self.max_split_size_bytes is not None and self.max_split_size_bytes < 20 * _MIB:
            raise ReplayError("max_split_size_mb must be at least 20")
        if self.max_non_split_rounding_bytes < 20 * _MIB:
            raise ReplayError("max_non_split_rounding_mb must be at least 20")
        if not 0 <= self.garbage_collection_threshold < 1:
            raise ReplayError("garbage_collection_threshold must be from 0 to below 1")
        if not 0 < self.memory_fraction <= 1:
            raise ReplayError("per_process_memory_fraction must be above 0 and at most 1")
        if self.large_segment_size_bytes < 2 * _MIB:
            raise ReplayError("large_segment_size_mb must be at least 2")
        if len(self.roundup_power2_divisions) != _NUM_BUCKETS or any(
            d < 0 or d & (d - 1) for d in self.roundup_power2_divisions
        ):
            raise ReplayError("roundup_power2_divisions must be powers of two, or 0")

    def conf(self) -> str:
        """Return the value of PYTORCH_CUDA_ALLOC_CONF that sets this policy; "" for the defaults."""
        parts = []
        if self.expandable_segments:
            parts.append("expandable_segments:True")
        if self.max_split_size_bytes is not None:
            parts.append(f"max_split_size_mb:{self.max_split_size_bytes // _MIB}")
        if self.max_non_split_rounding_bytes != 20 * _MIB:
            parts.append(f"max_non_split_rounding_mb:{self.max_non_split_rounding_bytes // _MIB}")
        roundup = _roundup_conf(self.roundup_power2_divisions)
        if roundup:
            parts.append(f"roundup_power2_divisions:{roundup}")
        if self.garbage_collection_threshold:
            parts.append(f"garbage_collection_threshold:{self.garbage_collection_threshold:g}")
        if self.large_segment_size_bytes != 20 * _MIB:
            parts.append(f"large_segment_size_mb:{self.large_segment_size_bytes // _MIB}")
        if self.memory_fraction != 1:
            parts.append(f"per_process_memory_fraction:{self.memory_fraction:g}")
        return ",".join(parts)

    def to_core(self, cap_bytes: int | None = None) -> _core.ModelPolicy:
        """Return the core's form of the policy, under a cap on reserved memory."""
        from ullage import _core

        policy = _core.ModelPolicy()
        if self.max_split_size_bytes is not None:
            policy.max_split_size = self.max_split_size_bytes
        policy.max_non_split_rounding = self.max_non_split_rounding_bytes
        policy.large_segment_size = self.large_segment_size_bytes
        policy.expandable_segments = self.expandable_segments
        policy.garbage_collection = self.garbage_collection_threshold
        for bucket, divisions in enumerate(self.roundup_power2_divisions):
            policy.set_roundup(bucket, divisions)
        if cap_bytes is not None:
            policy.cap = cap_bytes
        return policy


def _roundup_conf(divisions: tuple[int, ...]) -> str:
    active = tuple(d if d > 1 else 0 for d in divisions)
    if not any(active):
        return ""
    if len(set(active)) == 1:
        return str(active[0])
    # The first boundary sets all up to it, ">" all that follow; in between each power of two is named by itself.
    changes = [bucket for bucket in range(_NUM_BUCKETS - 1) if active[bucket] != active[bucket + 1]]
    parts = [f"{1 << bucket}:{max(active[bucket], 1)}" for bucket in range(changes[0], changes[-1] + 1)]
    return "[" + ",".join([*parts, f">:{max(active[-1], 1)}"]) + "]"


def parse_conf(conf: str) -> Policy:
    """Read a value of PYTORCH_CUDA_ALLOC_CONF.

    Args:
        conf: For example "expandable_segments:True,roundup_power2_divisions:[256:1,512:2,>:8]"; "" is the defaults.

    Raises:
        ReplayError: A key is unknown, or a value is not what PyTorch accepts. `backend:cudaMallocAsync` is another
            allocator, not a setting of this one.

    Example:
        >>> parse_conf("max_split_size_mb:128").max_split_size_bytes
        134217728
        >>> parse_conf("roundup_power2_divisions:[256:1,512:2,>:8]").roundup_power2_divisions[7:12]
        (1, 1, 2, 8, 8)
    """
    policy = Policy()
    for key, value in split_conf(conf):
        if key in NEUTRAL_KEYS:
            continue
        if key == "backend":
            if value != "native":
                raise ReplayError(f"backend:{value} is another allocator: use --model")
            continue
        if key not in _PARSERS:
            known = ", ".join(sorted(_PARSERS))
            raise ReplayError(f"{key!r} is no allocator setting (those that shape memory: {known})")
        policy = _PARSERS[key](policy, key, value)
    return policy


def split_conf(conf: str) -> list[tuple[str, str]]:
    """Split a configuration string into its keys and values; commas inside brackets do not part.

    Raises:
        ReplayError: A part is not of the form key:value.
    """
    parts = [part.strip() for part in re.split(r",(?![^\[]*\])", conf) if part.strip()]
    out = []
    for part in parts:
        key, colon, value = part.partition(":")
        if not colon or not value.strip():
            raise ReplayError(f"{part!r} is not of the form key:value")
        out.append((key.strip(), value.strip()))
    return out


def recorded_policy(trace: Trace) -> Policy:
    """Return the policy that a recording was made under, as far as the file says it.

    Args:
        trace: The recording; its settings are those at the end of the run.
    """
    settings = trace.settings
    conf = str(settings.get("PYTORCH_CUDA_ALLOC_CONF", ""))
    extra = {
        key: value for key, value in _lenient(conf) if key in ("large_segment_size_mb", "max_non_split_rounding_mb")
    }
    policy = Policy()
    for key, value in extra.items():
        policy = _PARSERS[key](policy, key, value)
    split = settings.get("max_split_size", -1)
    divisions = tuple(int(settings.get(f"roundup_power2_divisions.{1 << i}", 0) or 0) for i in range(_NUM_BUCKETS))
    return replace(
        policy,
        max_split_size_bytes=int(split) if isinstance(split, int) and split > 0 else None,
        roundup_power2_divisions=divisions,
        garbage_collection_threshold=float(settings.get("garbage_collection_threshold", 0.0) or 0.0),
        expandable_segments=bool(settings.get("expandable_segments", False)),
    )


def _lenient(conf: str) -> list[tuple[str, str]]:
    try:
        return split_conf(conf)
    except ReplayError:
        return []


def _megabytes(key: str, value: str) -> int:
    if not value.isdigit():
        raise ReplayError(f"{key} takes a number of MiB, not {value!r}")
    return int(value) * _MIB


def _fraction(key: str, value: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise ReplayError(f"{key} takes a number, not {value!r}") from None


def _flag(key: str, value: str) -> bool:
    if value not in ("True", "False"):
        raise ReplayError(f"{key} takes True or False (spelt so), not {value!r}")
    return value == "True"


def _divisions(key: str, value: str) -> tuple[int, ...]:
    if value.isdigit():
        return (int(value),) * _NUM_BUCKETS
    if not re.fullmatch(r"\[.*\]", value):
        raise ReplayError(f"{key} takes a number, or a list such as [256:1,512:2,>:8], not {value!r}")
    divisions = [0] * _NUM_BUCKETS
    begin = 0
    last = 0
    for part in value[1:-1].split(","):
        boundary, colon, number = (piece.strip() for piece in part.partition(":"))
        if not colon or not number.isdigit():
            raise ReplayError(f"{key}: {part!r} is not of the form MiB:divisions")
        last = int(number)
        if boundary == ">":
            divisions[begin:] = [last] * (_NUM_BUCKETS - begin)
            return tuple(divisions)
        if not boundary.isdigit() or int(boundary) & (int(boundary) - 1) or int(boundary) == 0:
            raise ReplayError(f"{key}: {boundary!r} is no power of two in MiB")
        bucket = min(int(boundary).bit_length() - 1, _NUM_BUCKETS - 1)
        # The first boundary also covers all below it (AllocatorConfig.cpp, parseRoundUpPower2Divisions).
        divisions[0 if begin == 0 else bucket : bucket + 1] = [last] * (bucket + 1 - (0 if begin == 0 else bucket))
        begin = bucket + 1
    return tuple(divisions)


_PARSERS: dict[str, Callable[[Policy, str, str], Policy]] = {
    "max_split_size_mb": lambda p, k, v: replace(p, max_split_size_bytes=_megabytes(k, v)),
    "max_non_split_rounding_mb": lambda p, k, v: replace(p, max_non_split_rounding_bytes=_megabytes(k, v)),
    "roundup_power2_divisions": lambda p, k, v: replace(p, roundup_power2_divisions=_divisions(k, v)),
    "garbage_collection_threshold": lambda p, k, v: replace(p, garbage_collection_threshold=_fraction(k, v)),
    "expandable_segments": lambda p, k, v: replace(p, expandable_segments=_flag(k, v)),
    "large_segment_size_mb": lambda p, k, v: replace(p, large_segment_size_bytes=_megabytes(k, v)),
    "per_process_memory_fraction": lambda p, k, v: replace(p, memory_fraction=_fraction(k, v)),
}
