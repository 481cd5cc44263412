"""A piece of advice: one setting that does nothing, or is known to break, and where that is known from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ullage.explain import Severity


@dataclass(frozen=True, kw_only=True)
class Advice:
    """What is wrong with a setting.

    Attributes:
        check: The check that speaks, by a stable name.
        severity: "error" stops the program, "warning" costs memory or is lost, "info" explains.
        title: The answer in one line.
        why: What shows it.
        next_step: What to do.
        source: The issue, or the file and version, that it is known from.
    """

    check: str
    severity: Severity
    title: str
    why: str
    next_step: str
    source: str

    def to_json(self) -> dict[str, Any]:
        """Return the advice as plain data with stable keys."""
        return {
            "check": self.check,
            "severity": self.severity,
            "title": self.title,
            "why": self.why,
            "next_step": self.next_step,
            "source": self.source,
        }
