"""What a policy would have done with a recording's requests."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from ullage.trace import Frame

Certainty = Literal["exact", "range", "window"]


@dataclass(frozen=True, kw_only=True)
class FailedRequest:
    """The first request that a policy could not serve.

    Attributes:
        event: Its event in the recording.
        bytes: What was asked for.
        reserved_bytes: What was reserved then.
        allocated_bytes: What was allocated then.
        site: The user's frames that asked, innermost first.
    """

    event: int
    bytes: int
    reserved_bytes: int
    allocated_bytes: int
    site: tuple[Frame, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the request as plain data."""
        return {
            "event": self.event,
            "bytes": self.bytes,
            "reserved_bytes": self.reserved_bytes,
            "allocated_bytes": self.allocated_bytes,
            "site": [{"file": f.file, "line": f.line, "function": f.function} for f in self.site],
        }


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What one policy does with a recording's requests, in the recorded order.

    Attributes:
        device: The device's number.
        policy: The configuration string, or the model's name.
        cap_bytes: The limit on reserved memory; None: none.
        peak_reserved_bytes: The largest sum of segments.
        peak_allocated_bytes: The largest sum of blocks handed out.
        num_device_alloc: Driver allocations.
        num_device_free: Driver releases.
        num_retries: Driver allocations that failed first and made the cache go; None: not known.
        first_oom: The first request that failed; None: none did.
        waste: Reserved and not asked for at the peak of reserved, in bytes by cause.
        certainty: "exact"; "range" where ties in address order or waits for streams leave it open; "window" where the
            history is not complete and only its window was run.
        range_bytes: The lowest and highest peak of reserved over what is left open; None where it is exact, or not worked
            out (the candidates of a search).
    """

    device: int
    policy: str
    cap_bytes: int | None
    peak_reserved_bytes: int
    peak_allocated_bytes: int
    num_device_alloc: int
    num_device_free: int
    num_retries: int | None
    first_oom: FailedRequest | None
    waste: dict[str, int] = field(default_factory=dict)
    certainty: Certainty = "exact"
    range_bytes: tuple[int, int] | None = None

    @property
    def is_oom(self) -> bool:
        """Whether a request failed."""
        return self.first_oom is not None

    def to_json(self) -> dict[str, Any]:
        """Return the outcome as plain data with stable keys."""
        return {
            "device": self.device,
            "policy": self.policy,
            "outcome": "oom" if self.is_oom else "ok",
            "cap_bytes": self.cap_bytes,
            "peak_reserved_bytes": self.peak_reserved_bytes,
            "peak_allocated_bytes": self.peak_allocated_bytes,
            "num_device_alloc": self.num_device_alloc,
            "num_device_free": self.num_device_free,
            "num_retries": self.num_retries,
            "first_oom": self.first_oom.to_json() if self.first_oom else None,
            "waste": self.waste,
            "certainty": self.certainty,
            "range_bytes": list(self.range_bytes) if self.range_bytes else None,
        }
