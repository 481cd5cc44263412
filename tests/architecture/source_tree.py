"""The repository's files and modules, as the architecture tests see them."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src"
PACKAGE = SOURCE / "ullage"

MADE_FOLDERS = {"build", "dist", "__pycache__"}
KEPT_DOT_NAMES = {".ci", ".clang-format", ".gitignore", ".github"}
TEXT_SUFFIXES = {"", ".cfg", ".cpp", ".hpp", ".ini", ".json", ".md", ".py", ".pyi", ".sh", ".toml", ".txt", ".yml"}


@cache
def all_files() -> tuple[Path, ...]:
    """Return every file of the repository that people write, sorted; nothing that is built or hidden."""
    found = []
    for folder, subfolders, names in os.walk(ROOT):
        subfolders[:] = [name for name in subfolders if name not in MADE_FOLDERS and is_shown(name)]
        found += [Path(folder, name) for name in names if is_shown(name)]
    return tuple(sorted(found))


def is_shown(name: str) -> bool:
    """Tell whether a file or folder is part of the repository by its name."""
    return (not name.startswith(".") or name in KEPT_DOT_NAMES) and not name.endswith((".egg-info", ".so"))


def files_with(*suffixes: str, under: Path = ROOT) -> list[Path]:
    """Return the repository's files that end so."""
    return [path for path in all_files() if path.suffix in suffixes and path.is_relative_to(under)]


def text_files() -> list[Path]:
    """Return the repository's text files."""
    return [path for path in files_with(*TEXT_SUFFIXES) if b"\0" not in path.read_bytes()[:4096]]


def shown(path: Path) -> str:
    """Return a path as messages show it."""
    return path.relative_to(ROOT).as_posix()


def module_name(path: Path) -> str:
    """Return the name under which a file of the package is imported."""
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def package_modules() -> Iterator[tuple[str, Path, ast.Module]]:
    """Yield the name, file and syntax tree of each module of the package."""
    for path in files_with(".py", under=PACKAGE):
        yield module_name(path), path, parsed(path)


@cache
def parsed(path: Path) -> ast.Module:
    """Return a Python file's syntax tree."""
    return ast.parse(path.read_text("utf-8"), str(path))


def exported_names(init: ast.Module) -> list[str] | None:
    """Return what an `__init__` lists in `__all__`, None if it lists nothing."""
    for node in init.body:
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        if any(isinstance(target, ast.Name) and target.id == "__all__" for target in targets):
            assert isinstance(node, ast.Assign | ast.AnnAssign)
            assert node.value is not None
            return list(ast.literal_eval(node.value))
    return None


def run_python(code: str, folder: Path) -> str:
    """Run code in a new interpreter, away from the sources, and return what it prints."""
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout
