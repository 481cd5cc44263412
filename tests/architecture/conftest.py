"""Names the files that grow long in the summary of a run."""

from __future__ import annotations

import pytest

from tests.architecture.test_sizes import FILE_WARNING, long_files


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the files that are over the first limit."""
    files = long_files()
    if files:
        terminalreporter.section(f"files of {FILE_WARNING} lines and more: split them by what makes them change")
        for line in files:
            terminalreporter.line(line)
