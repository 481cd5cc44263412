"""The command `ullage`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from importlib import import_module
from typing import Annotated

import typer

from ullage.cli.output import without_broken_pipes

_COMMANDS = {
    "explain": "Why memory was short, and what to change",
    "info": "What a recording holds, on one screen",
    "replay": "What another allocator setting would have done",
    "tune": "Which setting reserves least, and what it costs",
    "doctor": "Settings that do nothing or are known to break",
    "diff": "What grew between two snapshots or instants",
    "report": "One page with pictures, for any browser",
    "export": "A Perfetto trace, Parquet tables, a flame graph or JSON",
    "probe": "What this machine's memory does, and which to use for what",
    "kv": "Which formats of a KV cache a model bears",
}
"""Each command, a module of this package with a function (or a group) of its name, and what the list of commands says."""


def application(words: Sequence[str] = ()) -> typer.Typer:
    """Return the command line.

    Args:
        words: What was typed after the program's name. Where it begins with a command, only that one is loaded.
    """
    app = typer.Typer(
        name="ullage",
        help="Explains GPU memory: where it went, to the byte and the line, and what to change.",
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_main)
    for name in words[:1] if words and words[0] in _COMMANDS else _COMMANDS:
        command = getattr(import_module(f"ullage.cli.{name}"), name)
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name, short_help=_COMMANDS[name])
        else:
            app.command(name, short_help=_COMMANDS[name])(command)
    return app


def _print_version(is_asked: bool) -> None:
    if is_asked:
        from ullage import __version__

        print(f"ullage {__version__}")
        raise typer.Exit


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
            application(sys.argv[1:])()
        finally:
            sys.stdout.flush()
    except UllageError as error:
        if "--debug" in sys.argv:
            raise
        print(f"ullage: {error}", file=sys.stderr)
        raise SystemExit(2) from None
