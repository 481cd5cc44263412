"""ullage explains GPU memory: where it went, to the byte and the line of code, and what to change.

Example:
    >>> import ullage
    >>> trace = ullage.load("examples/train_leak.pickle.xz")
    >>> [finding.title for finding in ullage.explain(trace) if finding.kind == "growth"]
    ['123 MiB more every step, 1.56 GiB in 13 steps: workloads.py:140 train_step']
"""

from importlib import import_module

TYPE_CHECKING = False  # as in `typing`, whose import would keep the reader waiting
if TYPE_CHECKING:
    from typing import Any

    from ullage.diff import Diff, SiteChange
    from ullage.diff.compare import diff
    from ullage.errors import ReplayError, TraceError, UllageError
    from ullage.explain import Finding
    from ullage.explain.explain import explain
    from ullage.replay import Outcome, Placement, Policy, Tuning, parse_conf, place, tune
    from ullage.replay.simulate import replay
    from ullage.trace import DeviceTrace, Trace, load

__version__ = "0.1.0"

__all__ = [
    "DeviceTrace",
    "Diff",
    "Finding",
    "Outcome",
    "Placement",
    "Policy",
    "ReplayError",
    "SiteChange",
    "Trace",
    "TraceError",
    "Tuning",
    "UllageError",
    "__version__",
    "diff",
    "explain",
    "load",
    "parse_conf",
    "place",
    "replay",
    "tune",
]

# Rooms load when they are first asked for, so that `import ullage` and `ullage info` need no NumPy.
_ROOMS = {
    "DeviceTrace": "ullage.trace",
    "Diff": "ullage.diff",
    "Finding": "ullage.explain",
    "Outcome": "ullage.replay",
    "Placement": "ullage.replay",
    "Policy": "ullage.replay",
    "ReplayError": "ullage.errors",
    "SiteChange": "ullage.diff",
    "Trace": "ullage.trace",
    "TraceError": "ullage.errors",
    "Tuning": "ullage.replay",
    "UllageError": "ullage.errors",
    "diff": "ullage.diff",
    "explain": "ullage.explain",
    "load": "ullage.trace",
    "parse_conf": "ullage.replay",
    "place": "ullage.replay",
    "replay": "ullage.replay",
    "tune": "ullage.replay",
}


def __getattr__(name: str) -> "Any":
    if name not in _ROOMS:
        raise AttributeError(f"module 'ullage' has no attribute {name!r}")
    room = import_module(_ROOMS[name])
    # Importing `ullage.explain` binds the package here; it can be called like the function of that name.
    return globals().setdefault(name, getattr(room, name))
