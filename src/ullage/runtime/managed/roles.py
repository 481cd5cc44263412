"""What a managed tensor is for, and what the driver is told about it: one table.

| role | advice | is moved by a schedule |
|---|---|---|
| moved | none: it lies where it was touched, or brought to, last | to the GPU before it is used; back to the host behind |
| lookup | read-mostly: each processor that reads it keeps a copy, until one writes | to the GPU once; it stays |
| cache | preferred location the GPU | to the GPU once; it stays |
| shared | accessed by every GPU that reads it: they keep it mapped, wherever it moves | as moved |
| seldom | preferred location the host, accessed by the GPU: it is read across the link, and does not move | never |
| scratch | preferred location the GPU | to the GPU before it is used, as room without content; discarded behind |

Source: CUDA 13.0, `cudaMemAdvise`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, StrEnum

from ullage.errors import RuntimeMemoryError

HOST = -1
"""The host, where a GPU's number is asked for."""


class Advice(Enum):
    """What CUDA can be told about a range; the values are CUDA's (`cudaMemoryAdvise`)."""

    READ_MOSTLY = 1
    PREFERRED_LOCATION = 3
    ACCESSED_BY = 5


class Place(Enum):
    """Whom a piece of advice names."""

    HOST = "the host"
    GPU = "the GPU that the tensor is made for"
    READERS = "all GPUs that read it"


class Behind(Enum):
    """What a schedule does with a range behind the module that used it, where memory is short."""

    EVICT = "moved back to the host"
    STAY = "kept on the GPU"
    DISCARD = "discarded: what it held is lost"
    NEVER_MOVED = "left on the host from the beginning"


class Role(StrEnum):
    """What a managed tensor is for; the module's table says what each role means."""

    MOVED = "moved"
    LOOKUP = "lookup"
    CACHE = "cache"
    SHARED = "shared"
    SELDOM = "seldom"
    SCRATCH = "scratch"


@dataclass(frozen=True)
class RoleRules:
    """What follows from a role.

    Attributes:
        advice: What the driver is told, each with whom it names.
        behind: What a schedule does behind the module that used it.
    """

    advice: tuple[tuple[Advice, Place], ...]
    behind: Behind


RULES = {
    Role.MOVED: RoleRules((), Behind.EVICT),
    Role.LOOKUP: RoleRules(((Advice.READ_MOSTLY, Place.GPU),), Behind.STAY),
    Role.CACHE: RoleRules(((Advice.PREFERRED_LOCATION, Place.GPU),), Behind.STAY),
    Role.SHARED: RoleRules(((Advice.ACCESSED_BY, Place.READERS),), Behind.EVICT),
    Role.SELDOM: RoleRules(
        ((Advice.PREFERRED_LOCATION, Place.HOST), (Advice.ACCESSED_BY, Place.READERS)), Behind.NEVER_MOVED
    ),
    Role.SCRATCH: RoleRules(((Advice.PREFERRED_LOCATION, Place.GPU),), Behind.DISCARD),
}


def role_named(name: Role | str) -> Role:
    """Return a role by its name.

    Args:
        name: A role, or what it is called.

    Raises:
        RuntimeMemoryError: There is no such role.
    """
    try:
        return Role(name)
    except ValueError:
        raise RuntimeMemoryError(f"there is no role {str(name)!r}; roles: {', '.join(Role)}") from None
