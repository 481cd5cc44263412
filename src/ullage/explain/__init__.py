"""Explanations: one file per finding, each a pure function of one device's trace."""

from ullage.callable_room import make_callable
from ullage.explain.explain import explain
from ullage.explain.finding import SEVERITIES, Finding, Findings, Kind, Severity

__all__ = ["SEVERITIES", "Finding", "Findings", "Kind", "Severity", "explain"]

make_callable(__name__, explain)
