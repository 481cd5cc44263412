"""Turns results into plain data, with the speeds that follow from them, and back."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from types import UnionType
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from ullage.runtime.probe import curves, result

_DERIVED = ("bytes_per_s", "top_bytes_per_s")

T = TypeVar("T")


def plain(value: Any) -> Any:
    """Return a dataclass as dictionaries and lists.

    Example:
        >>> plain(result.Sample(name="read", size_bytes=4096, why="no GPU"))
        {'name': 'read', 'size_bytes': 4096, 'timing': None, 'why': 'no GPU', 'bytes_per_s': None}
    """
    if is_dataclass(value) and not isinstance(value, type):
        named = {field.name: plain(getattr(value, field.name)) for field in fields(value)}
        return named | {name: getattr(value, name) for name in _DERIVED if hasattr(type(value), name)}
    if isinstance(value, tuple):
        return [plain(one) for one in value]
    return value


def from_plain(kind: type[T], data: Any) -> T:
    """Make a dataclass of plain data; keys that it does not know are left out.

    Raises:
        ValueError: Something is missing or of another type.
    """
    made: T = _made(kind, data)
    return made


def _made(kind: Any, data: Any) -> Any:
    if is_dataclass(kind):
        if not isinstance(data, dict):
            raise ValueError(f"{data!r} is no {kind}")
        hints = get_type_hints(kind, vars(curves) | vars(result))
        known = {name: _made(hint, data[name]) for name, hint in hints.items() if name in data}
        try:
            return kind(**known)  # type: ignore[operator]
        except TypeError as error:
            raise ValueError(str(error)) from None
    origin, inner = get_origin(kind), get_args(kind)
    if origin is tuple:
        if not isinstance(data, list):
            raise ValueError(f"{data!r} is no list")
        return tuple(_made(inner[0], one) for one in data)
    if origin is UnionType:
        return None if data is None else _made(inner[0], data)
    wanted = type(inner[0]) if origin is Literal else kind
    if not isinstance(data, wanted) or (origin is Literal and data not in inner):
        raise ValueError(f"{data!r} is no {kind}")
    return data
