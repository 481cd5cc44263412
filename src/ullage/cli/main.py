"""The command `ullage`."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from typing import Annotated

import typer

from ullage.cli import diff, doctor, explain, info, replay, tune
from ullage.cli.output import without_broken_pipes

app = typer.Typer(
    name="ullage",
    help="Explains GPU memory: where it went, to the byte and the line, and what to change.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("explain", short_help="Why memory was short, and what to change")(explain.explain)
app.command("info", short_help="What a recording holds, on one screen")(info.info)
app.command("replay", short_help="What another allocator setting would have done")(replay.replay)
app.command("tune", short_help="Which setting reserves least, and what it costs")(tune.tune)
app.command("doctor", short_help="Settings that do nothing or are known to break")(doctor.doctor)
app.command("diff", short_help="What grew between two snapshots or instants")(diff.diff)


def _print_version(is_asked: bool) -> None:
    if is_asked:
        from ullage import __version__

        print(f"ullage {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version.")
    ] = False,
) -> None:
    pass


def run() -> None:
    """Run the command line: exit 0 when fine, 1 on a finding or a failed check, 2 on wrong usage or unreadable input."""
    with redirect_stdout(without_broken_pipes(sys.stdout)):
        _run()


def _run() -> None:
    from ullage.errors import UllageError

    try:
        try:
            app()
        finally:
            sys.stdout.flush()
    except UllageError as error:
        if "--debug" in sys.argv:
            raise
        print(f"ullage: {error}", file=sys.stderr)
        raise SystemExit(2) from None
