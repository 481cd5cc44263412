"""`ullage info` for people: one screen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.text import Text

from ullage.report.grid import Grid
from ullage.report.text import console, indented, size
from ullage.units import format_bytes, format_duration, plural

if TYPE_CHECKING:
    from rich.console import Console

# Settings that say nothing at these values.
_QUIET = {
    "max_split_size": (-1,),
    "garbage_collection_threshold": (0.0,),
    "expandable_segments": (False,),
    "pinned_num_register_threads": (1,),
    "release_lock_on_cudamalloc": (False,),
    "pinned_use_cuda_host_register": (False,),
    "graph_capture_record_stream_reuse": (False,),
    "PYTORCH_CUDA_ALLOC_CONF": ("",),
}


def print_summary(summary: dict[str, Any], size_bytes: int) -> None:
    """Print a summary.

    Args:
        summary: What `summary_json` returns.
        size_bytes: The file's size after decompression.
    """
    out = console()
    out.print(Text(summary["path"], style="bold"), soft_wrap=True)
    facts = Grid("", "")
    facts.add_row("torch", summary["torch_version"] or "not recorded")
    facts.add_row("file", f"{summary['format']}, {format_bytes(size_bytes)} of data")
    facts.add_row("settings", _settings_text(summary["settings"]))
    if summary["unknown_keys"]:
        facts.add_row("ignored", "keys not known to this version: " + ", ".join(summary["unknown_keys"][:8]))
    out.print(indented(facts))
    for device in summary["devices"]:
        _print_device(out, device)
    if not summary["devices"]:
        out.print(indented("No device has events or segments in this file."))


def _settings_text(settings: dict[str, Any]) -> str:
    loud = {
        key: value
        for key, value in settings.items()
        if value not in _QUIET.get(key, ()) and not (key.startswith("roundup_power2_divisions.") and value in (0, 1))
    }
    return ", ".join(f"{key}={value}" for key, value in loud.items()) or "defaults"


def _print_device(out: Console, device: dict[str, Any]) -> None:
    span = device["last_event_us"] - device["first_event_us"]
    head = Text.assemble(
        (f"\nGPU {device['device']}", "bold"),
        f"  {plural(device['num_events'], 'event')} over {format_duration(span)}, history ",
        (device["history"], "green" if device["history"] == "complete" else "yellow"),
    )
    if device["history"] != "complete":
        head.append(f" ({device['history_why']})", style="dim")
    out.print(head)
    table = Grid("", ">requested", ">allocated", ">active", ">reserved")
    for name in ("peak", "end"):
        table.add_row(
            name, *(size(device[name][f"{word}_bytes"]) for word in ("requested", "allocated", "active", "reserved"))
        )
    out.print(indented(table))
    out.print(
        indented(
            f"{plural(device['num_segments'], 'segment')} at the end; "
            f"{plural(device['num_device_alloc'], 'driver allocation')}, "
            f"{plural(device['num_device_free'], 'release')}, {plural(device['num_ooms'], 'out-of-memory error')}"
        )
    )
    if device["undetermined_blocks"]:
        out.print(
            indented(
                f"{plural(device['undetermined_blocks'], 'block')} from before the recording may be larger, by "
                f"{format_bytes(device['undetermined_bytes'])} at most together"
            )
        )
    if device["conflicts"]:
        out.print(
            indented(Text(f"{plural(device['conflicts'], 'event')} contradict the state before them", style="yellow"))
        )
    if "verify" in device:
        _print_verification(out, device["verify"])


def _print_verification(out: Console, verify: dict[str, int]) -> None:
    pairs = (
        ("addresses", verify["address_matches"], verify["allocs"]),
        ("segments", verify["segment_matches"], verify["segments"]),
        ("final blocks", verify["final_block_matches"], verify["final_blocks"]),
    )
    good = all(matches == whole for _, matches, whole in pairs)
    counts = ", ".join(f"{matches:,} of {whole:,} {name}" for name, matches, whole in pairs)
    out.print(
        indented(Text(("verified: " if good else "NOT verified: ") + counts, style="green" if good else "bold red"))
    )
    if not good and verify["first_mismatch_event"] >= 0:
        out.print(indented(f"the first request that differs is event {verify['first_mismatch_event']:,}"))
