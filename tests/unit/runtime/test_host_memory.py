"""What the host has free, as it and the process's container say."""

from __future__ import annotations

from pathlib import Path

import pytest

from ullage.errors import RuntimeMemoryError
from ullage.runtime import host_memory
from ullage.runtime.host_memory import free_host_bytes
from ullage.runtime.probe import measure


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A host with 100 KiB available, in no container."""
    (tmp_path / "meminfo").write_text("MemTotal: 400 kB\nMemAvailable: 100 kB\n")
    monkeypatch.setattr(host_memory, "_MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr(host_memory, "_CGROUP", tmp_path)
    return tmp_path


def test_without_a_container_all_that_is_available_is_free(host: Path) -> None:
    assert free_host_bytes() == 100 * 1024
    (host / "memory.max").write_text("max\n")
    (host / "memory.current").write_text("5000\n")
    assert free_host_bytes() == 100 * 1024


@pytest.mark.parametrize(("used", "cached", "free"), [(60_000, 0, 20_000), (60_000, 15_000, 35_000), (90_000, 0, 0)])
def test_a_container_leaves_what_it_does_not_use_and_its_cache_of_files(
    host: Path, used: int, cached: int, free: int
) -> None:
    (host / "memory.max").write_text("80000\n")
    (host / "memory.current").write_text(f"{used}\n")
    (host / "memory.stat").write_text(f"anon 7\ninactive_file {cached}\nactive_file 9\n")
    assert free_host_bytes() == free


def test_where_the_host_does_not_say_a_probe_goes_on_with_small_blocks(host: Path) -> None:
    assert measure._host_bytes() == 100 * 1024
    (host / "meminfo").write_text("MemTotal: 400 kB\n")
    with pytest.raises(RuntimeMemoryError, match="has no MemAvailable"):
        free_host_bytes()
    (host / "meminfo").unlink()
    with pytest.raises(RuntimeMemoryError, match="does not say what it has free"):
        free_host_bytes()
    assert measure._host_bytes() == 0
