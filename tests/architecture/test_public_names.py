"""The public names are those in public_names.txt; to add or drop one is a decision, seen in a diff of that file."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path

from tests.architecture.public_names import public_names
from tests.architecture.source_tree import PACKAGE, ROOT, exported_names, package_modules, parsed, run_python

LIST = ROOT / "tests" / "architecture" / "public_names.txt"


def difference(listed: list[str], found: list[str]) -> list[str]:
    """Return what is missing (-) and new (+) in `found`."""
    gone, new = set(listed) - set(found), set(found) - set(listed)
    return sorted(f"- {name}" for name in gone) + sorted(f"+ {name}" for name in new)


def bound_names(init: ast.Module) -> set[str]:
    """Return the public names that an `__init__` imports or defines."""
    names: set[str] = set()
    for node in init.body:
        if isinstance(node, ast.ImportFrom | ast.Import) and getattr(node, "module", "") != "__future__":
            names |= {(alias.asname or alias.name).split(".")[0] for alias in node.names}
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
    return {name for name in names if not name.startswith("_")}


def unlisted(init: ast.Module, module: str) -> set[str]:
    """Return the names that an `__init__` takes from its own room, or defines, and does not list in `__all__`."""
    own = [node for node in init.body if not is_from_outside(node, module)]
    return bound_names(ast.Module(own, [])) - set(exported_names(init) or [])


def is_from_outside(node: ast.stmt, module: str) -> bool:
    """Tell whether the statement imports something that is not of `module`."""
    if isinstance(node, ast.ImportFrom):
        return not node.level and not f"{node.module}.".startswith(f"{module}.")
    return isinstance(node, ast.Import)


def test_the_public_names_are_the_listed_ones() -> None:
    listed = LIST.read_text().split()
    assert listed
    assert difference(listed, public_names()) == []


def test_every_public_name_can_be_had() -> None:
    missing = []
    for name in public_names():
        module, _, attribute = name.rpartition(".")
        if not hasattr(importlib.import_module(module), attribute):
            missing.append(name)
    assert missing == []


def test_a_room_does_not_hide_the_function_of_its_name(tmp_path: Path) -> None:
    # Importing ullage.explain, from anywhere, binds that name in the package to the room.
    exported = exported_names(parsed(PACKAGE / "__init__.py")) or []
    names = [name for name in exported if (PACKAGE / name).is_dir()]
    assert names
    for name in names:
        code = f"import ullage.{name}; print(callable(ullage.{name}))"
        assert run_python(code, tmp_path).strip() == "True", f"ullage.{name} is the room, not the function"


def test_each_init_lists_all_that_it_takes_from_its_room() -> None:
    inits = {module: tree for module, path, tree in package_modules() if path.name == "__init__.py"}
    assert inits
    missing = {module: unlisted(tree, module) for module, tree in inits.items()}
    assert {module: names for module, names in missing.items() if names} == {}


def test_a_difference_is_shown_in_both_directions() -> None:
    assert difference(["ullage.load", "ullage.old"], ["ullage.load", "ullage.new"]) == ["- ullage.old", "+ ullage.new"]


def test_an_unlisted_name_is_seen() -> None:
    code = "import os\nfrom ullage.errors import TraceError\nfrom ullage.trace.model import load, Trace\n__all__ = ['load']\n"
    assert unlisted(ast.parse(code), "ullage.trace") == {"Trace"}
