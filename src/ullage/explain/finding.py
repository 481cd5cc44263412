"""A finding: one thing that costs memory, with its size, the line behind it, and what to do."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, SupportsIndex, overload

from ullage.display import renderer

if TYPE_CHECKING:
    from ullage.trace import Frame

Kind = Literal["peak", "growth", "held", "fragmentation", "oom", "private_pool", "stream", "churn", "recording"]
Severity = Literal["info", "warning", "error"]

SEVERITIES: tuple[Severity, ...] = ("info", "warning", "error")


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing that a trace shows.

    Attributes:
        kind: What sort of thing it is.
        severity: "error" stopped the program, "warning" costs memory or time, "info" explains.
        device: The device's number.
        bytes: How much memory it is about.
        title: The answer in one line.
        why: What shows it.
        next_step: What to do.
        site: The line behind it, innermost first: the user's own frame and the frames of theirs that called it.
        evidence: The figures, as plain data: bytes and microseconds as integers.
    """

    kind: Kind
    severity: Severity
    device: int
    bytes: int
    title: str
    why: str
    next_step: str
    site: tuple[Frame, ...] = ()
    evidence: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the finding as plain data with stable keys."""
        return {
            "kind": self.kind,
            "severity": self.severity,
            "device": self.device,
            "bytes": self.bytes,
            "title": self.title,
            "why": self.why,
            "next_step": self.next_step,
            "site": [frame_json(frame) for frame in self.site],
            "evidence": self.evidence,
        }

    def _repr_html_(self) -> str:
        html: str = renderer("notebook").findings_html([self])
        return html


class Findings(list[Finding]):
    """A list of findings that a notebook shows as cards; a slice of it is one too."""

    @overload
    def __getitem__(self, index: SupportsIndex, /) -> Finding: ...
    @overload
    def __getitem__(self, index: slice, /) -> Findings: ...
    def __getitem__(self, index: SupportsIndex | slice, /) -> Finding | Findings:
        return Findings(super().__getitem__(index)) if isinstance(index, slice) else super().__getitem__(index)

    def _repr_html_(self) -> str:
        html: str = renderer("notebook").findings_html(self)
        return html


def frame_json(frame: Frame) -> dict[str, Any]:
    """Return a frame as plain data."""
    return {"file": frame.file, "line": frame.line, "function": frame.function}


def place(site_json: list[dict[str, Any]]) -> str:
    """Name the leading frame of a site in plain data as file and line.

    Example:
        >>> place([{"file": "src/train.py", "line": 3, "function": "step"}]), place([])
        ('train.py:3', 'requests without a Python stack')
    """
    if not site_json:
        return "requests without a Python stack"
    file = site_json[0]["file"].rpartition("/")[2]
    return f"{file}:{site_json[0]['line']}" if site_json[0]["line"] else file
