"""Which GPU and driver this is, asked of the driver's libraries: no torch, no CUDA context."""

from __future__ import annotations

import ctypes
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from ullage.errors import DeviceError
from ullage.units import plural

# cuda.h, CUdevice_attribute
_MULTIPROCESSOR_COUNT = 16
_L2_CACHE_SIZE = 38
_PAGEABLE_MEMORY_ACCESS = 88
_CONCURRENT_MANAGED_ACCESS = 89
_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES = 100

_DRIVER_FILE = Path("/proc/driver/nvidia/version")


class NoSuchGpuError(DeviceError):
    """The driver offers GPUs, but not the one that was asked for."""


@dataclass(frozen=True, kw_only=True)
class Identity:
    """A GPU as its driver describes it.

    Attributes:
        index: Its number among those that the process sees.
        name: Its name.
        uuid: Which of that name, as nvidia-smi writes it; "" where the driver does not say.
        driver: The driver's version.
        l2_bytes: Its cache.
        num_processors: Its multiprocessors.
        has_concurrent_managed: Whether host and GPU may use managed memory at once.
        has_pageable_access: Whether it can read what malloc gave.
        shares_page_tables: Whether it does so through the host's page tables.
    """

    index: int
    name: str
    uuid: str
    driver: str
    l2_bytes: int
    num_processors: int
    has_concurrent_managed: bool
    has_pageable_access: bool
    shares_page_tables: bool


def identify(index: int = 0) -> Identity:
    """Describe a GPU.

    Args:
        index: Its number among those that the process sees.

    Raises:
        DeviceError: There is no driver, or it offers no GPU.
        NoSuchGpuError: It offers GPUs, but not this one.

    Cost: loads and starts the driver; a process forked after that cannot use CUDA.
    """
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        raise DeviceError("no NVIDIA driver (libcuda.so.1) is installed here") from None
    if (code := driver.cuInit(0)) != 0:
        raise DeviceError(f"the NVIDIA driver offers no GPU (cuInit: error {code})")
    count = ctypes.c_int(0)
    driver.cuDeviceGetCount(ctypes.byref(count))
    if count.value == 0:
        raise DeviceError("the NVIDIA driver offers no GPU")
    if index >= count.value:
        raise NoSuchGpuError(f"there is no GPU {index}: the driver offers {plural(count.value, 'GPU')}, counted from 0")
    name = ctypes.create_string_buffer(256)
    handle = ctypes.c_int(0)
    driver.cuDeviceGet(ctypes.byref(handle), index)
    driver.cuDeviceGetName(name, len(name), handle)

    def attribute(number: int) -> int:
        value = ctypes.c_int(0)
        driver.cuDeviceGetAttribute(ctypes.byref(value), number, handle)
        return value.value

    return Identity(
        index=index,
        name=name.value.decode("utf-8", "replace"),
        uuid=_uuid(driver, handle),
        driver=_driver_version(driver),
        l2_bytes=attribute(_L2_CACHE_SIZE),
        num_processors=attribute(_MULTIPROCESSOR_COUNT),
        has_concurrent_managed=bool(attribute(_CONCURRENT_MANAGED_ACCESS)),
        has_pageable_access=bool(attribute(_PAGEABLE_MEMORY_ACCESS)),
        shares_page_tables=bool(attribute(_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES)),
    )


def _uuid(driver: ctypes.CDLL, handle: ctypes.c_int) -> str:
    """Return a GPU's uuid, or that of the part of one that this process sees."""
    raw = (ctypes.c_ubyte * 16)()
    with suppress(AttributeError):
        if driver.cuDeviceGetUuid_v2(raw, handle) == 0:
            return f"GPU-{UUID(bytes=bytes(raw))}"
    return ""


def _driver_version(driver: ctypes.CDLL) -> str:
    """Return the driver's version: by NVML, from the kernel module's file, or only the CUDA that it is for."""
    with suppress(OSError, AttributeError):
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
        text = ctypes.create_string_buffer(96)
        if nvml.nvmlInit_v2() == 0:
            has_version = nvml.nvmlSystemGetDriverVersion(text, len(text)) == 0
            nvml.nvmlShutdown()
            if has_version:
                return text.value.decode("ascii", "replace")
    with suppress(OSError):
        found = re.search(r"\s(\d{3}\.[\d.]+)\s", _DRIVER_FILE.read_text(errors="replace"))
        if found:
            return found[1]
    number = ctypes.c_int(0)
    driver.cuDriverGetVersion(ctypes.byref(number))
    return f"CUDA {number.value // 1000}.{number.value % 1000 // 10}"
