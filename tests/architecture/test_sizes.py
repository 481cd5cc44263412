"""Files and functions stay short enough to read: files fail at 600 lines (tests at 800), functions at 60.

Files over 400 lines are named in the run's summary; see conftest.py.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.architecture.source_tree import ROOT, files_with, parsed, shown

FILE_WARNING, FILE_LIMIT, TEST_FILE_LIMIT, FUNCTION_LIMIT = 400, 600, 800, 60


def limit_of(path: Path) -> int:
    """Return the number of lines at which a file is too long."""
    return TEST_FILE_LIMIT if "tests" in path.relative_to(ROOT).parts else FILE_LIMIT


def num_lines(path: Path) -> int:
    """Return a file's number of lines."""
    return path.read_bytes().count(b"\n")


def source_files() -> list[Path]:
    """Return the Python and C++ files."""
    return files_with(".py", ".pyi", ".cpp", ".hpp")


def long_files() -> list[str]:
    """Return the files that are worth splitting, though still within their limit."""
    lengths = {path: num_lines(path) for path in source_files()}
    return [f"{shown(path)} has {lines} lines" for path, lines in lengths.items() if lines >= FILE_WARNING]


def functions_in(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Yield the name and the number of lines, without its docstring, of each function, nested ones too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            lines = node.end_lineno - node.lineno + 1
            first = node.body[0]
            if ast.get_docstring(node, clean=False) is not None:
                assert first.end_lineno is not None
                lines -= first.end_lineno - first.lineno + 1
            yield node.name, lines


def test_no_file_is_too_long() -> None:
    files = source_files()
    assert files
    assert [shown(path) for path in files if num_lines(path) >= limit_of(path)] == []


def test_no_function_is_too_long() -> None:
    too_long = []
    for path in files_with(".py"):
        functions = functions_in(parsed(path))
        too_long += [f"{shown(path)}: {name} has {lines} lines" for name, lines in functions if lines >= FUNCTION_LIMIT]
    assert too_long == []


def test_tests_may_be_longer_than_sources() -> None:
    assert limit_of(ROOT / "tests" / "unit" / "test_x.py") == limit_of(ROOT / "cpp" / "tests" / "test_x.cpp") == 800
    assert limit_of(ROOT / "cpp" / "core" / "x.cpp") == 600


def test_a_functions_lines_are_counted_without_its_docstring() -> None:
    code = 'def f():\n    """One.\n\n    Two.\n    """\n    def g():\n        return 1\n    return g\n'
    assert dict(functions_in(ast.parse(code))) == {"f": 4, "g": 2}
