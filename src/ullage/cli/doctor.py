"""`ullage doctor [FILE]`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

import typer

from ullage.cli.options import AsJson, Debug, FailOn, exit_on, print_json, standard_input_path

if TYPE_CHECKING:
    from ullage.doctor import Setup


def doctor(
    file: Annotated[
        str | None,
        typer.Argument(
            metavar="FILE",
            help="A memory snapshot; - is standard input. Without: this environment.",
            callback=standard_input_path,
        ),
    ] = None,
    fail_on: FailOn = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Check the allocator's settings for what does nothing or is known to break."""
    from ullage.doctor import examine

    setup = _setup(file)
    found = examine(setup)
    plain = {
        "path": file,
        "variable": setup.variable or None,
        "conf": setup.conf,
        "torch_version": str(setup.torch) if setup.torch is not None else None,
        "advice": [advice.to_json() for advice in found],
    }
    if as_json:
        print_json(plain)
    else:
        from ullage.report.doctor_text import print_advice

        print_advice(plain)
    exit_on(fail_on, (one.severity for one in found))


def _setup(file: str | None) -> Setup:
    from ullage.doctor import setup_of_environment, setup_of_recording

    if file is None:
        return setup_of_environment(os.environ)
    from ullage.cli.reading import read

    return setup_of_recording(read(file))
