"""The torch version that wrote a snapshot, as far as its keys tell."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ullage import _core

# The first release that writes each key; the newest key present gives the lower bound. `pool_id` arrived in 2.12.
_KEY_SINCE = (
    ("pool_id", "2.12 or newer"),
    ("user_metadata", "2.10 or 2.11"),
    ("compile_context", "2.8 or 2.9"),
    ("external_annotations", "2.5 to 2.7"),
    ("allocator_settings", "2.3 or 2.4"),
    ("time_us", "2.2"),
    ("is_expandable", "2.1"),
)


def version_from_keys(tables: _core.Tables) -> str:
    """Return the range of torch versions that write a file's keys; "" where they do not tell.

    Args:
        tables: The file's tables.
    """
    if "category" in tables.seen_keys:
        return ""  # made from a profile, which has keys of its own
    seen = set(tables.seen_keys)
    return next((version for key, version in _KEY_SINCE if key in seen), "2.0" if "history" in seen else "")
