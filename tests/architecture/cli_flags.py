"""Lists what can be typed: each command with its arguments and flags.

python -m tests.architecture.cli_flags > tests/architecture/cli_flags.txt    accepts a change
"""

from __future__ import annotations

from typing import Any

import typer.main


def command_lines(command: Any, name: str) -> list[str]:
    """Return one line for each argument and flag of a command and of those below it, sorted."""
    lines = [name]
    for parameter in command.params:
        is_flag = parameter.param_type_name == "option"
        words = [*parameter.opts, *parameter.secondary_opts] if is_flag else [parameter.name.upper()]
        lines.append(f"{name} {' '.join(sorted(words))}")
    for subname, subcommand in getattr(command, "commands", {}).items():
        lines += command_lines(subcommand, f"{name} {subname}")
    return sorted(lines)


def cli_flags() -> list[str]:
    """Return what can be typed after `ullage`."""
    from ullage.cli.main import application

    return command_lines(typer.main.get_command(application()), "ullage")


if __name__ == "__main__":
    print("\n".join(cli_flags()))
