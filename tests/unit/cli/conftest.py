"""Runs the command line in this process, as a shell would see it."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pytest

from ullage.cli.main import run


class Result(NamedTuple):
    """What a command left behind."""

    code: int
    out: str
    err: str


Command = Callable[..., Result]


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """Return a function that runs `ullage` with arguments."""

    def call(*arguments: str) -> Result:
        monkeypatch.setattr("sys.argv", ["ullage", *arguments])
        capsys.readouterr()
        try:
            run()
            code = 0
        except SystemExit as stop:
            code = int(stop.code or 0)
        return Result(code, *capsys.readouterr())

    return call
