"""Checks of the configuration string itself: torch stops at the first key or value that it does not take."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

from ullage.doctor.advice import Advice
from ullage.doctor.keys import KEYS, NEWEST

if TYPE_CHECKING:
    from ullage.doctor.setup import Setup
    from ullage.doctor.torch_range import Version

_SOURCE = "parseArgs in c10/core/AllocatorConfig.cpp and c10/cuda/CUDAAllocatorConfig.cpp"
_STOPS = "torch raises an error when it first reads the string, at the first use of the GPU."


def check_keys(setup: Setup) -> list[Advice]:
    """Report parts that are no key:value, and keys that torch does not know."""
    found = []
    for part in setup.parts:
        key, colon, value = part.partition(":")
        if not colon or not value:
            found.append(_refused("unknown_key", f"{part!r} is not of the form key:value", "Write key:value."))
        elif key not in KEYS:
            near = get_close_matches(key, KEYS, n=1)
            step = f"Did you mean {near[0]}? Else take it out." if near else "Take it out."
            if setup.torch is not None and (setup.torch.high is None or setup.torch.high[:2] > NEWEST):
                title = f"{key} is no setting of torch up to {_words(NEWEST)}, and this torch may be newer"
                found.append(_refused("unknown_key", title, step, is_sure=False))
            else:
                found.append(_refused("unknown_key", f"{key} is no allocator setting", step))
    return found


def check_values(setup: Setup) -> list[Advice]:
    """Report values that torch refuses."""
    found = []
    for key, value in setup.values.items():
        complaint = KEYS[key].complaint(value) if key in KEYS else ""
        if complaint:
            step = f"Write {key}:{value.capitalize()}." if value in ("true", "false") else f"{key} {complaint}."
            found.append(_refused("refused_value", f"{key}:{value} is refused: it {complaint}", step))
    return found


def check_newer_keys(setup: Setup) -> list[Advice]:
    """Report keys that this torch does not know yet. A recording whose versions may know the key was made with it."""
    found: list[Advice] = []
    if setup.torch is None:
        return found
    for key in setup.values:
        since = KEYS[key].since if key in KEYS else None
        if since is not None and setup.torch.is_before(since):
            title = f"{key} needs torch {_words(since)}; this is {setup.torch}"
            found.append(_refused("newer_key", title, f"Take it out, or update torch to {_words(since)}."))
    return found


def check_idle_roundup(setup: Setup) -> list[Advice]:
    """Report divisions that are all 0 or 1: both are off."""
    value = setup.values.get("roundup_power2_divisions", "")
    numbers = [part.rpartition(":")[2] for part in value.strip("[]").split(",")]
    if not value or any(number not in ("0", "1") for number in numbers):
        return []
    return [
        Advice(
            check="idle_roundup",
            severity="info",
            title=f"roundup_power2_divisions:{value} does nothing",
            why="One division of a power of two is the power itself: torch rounds only from two divisions on.",
            next_step="Take it out, or use 4 or 8.",
            source="round_size in c10/cuda/CUDACachingAllocator.cpp",
        )
    ]


def _refused(check: str, title: str, next_step: str, *, is_sure: bool = True) -> Advice:
    return Advice(
        check=check,
        severity="error" if is_sure else "warning",
        title=title,
        why=_STOPS if is_sure else f"Where torch does not know it: {_STOPS}",
        next_step=next_step,
        source=_SOURCE,
    )


def _words(version: Version) -> str:
    return ".".join(str(part) for part in version)
