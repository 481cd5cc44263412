"""The stable JSON of a trace's summary."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ullage.trace import DeviceTrace, Trace

_VERIFY_KEYS = (
    "allocs",
    "address_matches",
    "segments",
    "segment_matches",
    "final_blocks",
    "final_block_matches",
    "undetermined_blocks",
    "first_mismatch_event",
)


def summary_json(trace: Trace, *, device: int | None = None, verify: bool = False) -> dict[str, Any]:
    """Return what `ullage info --json` prints: integers in bytes and microseconds.

    Args:
        trace: The trace.
        device: One device's number; None: all.
        verify: Also compare all that was rebuilt with the recorded.

    Raises:
        UllageError: There is no such device.
    """
    devices = trace.devices if device is None else (trace.device(device),)
    return {
        "path": trace.path,
        "format": trace.tables.format,
        "torch_version": trace.torch_version,
        "settings": trace.settings,
        "unknown_keys": trace.tables.unknown_keys,
        "devices": [_device_json(one, verify) for one in devices],
    }


def _device_json(device: DeviceTrace, verify: bool) -> dict[str, Any]:
    history = device.history
    first, last = device.span_us
    out: dict[str, Any] = {
        "device": device.number,
        "num_events": device.num_events,
        "num_segments": device.num_segments,
        "first_event_us": first,
        "last_event_us": last,
        "peak": device.peak._asdict(),
        "end": device.end._asdict(),
        "num_device_alloc": history.num_device_alloc,
        "num_device_free": history.num_device_free,
        "num_ooms": history.num_ooms,
        "history": device.completeness.kind,
        "history_why": device.completeness.why,
        "undetermined_blocks": history.num_undetermined,
        "undetermined_bytes": history.undetermined_bytes,
        "conflicts": history.num_conflicts,
    }
    if verify:
        counts = device.verify()
        out["verify"] = {key: counts[key] for key in _VERIFY_KEYS}
    return out
