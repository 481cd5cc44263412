"""The commands and flags are those in cli_flags.txt: scripts depend on them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer
import typer.main

from tests.architecture.cli_flags import cli_flags, command_lines
from tests.architecture.source_tree import ROOT
from tests.architecture.test_public_names import difference

LIST = ROOT / "tests" / "architecture" / "cli_flags.txt"


def test_the_commands_and_flags_are_the_listed_ones() -> None:
    listed = LIST.read_text().splitlines()
    assert listed
    assert difference(listed, cli_flags()) == []


def test_help_names_every_command() -> None:
    ullage = Path(sys.executable).parent / "ullage"
    done = subprocess.run([ullage, "--help"], capture_output=True, text=True, check=True)
    commands = {line.split()[1] for line in LIST.read_text().splitlines() if len(line.split()) == 2}
    commands = {command for command in commands if not command.startswith("-") and command.islower()}
    assert commands
    assert [command for command in commands if command not in done.stdout] == []


def test_a_new_flag_is_seen() -> None:
    app = typer.Typer(add_completion=False)

    @app.callback()
    def main() -> None: ...

    @app.command()
    def look(path: str, is_json: Annotated[bool, typer.Option("--json")] = False) -> None: ...

    lines = command_lines(typer.main.get_command(app), "ullage")
    assert lines == ["ullage", "ullage look", "ullage look --json", "ullage look PATH"]
