"""Names the hardware and the versions that a figure was measured with."""

from __future__ import annotations

import importlib.metadata
import subprocess

import torch


def machine() -> dict[str, str]:
    """Return the GPU, its driver, and the versions of torch, the CUDA bindings, transformers and accelerate."""
    return {
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else "none",
        "driver": _driver(),
        "cuda": str(torch.version.cuda),
        "torch": torch.__version__,
        "cuda_bindings": _version("cuda-bindings"),
        "transformers": _version("transformers"),
        "accelerate": _version("accelerate"),
    }


def _driver() -> str:
    try:
        query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
        return subprocess.run(query, capture_output=True, text=True, check=True).stdout.split()[0]
    except (OSError, subprocess.CalledProcessError, IndexError):
        return "unknown"


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "none"
