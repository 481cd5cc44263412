"""Which variable is in force, without importing torch."""

from __future__ import annotations

import sys

from ullage.doctor import TorchRange, setup_of_environment
from ullage.doctor.environment import installed_version


def nothing(package: str) -> str:
    return ""


def test_the_older_names_win() -> None:
    setup = setup_of_environment({"PYTORCH_ALLOC_CONF": "a:1", "PYTORCH_CUDA_ALLOC_CONF": "b:2"}, nothing)
    assert (setup.variable, setup.conf) == ("PYTORCH_CUDA_ALLOC_CONF", "b:2")
    assert setup.shadowed == {"PYTORCH_ALLOC_CONF": "a:1"}
    setup = setup_of_environment({"PYTORCH_ALLOC_CONF": "a:1", "PYTORCH_HIP_ALLOC_CONF": "b:2"}, nothing)
    assert setup.variable == "PYTORCH_HIP_ALLOC_CONF"


def test_an_empty_environment_has_no_settings() -> None:
    setup = setup_of_environment({}, nothing)
    assert (setup.variable, setup.conf, setup.no_caching, setup.torch) == ("", "", "", None)


def test_installed_packages_are_asked_by_name() -> None:
    versions = {"torch": "2.9.1+cu128", "torch_memory_saver": "0.0.9"}
    setup = setup_of_environment({}, lambda package: versions.get(package, ""))
    assert setup.torch == TorchRange(low=(2, 9, 1), high=(2, 9, 1))
    assert setup.packages == {"torch_memory_saver"}


def test_the_version_of_a_package_is_found_without_importing_it() -> None:
    loaded = set(sys.modules)
    assert installed_version("numpy")[0].isdigit()
    assert installed_version("no-such-package-of-ours") == ""
    assert installed_version("torch")[:1].isdigit() or not installed_version("torch")
    assert {name.split(".")[0] for name in set(sys.modules) - loaded}.isdisjoint({"numpy", "torch"})
