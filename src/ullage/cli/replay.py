"""`ullage replay FILE`."""

from __future__ import annotations

from typing import Annotated

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
    min_cap: Annotated[
        bool,
        typer.Option("--min-cap", help="Also find the smallest cap that serves it; without a policy, that of several."),
    ] = False,
    step: Annotated[
        str | None,
        typer.Option(
            "--step", metavar="auto|N", help="With --model placement: one step only, which serves each like it."
        ),
    ] = None,
    plan: Annotated[
        str | None, typer.Option("--plan", metavar="FILE", help="With --model placement: write the plan to a file.")
    ] = None,
    device: DeviceNumber = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Replay the recorded requests under other settings; exit with 1 if one fails."""
    if conf is not None and model is not None:
        raise UllageError("--conf and --model ask for two different allocators: give one of them")
    if file.endswith(".csv") or model == "placement":
        from ullage.cli.placement import run_placement

        return run_placement(file, model, cap, min_cap=min_cap, step=step, plan=plan, device=device, as_json=as_json)
    if step is not None or plan is not None:
        raise UllageError(f"{'--step' if step is not None else '--plan'} needs --model placement")
    _replay_recording(file, conf, model, parse_cap(cap), min_cap=min_cap, device=device, as_json=as_json)


def _replay_recording(
    file: str,
    conf: str | None,
    model: str | None,
    cap_bytes: int | None,
    *,
    min_cap: bool,
    device: int | None,
    as_json: bool,
) -> None:
    from ullage.replay import Simulation, model_named, policy_from
    from ullage.trace import load

    trace = load(file)
    simulation = Simulation.of(trace, device)
    policy = model_named(model) if model else simulation.recorded if conf is None else policy_from(conf)
    outcome = simulation.outcome(policy, cap_bytes)
    recorded = simulation.recorded_outcome()
    plain = outcome.to_json() | {"recorded": recorded.to_json()}
    if min_cap:
        plain["min_cap_bytes"] = simulation.min_cap(policy)
        if conf is None and model is None:
            plain["min_caps"] = simulation.min_caps()
    if as_json:
        print_json(plain)
    else:
        from ullage.report.replay_text import print_replay

        print_replay(plain, num_devices=len(trace.devices))
    if outcome.is_oom:
        raise typer.Exit(1)
