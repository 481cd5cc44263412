"""`ullage replay FILE`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from ullage.cli.options import AsJson, Cap, Debug, DeviceNumber, File, parse_cap, print_json
from ullage.errors import UllageError


def replay(
    file: File,
    conf: Annotated[
        str | None,
        typer.Option("--conf", metavar="SETTINGS", help="As in PYTORCH_CUDA_ALLOC_CONF; without: as recorded."),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            "--model", metavar="NAME", help="Another allocator: cudaMallocAsync, arena, slabs, binning, placement."
        ),
    ] = None,
    cap: Cap = None,
    min_cap: Annotated[bool, typer.Option("--min-cap", help="Also find the smallest cap that serves it.")] = False,
    device: DeviceNumber = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Replay the recorded requests under other settings; exit with 1 if one fails."""
    if conf is not None and model is not None:
        raise UllageError("--conf and --model ask for two different allocators: give one of them")
    is_instance = file.endswith(".csv")
    if is_instance or model == "placement":
        plain = _place_instance(file, model, cap, device) if is_instance else _place_recording(file, cap, device)
        if min_cap:
            plain["min_cap_bytes"] = plain["height_bytes"]
        _show_placement(plain, as_json)
        return
    from ullage.replay import Simulation, model_named, policy_from
    from ullage.trace import load

    trace = load(file)
    simulation = Simulation.of(trace, device)
    policy = model_named(model) if model else simulation.recorded if conf is None else policy_from(conf)
    cap_bytes = parse_cap(cap)
    outcome = simulation.outcome(policy, cap_bytes)
    recorded = simulation.recorded_outcome()
    plain = outcome.to_json() | {"recorded": recorded.to_json()}
    if min_cap:
        plain["min_cap_bytes"] = simulation.min_cap(policy)
    if as_json:
        print_json(plain)
    else:
        from ullage.report.replay_text import print_replay

        print_replay(plain, num_devices=len(trace.devices))
    if outcome.is_oom:
        raise typer.Exit(1)


def _place_instance(file: str, model: str | None, cap: str | None, device: int | None) -> dict[str, Any]:
    """Place the buffers of a minimalloc instance; --cap takes the place of the capacity in the file's name."""
    from dataclasses import replace

    from ullage.replay import place_buffers, read_minimalloc

    if model != "placement":
        raise UllageError(f"{file} lists buffers and no requests: only --model placement can replay it")
    if device is not None:
        raise UllageError(f"{file} knows no devices: leave out --device")
    buffers = read_minimalloc(file)
    cap_bytes = parse_cap(cap)
    limit = buffers.capacity_bytes if cap_bytes is None else cap_bytes
    placement = place_buffers(replace(buffers, capacity_bytes=limit), seconds=8.0)
    return {"policy": "placement", "outcome": _verdict(placement.height_bytes, limit), "cap_bytes": limit} | (
        placement.to_json()
    )


def _place_recording(file: str, cap: str | None, device: int | None) -> dict[str, Any]:
    """Place a recording's requests, in the form of every other policy's outcome."""
    from ullage.replay import Simulation, place
    from ullage.replay.placement import placement_outcome
    from ullage.trace import load

    trace = load(file)
    simulation = Simulation.of(trace, device)
    cap_bytes = parse_cap(cap)
    placement = place(trace, device=device)
    outcome = placement_outcome(simulation, placement, cap_bytes)
    verdict = {
        "outcome": _verdict(placement.height_bytes, cap_bytes),
        "recorded": simulation.recorded_outcome().to_json(),
    }
    return outcome.to_json() | verdict | placement.to_json()


def _verdict(height_bytes: int, cap_bytes: int | None) -> str:
    return "oom" if cap_bytes is not None and height_bytes > cap_bytes else "ok"


def _show_placement(plain: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(plain)
    else:
        from ullage.report.replay_text import print_placement

        print_placement(plain)
    if plain["outcome"] == "oom":
        raise typer.Exit(1)
