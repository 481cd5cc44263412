"""`ullage replay FILE --model placement`: one arena for a recording, a step of it, or the buffers of an instance."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from ullage.cli.options import parse_cap, print_json
from ullage.errors import UllageError

if TYPE_CHECKING:
    from ullage.replay import Placement


def run_placement(
    file: str,
    model: str | None,
    cap: str | None,
    *,
    min_cap: bool,
    step: str | None,
    plan: str | None,
    device: int | None,
    as_json: bool,
) -> None:
    """Place, print, and exit with 1 where the arena is larger than the cap. The arguments are the command's options."""
    cap_bytes = parse_cap(cap)
    if file.endswith(".csv"):
        if model != "placement":
            raise UllageError(f"{file} lists buffers and no requests: only --model placement can replay it")
        if device is not None or step is not None:
            raise UllageError(f"{file} knows no devices and no steps: leave out --device and --step")
        placement, plain = _place_instance(file, cap_bytes)
    elif step is not None:
        placement, plain = _place_step(file, step, cap_bytes, device)
    else:
        placement, plain = _place_recording(file, cap_bytes, device)
    plain |= placement.to_json()
    if min_cap:
        plain["min_cap_bytes"] = plain["height_bytes"]
    if plan is not None:
        try:
            placement.save(plan)
        except OSError as error:
            raise UllageError(f"{plan}: cannot be written: {error.strerror or error}") from None
        plain["plan"] = plan
    if as_json:
        print_json(plain)
    else:
        from ullage.report.replay_text import print_placement

        print_placement(plain)
    if plain["outcome"] == "oom":
        raise typer.Exit(1)


def _place_instance(file: str, cap_bytes: int | None) -> tuple[Placement, dict[str, Any]]:
    """Place the buffers of a minimalloc instance; --cap takes the place of the capacity in the file's name."""
    from dataclasses import replace

    from ullage.replay import place_buffers, read_minimalloc

    buffers = read_minimalloc(file)
    limit = buffers.capacity_bytes if cap_bytes is None else cap_bytes
    placement = place_buffers(replace(buffers, capacity_bytes=limit), seconds=20.0)
    return placement, _figures(placement, limit)


def _place_recording(file: str, cap_bytes: int | None, device: int | None) -> tuple[Placement, dict[str, Any]]:
    """Place a recording's requests, in the form of every other policy's outcome."""
    from ullage.replay import Simulation, place, placement_outcome
    from ullage.trace import load

    trace = load(file)
    simulation = Simulation.of(trace, device)
    placement = place(trace, device=device)
    plain = placement_outcome(simulation, placement, cap_bytes).to_json() | _figures(placement, cap_bytes)
    return placement, plain | {"recorded": simulation.recorded_outcome().to_json()}


def _place_step(file: str, step: str, cap_bytes: int | None, device: int | None) -> tuple[Placement, dict[str, Any]]:
    from ullage.replay import place_step
    from ullage.trace import load

    if step != "auto" and not (step.isdecimal() and len(step) < 10):
        raise UllageError(f"--step {step!r} is no step: use auto, or a number from 1")
    placement = place_step(load(file), step=None if step == "auto" else int(step), device=device)
    return placement, _figures(placement, cap_bytes)


def _figures(placement: Placement, cap_bytes: int | None) -> dict[str, Any]:
    is_over = cap_bytes is not None and placement.height_bytes > cap_bytes
    return {"policy": "placement", "outcome": "oom" if is_over else "ok", "cap_bytes": cap_bytes}
