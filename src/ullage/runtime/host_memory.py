"""How much memory the host, or the process's container, has free."""

from __future__ import annotations

from pathlib import Path

from ullage.errors import RuntimeMemoryError

_MEMINFO = Path("/proc/meminfo")
_CGROUP = Path("/sys/fs/cgroup")


def free_host_bytes() -> int:
    """Return what the host has free, or what the process's container leaves of it.

    Raises:
        RuntimeMemoryError: The system does not say, as where it is not Linux.
    """
    free = _meminfo("MemAvailable")
    limit, used = _number(_CGROUP / "memory.max"), _number(_CGROUP / "memory.current")
    if limit is None or used is None:
        return free
    return min(free, max(limit - used + _given_back(), 0))


def _given_back() -> int:
    """Return what the container counts as used, and the system gives back when it is asked for: the cache of files."""
    try:
        lines = (_CGROUP / "memory.stat").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) for line in lines if line.startswith("inactive_file "))


def _meminfo(field: str) -> int:
    try:
        lines = _MEMINFO.read_text().splitlines()
    except OSError as error:
        raise RuntimeMemoryError(f"the host does not say what it has free: {error}") from None
    for line in lines:
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    raise RuntimeMemoryError(f"{_MEMINFO} has no {field}")


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):  # no such limit, or "max"
        return None
