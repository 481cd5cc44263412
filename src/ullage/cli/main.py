"""The command `ullage`."""

from __future__ import annotations

import os
import sys

import typer

from ullage.cli import diff, explain, info, replay, tune

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
app.command("diff", short_help="What grew between two snapshots or instants")(diff.diff)


def run() -> None:
    """Run the command line: exit 0 when fine, 1 on a finding or a failed check, 2 on wrong usage or unreadable input."""
    from ullage.errors import UllageError

    try:
        app()
    except UllageError as error:
        if "--debug" in sys.argv:
            raise
        print(f"ullage: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    except BrokenPipeError:
        # The reader of a pipe went away (as `head` does); nothing is wrong.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(0) from None
