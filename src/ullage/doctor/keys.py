"""Every key of the configuration string: since when torch knows it, and which values it takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ullage.errors import ReplayError
from ullage.replay import parse_conf

if TYPE_CHECKING:
    from collections.abc import Callable

    from ullage.doctor.torch_range import Version

NEWEST: Version = (2, 14)
"""The newest torch whose keys are listed."""


@dataclass(frozen=True, kw_only=True)
class Key:
    """A key: the first torch that knows it (None: all since 2.1), and what is wrong with a value ("": nothing)."""

    since: Version | None = None
    complaint: Callable[[str], str]


def _flag(value: str) -> str:
    return "" if value in ("True", "False") else "takes True or False, spelt so"


def _number(value: str) -> str:
    return "" if value.isdecimal() else "takes a whole number"


def _threads(value: str) -> str:
    number = int(value) if value.isdecimal() else 0
    return "" if 0 < number <= 128 and number & (number - 1) == 0 else "takes a power of two up to 128"


def _backend(value: str) -> str:
    known = ("native", "cudaMallocAsync", "hipMallocAsync")
    return "" if value in known else "takes native or cudaMallocAsync"


def _shaping(key: str) -> Callable[[str], str]:
    def complaint(value: str) -> str:
        try:
            parse_conf(f"{key}:{value}")
        except ReplayError as error:
            return str(error).removeprefix(f"{key} ").removeprefix(f"{key}: ")
        return ""

    return complaint


def _threshold(value: str) -> str:
    try:
        return "" if 0 < float(value) < 1 else "must be above 0 and below 1"
    except ValueError:
        return "takes a number above 0 and below 1"


KEYS: dict[str, Key] = {
    "backend": Key(complaint=_backend),
    "max_split_size_mb": Key(complaint=_shaping("max_split_size_mb")),
    "max_non_split_rounding_mb": Key(since=(2, 6), complaint=_shaping("max_non_split_rounding_mb")),
    "roundup_power2_divisions": Key(complaint=_shaping("roundup_power2_divisions")),
    "garbage_collection_threshold": Key(complaint=_threshold),
    "expandable_segments": Key(since=(2, 1), complaint=_flag),
    "large_segment_size_mb": Key(since=(2, 11), complaint=_shaping("large_segment_size_mb")),
    "release_lock_on_cudamalloc": Key(complaint=_flag),
    "release_lock_on_hipmalloc": Key(complaint=_flag),
    "graph_capture_record_stream_reuse": Key(since=(2, 9), complaint=_flag),
    "per_process_memory_fraction": Key(since=(2, 10), complaint=_shaping("per_process_memory_fraction")),
    "throw_on_cudamalloc_oom": Key(since=(2, 12), complaint=_flag),
    "pinned_use_cuda_host_register": Key(complaint=_flag),
    "pinned_use_hip_host_register": Key(complaint=_flag),
    "pinned_num_register_threads": Key(complaint=_threads),
    "pinned_use_background_threads": Key(since=(2, 6), complaint=_flag),
    "pinned_reserve_segment_size_mb": Key(since=(2, 10), complaint=_number),
    "pinned_free_catch_all": Key(since=(2, 12), complaint=_flag),
    "pinned_max_round_threshold_mb": Key(since=(2, 13), complaint=_number),
    "pinned_max_cached_size_mb": Key(since=(2, 13), complaint=_number),
}
