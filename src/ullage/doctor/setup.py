"""What the checks look at: the settings in force, where they came from, and what a recording shows of them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ullage.doctor.torch_range import TorchRange


@dataclass(frozen=True, kw_only=True)
class RoundupCost:
    """What the live blocks of one device's peak are rounded up to, with and without `roundup_power2_divisions`."""

    device: int
    rounded_bytes: int
    plain_bytes: int


@dataclass(frozen=True, kw_only=True)
class PoolFact:
    """A private pool that got segments of fixed size while expandable segments were on."""

    device: int
    pool: str
    reserved_bytes: int


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """What a recording shows.

    Attributes:
        settings: The allocator's settings at its end, by name.
        num_events: Events of all devices.
        num_conflicts: Events that contradict the state before them.
        native_frames: C++ frames in an average stack.
        roundup: One entry for each device, where divisions are on.
        fixed_pools: Private pools that expandable segments did not reach.
    """

    settings: Mapping[str, bool | int | float | str] = field(default_factory=dict)
    num_events: int = 0
    num_conflicts: int = 0
    native_frames: float = 0.0
    roundup: tuple[RoundupCost, ...] = ()
    fixed_pools: tuple[PoolFact, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Setup:
    """The settings to check.

    Attributes:
        conf: The string in force, as in PYTORCH_CUDA_ALLOC_CONF.
        variable: The environment variable it came from; "" where a recording holds it, or none is set.
        shadowed: The variables that are set too, and lose.
        no_caching: The variable that turns the caching allocator off; "" where none does.
        torch: The torch versions it may be; None: unknown.
        packages: Installed packages that the checks know of.
        recorded: What a recording shows; None where the environment is checked.
    """

    conf: str = ""
    variable: str = ""
    shadowed: Mapping[str, str] = field(default_factory=dict)
    no_caching: str = ""
    torch: TorchRange | None = None
    packages: frozenset[str] = frozenset()
    recorded: Recorded | None = None

    @cached_property
    def parts(self) -> tuple[str, ...]:
        """The string's parts; commas inside brackets do not part, and blanks do not count."""
        conf = self.conf.replace(" ", "")
        return tuple(part for part in re.split(r",(?![^\[]*\])", conf) if part)

    @cached_property
    def values(self) -> dict[str, str]:
        """The string's keys and values; of a key that is there twice, the last."""
        return {key: value for key, colon, value in (part.partition(":") for part in self.parts) if colon and value}

    def is_on(self, key: str) -> bool:
        """Tell whether a switch is on: in the recorded settings, else in the string."""
        if self.recorded is not None and key in self.recorded.settings:
            return bool(self.recorded.settings[key])
        return self.values.get(key) == "True"

    @property
    def has_max_split(self) -> bool:
        """Whether blocks from some size on are never split."""
        limit = self.recorded.settings.get("max_split_size", -1) if self.recorded is not None else -1
        return "max_split_size_mb" in self.values or (isinstance(limit, int) and limit > 0)
