"""The one way up: what draws is loaded by name, when it is asked for."""

from __future__ import annotations

from pathlib import Path

from tests.architecture.source_tree import run_python
from ullage.display import renderer


def test_both_modules_that_draw_can_be_had() -> None:
    assert callable(renderer("notebook").trace_html)
    assert callable(renderer("plot").figure)


def test_loading_and_explaining_load_nothing_that_draws(tmp_path: Path) -> None:
    code = "import sys, ullage, ullage.trace.model, ullage.explain; print([name for name in sys.modules if 'report' in name])"
    assert run_python(code, tmp_path).strip() == "[]"
