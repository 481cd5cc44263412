"""Loads NVIDIA's CUDA bindings when they are first needed, and turns CUDA's error codes into errors."""

from __future__ import annotations

from functools import cache
from typing import Any

from ullage.errors import DeviceError, RuntimeMemoryError

LEAST_VERSION = 13
"""The first major version whose calls take a location, and in batches."""

_OUT_OF_MEMORY = 2  # cudaErrorMemoryAllocation
_MISSING = {35, 36, 801}  # cudaErrorInsufficientDriver, cudaErrorCallRequiresNewerDriver, cudaErrorNotSupported
_INSTEAD = "ullage.runtime.weights for a model and ullage.runtime.pools.prewarm for a pool need torch alone"
_INSTALL = "install ullage's extra: pip install 'ullage[managed]'"


class NotOfferedError(DeviceError):
    """The driver does not have a call, or not for this GPU."""


@cache
def cuda_runtime() -> Any:
    """Return the module `cuda.bindings.runtime`.

    Raises:
        DeviceError: It is not installed, or too old.
    """
    try:
        import cuda.bindings
        from cuda.bindings import runtime
    except ImportError as error:
        raise DeviceError(
            f"managed memory and the driver's pools are reached through cuda-bindings, which is missing ({error}); "
            f"{_INSTALL}, or use ullage.runtime.weights, which needs torch alone"
        ) from None
    version = str(cuda.bindings.__version__)
    if int(version.partition(".")[0]) < LEAST_VERSION:
        raise DeviceError(f"cuda-bindings {version} is too old, {LEAST_VERSION} or newer is needed; {_INSTALL}")
    return runtime


def checked(result: tuple[Any, ...], what: str) -> Any:
    """Return what a call returned beside its error code.

    Args:
        result: The code, and at most one value.
        what: What was asked of CUDA, as a message says it.

    Raises:
        NotOfferedError: The driver does not have the call.
        RuntimeMemoryError: The call failed.
    """
    code = int(result[0])
    if code == 0:
        return result[1] if len(result) > 1 else None
    name = getattr(result[0], "name", f"error {code}")
    if code in _MISSING:
        raise NotOfferedError(
            f"{what}: this driver or GPU does not offer it ({name}); update the driver, or do without: {_INSTEAD}"
        )
    advice = "; free memory, or ask for less" if code == _OUT_OF_MEMORY else ""
    raise RuntimeMemoryError(f"{what}: CUDA says {name}{advice}")
