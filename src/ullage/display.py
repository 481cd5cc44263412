"""The one way up. Imports point downwards, and what draws a trace lies above it: it is loaded by name, when it is asked for.

A method such as `Trace.plot` or `Trace._repr_html_` has to be where notebooks look for it, on the object itself. It holds one
line: a call of a function in one of these modules. Nothing else may go this way, and `import ullage` loads none of them.
"""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False  # as in `typing`, whose import would keep the reader waiting
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Literal


def renderer(module: Literal["notebook", "plot"]) -> ModuleType:
    """Return a module that draws what its caller holds: HTML for a notebook, or a figure.

    Args:
        module: Its name in `ullage.report`.
    """
    return import_module(f"ullage.report.{module}")
