"""Makes a torch tensor over memory that is there already, as a tensor of any GPU, through DLPack.

Torch asks CUDA whose a pointer is where it takes one in by other ways; managed memory is every GPU's, and CUDA names one. A
capsule of DLPack says itself whose tensor it is to be. The structures are those of DLPack 0.8 (`dlpack.h`), whose layout later
versions keep for capsules named "dltensor".
"""

from __future__ import annotations

import ctypes
from typing import Any

import torch

_KINDS = {"cpu": 1, "cuda": 2}  # kDLCPU, kDLCUDA
_UINT = 1  # kDLUInt
_NAME = b"dltensor"
_HELD: dict[int, tuple[Any, ...]] = {}  # what a tensor keeps alive, by the address of its structure


class _Device(ctypes.Structure):
    _fields_ = (("kind", ctypes.c_int32), ("index", ctypes.c_int32))


class _Type(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", _Device),
        ("num_dims", ctypes.c_int32),
        ("dtype", _Type),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


_Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class _ManagedTensor(ctypes.Structure):
    _fields_ = (("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", _Deleter))


def _release(address: int, held: dict[int, tuple[Any, ...]] = _HELD) -> None:
    held.pop(address, None)


_deleter = _Deleter(_release)
_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype = ctypes.py_object
_new_capsule.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)


def bytes_over(address: int, size_bytes: int, device: torch.device, owner: object) -> torch.Tensor:
    """Return memory as a tensor, uint8 [size_bytes].

    Args:
        address: Its first byte, which the device can reach.
        size_bytes: How much.
        device: Whose tensor it is to be.
        owner: What keeps the memory; the tensor keeps that.
    """
    shape = (ctypes.c_int64 * 1)(size_bytes)
    made = _ManagedTensor()
    made.tensor.data = address
    made.tensor.device = _Device(_KINDS[device.type], device.index or 0)
    made.tensor.num_dims = 1
    made.tensor.dtype = _Type(_UINT, 8, 1)
    made.tensor.shape = shape
    made.deleter = _deleter
    _HELD[ctypes.addressof(made)] = made, shape, owner
    return torch.from_dlpack(_new_capsule(ctypes.addressof(made), _NAME, None))
