"""Every example in the installed package's docstrings does what it says."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import ullage
from tests.recordings import ROOT

# The package is run as it is installed: a copy in site-packages, or src/ where the install is editable.
MODULES = [
    "ullage",
    *(one.name for one in pkgutil.walk_packages(ullage.__path__, "ullage.") if one.name != "ullage._core"),
]


def run_examples(name: str) -> doctest.TestResults:
    return doctest.testmod(importlib.import_module(name), optionflags=doctest.NORMALIZE_WHITESPACE)


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_a_module_run(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert run_examples(name).failed == 0


def test_there_are_examples_to_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert len(MODULES) > 25
    assert [
        name for name in ("ullage", "ullage.units", "ullage.cli.options") if run_examples(name).attempted == 0
    ] == []
