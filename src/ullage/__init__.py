"""ullage explains GPU memory: where it went, to the byte and the line of code, and what to change.

Example:
    >>> import ullage
    >>> trace = ullage.load("examples/train_leak.pickle.xz")
    >>> [finding.title for finding in ullage.explain(trace) if finding.kind == "growth"]
    ['123 MiB more every step, 1.56 GiB in 13 steps: workloads.py:140 train_step']
"""

from ullage.diff import Diff, SiteChange, diff
from ullage.errors import TraceError, UllageError
from ullage.explain import Finding, explain
from ullage.trace import DeviceTrace, Trace, load

__version__ = "0.1.0"

__all__ = [
    "DeviceTrace",
    "Diff",
    "Finding",
    "SiteChange",
    "Trace",
    "TraceError",
    "UllageError",
    "__version__",
    "diff",
    "explain",
    "load",
]
