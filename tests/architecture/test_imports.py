"""Who may import whom, and what `import ullage` costs.

cli ------------------------------------------------------+
 v                                                        |
report                                                    |    inside a command only
 v                                                        |
explain  replay  diff  doctor  plan  fleet  record  watch | each sees of the others what their __init__ exports
 v                                                        |
trace                                                     |
 v                                                        v
errors  units  display <-------------------------- runtime  kernel          these two see nothing else
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from tests.architecture.source_tree import (
    PACKAGE,
    ROOT,
    exported_names,
    files_with,
    module_name,
    package_modules,
    parsed,
    run_python,
    shown,
)

FLOORS = [
    {"cli"},
    {"report"},
    {"explain", "replay", "diff", "doctor", "plan", "fleet", "record", "watch"},
    {"trace"},
    # display is a leaf that loads from report, by name and when it is asked: the one way up, so that a trace and findings
    # can be drawn by methods of theirs, where notebooks look for them.
    {"errors", "units", "callable_room", "display"},
]
FLOOR_OF = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms}
LEAVES = FLOORS[-1]
# What runs in the user's program is started from the command line too (`ullage kv check`). It needs torch, so cli imports it
# inside the command that was typed: no other command, and no --help, waits for torch or needs it.
ASIDE = {"runtime", "kernel"}
USERS_OF_ASIDE = {"cli"}
USERS_OF_THE_CORE = FLOORS[2] | {"trace"}  # report and cli compute nothing
ENTRANCES = {"", "__main__"}  # the package itself and `python -m ullage`: they may use every room

HEAVY = ("torch", "triton", "pandas", "scipy", "matplotlib", "pyarrow", "polars")
GPU_LIBRARIES = {"torch", "triton"}
IMPORT_BUDGET_MS = 100
NOT_FOR_THE_CORE = re.compile(
    r'#\s*include\s*[<"](Python\.h|nanobind|pybind11|cuda|cupti|nvml|torch|ATen|c10)', re.IGNORECASE
)


def room_of(module: str) -> str:
    """Return the room of a module of the package: the name after `ullage.`, empty for the package itself."""
    return module.split(".")[1] if "." in module else ""


def violation(importer: str, imported: str, exported: bool) -> str | None:
    """Say what is wrong with one import inside the package, None if it is allowed.

    `exported` tells that the name comes from the imported room's `__init__`.
    """
    user, used = room_of(importer), room_of(imported)
    if user in ENTRANCES or user == used:
        return None
    for room in (user, used):
        if room not in FLOOR_OF and room not in ASIDE | ENTRANCES | {"_core"}:
            return f"{room} has no place in the house: add it to DESIGN and to this test"
    if used in ENTRANCES:
        return None if user == "cli" else f"{user} imports the package that imports it"
    if used == "_core":
        return None if user in USERS_OF_THE_CORE else f"{user} reaches past trace into the compiled core"
    if used in ASIDE and user in USERS_OF_ASIDE:
        return None
    if user in ASIDE or used in ASIDE:
        return None if used in LEAVES else f"{user} imports {used}: runtime and kernel stand on errors and units alone"
    if FLOOR_OF[used] > FLOOR_OF[user]:
        return None
    if FLOOR_OF[used] < FLOOR_OF[user]:
        return f"{user} imports {used}, which is above it"
    if user in LEAVES or not exported:
        return f"{user} imports {imported}, a room beside it, past what its __init__ exports"
    return None


def imports_in(nodes: Iterable[ast.AST], importer: str, is_package: bool) -> Iterator[tuple[int, str, str | None]]:
    """Yield line, module and name (None: the module itself) of each import among the nodes of a module's tree."""
    package = importer if is_package else importer.rpartition(".")[0]
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name, None
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            module = ".".join([*above, *([node.module] if node.module else [])])
            for alias in node.names:
                yield node.lineno, module, alias.name


def is_exported(module: str, name: str | None) -> bool:
    """Tell whether `from module import name` takes what a room's `__init__` lists."""
    init = PACKAGE.joinpath(*module.split(".")[1:], "__init__.py")
    return (
        name is not None and module.count(".") == 1 and init.exists() and name in (exported_names(parsed(init)) or [])
    )


def violations_of(path: Path) -> list[str]:
    """Return what is wrong with the imports of one file."""
    importer, found = module_name(path), []
    for line, module, name in imports_in(ast.walk(parsed(path)), importer, path.name == "__init__.py"):
        if module.split(".")[0] != "ullage":
            continue
        imported = f"{module}.{name}" if module == "ullage" and name else module
        if module == "ullage" and name and not is_module(imported):
            imported = "ullage"
        problem = violation(importer, imported, is_exported(module, name))
        found += [f"{shown(path)}:{line}: {problem}"] if problem else []
    return found


def is_module(name: str) -> bool:
    """Tell whether the name is a module of the package, and not something in its `__init__`."""
    place = PACKAGE.joinpath(*name.split(".")[1:])
    return name == "ullage._core" or place.is_dir() or place.with_suffix(".py").exists()


