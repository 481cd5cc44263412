"""Lets a room be called by its own name: `ullage.explain` is a package and, as the API promises, a function."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


def make_callable(room: str, function: Callable[..., Any]) -> None:
    """Make calling a package call one of its functions.

    Python binds a package's name in its parent when it is first imported, over whatever stood there; so a function of the
    same name would be there or not depending on who imported what before. A package that can be called is always there.

    Args:
        room: The package's full name; it must be imported.
        function: What a call goes to.

    Example:
        >>> import ullage
        >>> ullage.explain.Finding is ullage.Finding, callable(ullage.explain)
        (True, True)
    """

    class CallableRoom(ModuleType):
        __call__ = staticmethod(function)

    sys.modules[room].__class__ = CallableRoom
