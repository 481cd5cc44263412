"""Reads the settings that a program started here would get. Torch is not imported."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

from ullage.doctor.setup import Setup
from ullage.doctor.torch_range import TorchRange

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

# The first that is set wins. Source: c10/cuda/CUDAAllocatorConfig.h, torch 2.13 (the second on ROCm only).
VARIABLES = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
_NO_CACHING = ("PYTORCH_NO_CUDA_MEMORY_CACHING", "PYTORCH_NO_HIP_MEMORY_CACHING")
_PACKAGES = ("torch_memory_saver",)


def installed_version(package: str) -> str:
    """Return the version of an installed package, "" where it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def setup_of_environment(environment: Mapping[str, str], installed: Callable[[str], str] = installed_version) -> Setup:
    """Return the settings that a program would get from environment variables.

    Args:
        environment: The variables, as `os.environ`.
        installed: Gives the version of an installed package, "" where it is not.
    """
    given = {name: environment[name] for name in VARIABLES if name in environment}
    variable = next(iter(given), "")
    return Setup(
        conf=given.get(variable, ""),
        variable=variable,
        shadowed={name: conf for name, conf in given.items() if name != variable},
        no_caching=next((name for name in _NO_CACHING if name in environment), ""),
        torch=TorchRange.parse(installed("torch")),
        packages=frozenset(package for package in _PACKAGES if installed(package)),
    )