def run_at_import_time(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield the nodes of a module's tree that importing it runs."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) or is_for_types_only(node):
            continue
        yield node
        waiting.extend(ast.iter_child_nodes(node))


def imports_at_import_time(tree: ast.Module, importer: str = "", is_package: bool = False) -> set[str]:
    """Return each module, and each name from one, that importing this one imports: ullage.runtime, ullage.runtime.kv."""
    found = imports_in(run_at_import_time(tree), importer, is_package)
    return {f"{module}.{name}" if name else module for _, module, name in found}


def rooms_at_import_time(tree: ast.Module, importer: str, is_package: bool = False) -> set[str]:
    """Return the rooms that importing a module imports itself."""
    modules = imports_at_import_time(tree, importer, is_package)
    return {room_of(module) for module in modules if module.split(".")[0] == "ullage"}


def is_for_types_only(node: ast.AST) -> bool:
    """Tell whether the node is an `if TYPE_CHECKING:`."""
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def test_imports_point_downwards() -> None:
    files = [path for _, path, _ in package_modules()]
    assert files
    assert [problem for path in files for problem in violations_of(path)] == []


def test_only_runtime_imports_torch_or_triton_at_import_time() -> None:
    users = set()
    for name, _, tree in package_modules():
        if GPU_LIBRARIES & {module.split(".")[0] for module in imports_at_import_time(tree)}:
            users.add(name)
    assert {name for name in users if room_of(name) != "runtime"} == set()


def test_the_command_line_imports_runtime_inside_its_commands_only() -> None:
    files = [(name, path, tree) for name, path, tree in package_modules() if room_of(name) in USERS_OF_ASIDE]
    assert files
    eager = {name: ASIDE & rooms_at_import_time(tree, name, path.name == "__init__.py") for name, path, tree in files}
    assert {name: rooms for name, rooms in eager.items() if rooms} == {}


def test_the_help_of_every_command_needs_nothing_heavy(tmp_path: Path) -> None:
    code = (
        "import json, sys; from ullage.cli.main import application\n"
        "try: application()(['--help'])\n"
        "except SystemExit: pass\n"
        "print(json.dumps(sorted(sys.modules)))"
    )
    modules = json.loads(run_python(code, tmp_path).splitlines()[-1])
    assert "ullage.cli.kv" in modules
    assert [name for name in modules if name.split(".")[0] in {*HEAVY, "transformers"}] == []


def test_the_core_knows_neither_python_nor_cuda_nor_torch() -> None:
    files = files_with(".cpp", ".hpp", under=ROOT / "cpp" / "core")
    assert files
    assert [shown(path) for path in files if NOT_FOR_THE_CORE.search(path.read_text())] == []


def test_import_ullage_loads_nothing_heavy_and_no_gpu_driver(tmp_path: Path) -> None:
    code = "import json, sys, ullage; print(json.dumps([sorted(sys.modules), open('/proc/self/maps').read()]))"
    modules, maps = json.loads(run_python(code, tmp_path))
    assert [name for name in modules if name.split(".")[0] in HEAVY] == []
    assert "libcuda" not in maps


def test_import_ullage_takes_less_than_its_budget(tmp_path: Path) -> None:
    code = "import time; start = time.perf_counter(); import ullage; print(time.perf_counter() - start)"
    times_ms = [float(run_python(code, tmp_path)) * 1000 for _ in range(5)]
    assert min(times_ms) < IMPORT_BUDGET_MS


@pytest.mark.parametrize(
    ("importer", "imported"),
    [
        ("ullage.trace.model", "ullage.explain"),
        ("ullage.report.text", "ullage.cli.main"),
        ("ullage.errors", "ullage.units"),
        ("ullage.explain.growth", "ullage.diff.regions"),
        ("ullage.explain.growth", "ullage"),
        ("ullage.report.text", "ullage._core"),
        ("ullage.runtime.kv", "ullage.plan"),
        ("ullage.report.text", "ullage.runtime"),
        ("ullage.misc.things", "ullage.errors"),
    ],
)
def test_a_forbidden_import_is_reported(importer: str, imported: str) -> None:
    assert violation(importer, imported, exported=False)


@pytest.mark.parametrize(
    ("importer", "imported"),
    [
        ("ullage.cli.explain", "ullage.trace.model"),
        ("ullage.explain.growth", "ullage.explain.finding"),
        ("ullage.explain.growth", "ullage._core"),
        ("ullage.runtime.kv", "ullage.errors"),
        ("ullage.cli.kv", "ullage.runtime.kv.check"),
        ("ullage", "ullage.explain"),
    ],
)
def test_an_allowed_import_is_not_reported(importer: str, imported: str) -> None:
    assert violation(importer, imported, exported=False) is None


def test_a_room_beside_may_be_used_through_its_init() -> None:
    assert violation("ullage.diff.regions", "ullage.explain", exported=True) is None
    assert violation("ullage.errors", "ullage.units", exported=True)


def test_every_form_of_import_is_seen() -> None:
    tree = ast.parse("import ullage.cli\ndef f():\n    from ..diff import regions\nfrom . import peak\n")
    seen = sorted(imports_in(ast.walk(tree), "ullage.explain.growth", is_package=False))
    assert seen == [(1, "ullage.cli", None), (3, "ullage.diff", "regions"), (4, "ullage.explain", "peak")]


def test_an_import_inside_a_function_is_not_at_import_time() -> None:
    code = (
        "import torch.cuda\nif TYPE_CHECKING:\n    import a\nif x:\n    from b import c\ndef f():\n    import triton\n"
    )
    assert imports_at_import_time(ast.parse(code)) == {"b.c", "torch.cuda"}


@pytest.mark.parametrize(
    "line",
    [
        "import ullage.runtime.kv",
        "from ullage import runtime",
        "from ..runtime.kv import KVPool",
        "class A:\n    from ullage.runtime import kv",
    ],
)
def test_an_eager_import_of_runtime_is_seen(line: str) -> None:
    assert rooms_at_import_time(ast.parse(line), "ullage.cli.kv") == {"runtime"}
    assert rooms_at_import_time(ast.parse(f"def f():\n    {line.splitlines()[-1].strip()}"), "ullage.cli.kv") == set()


def test_an_include_of_python_is_seen() -> None:
    assert NOT_FOR_THE_CORE.search("#include <Python.h>")
    assert not NOT_FOR_THE_CORE.search('#include "core/units.hpp"')
