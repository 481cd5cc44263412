"""The last probe of each machine, on disk."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from ullage.errors import DeviceError
from ullage.runtime.cache_folder import cache_folder, file_word, keep
from ullage.runtime.probe.identity import NoSuchGpuError, identify
from ullage.runtime.probe.plain import from_plain
from ullage.runtime.probe.result import FORMAT, ProbeResult

if TYPE_CHECKING:
    from pathlib import Path


def probe_path(gpu: str, driver: str) -> Path:
    """Return where the last probe of a GPU under a driver is kept; of the host alone, where the names are empty.

    Example:
        >>> probe_path("NVIDIA H200", "580.159").name, probe_path("", "").name
        ('probe-NVIDIA-H200-driver-580-159.json', 'probe-host.json')
    """
    name = f"{file_word(gpu)}-driver-{file_word(driver)}" if gpu else "host"
    return cache_folder() / f"probe-{name}.json"


def keep_probe(result: ProbeResult) -> bool:
    """Keep a result in place of the last one.

    Returns:
        Whether it could be written.
    """
    path = probe_path(result.machine.gpu, result.machine.driver)
    return keep(path, json.dumps(result.to_json(), indent=1, ensure_ascii=False))


def known_probe(device: int = 0) -> ProbeResult | None:
    """Return the last result for this GPU and driver.

    Args:
        device: The GPU's number among those that the process sees.

    Returns:
        None: there is no GPU, or `ullage probe` was not run on it under this driver and by a version that is understood.

    Cost: starts the driver, but no context; reads a file.
    """
    try:
        found = identify(device)
    except DeviceError:
        return None
    return stored_probe(found.name, found.driver)


def last_probe(device: int = 0) -> ProbeResult | None:
    """Return the last result for this GPU and driver; where there is none, that of the host alone.

    The host alone was measured where there is no GPU, and where torch cannot use it.

    Raises:
        NoSuchGpuError: The driver offers GPUs, but not this one.
    """
    try:
        found = identify(device)
    except NoSuchGpuError:
        raise
    except DeviceError:
        return stored_probe("", "")
    return stored_probe(found.name, found.driver) or stored_probe("", "")


def stored_probe(gpu: str, driver: str) -> ProbeResult | None:
    """Return what is kept for a GPU and driver; None: nothing that can be read. Empty names: the host alone."""
    try:
        data = json.loads(probe_path(gpu, driver).read_text(encoding="utf-8"))
        return from_plain(ProbeResult, data) if data["format"] == FORMAT else None
    except (OSError, ValueError, TypeError, KeyError):
        return None
