"""Every public name has a docstring as STYLE says; ruff checks its form, this checks what is in it.

A function or method begins with an imperative sentence; a module, class or property with any sentence. What a room
exports explains its arguments under `Args:`, what raises says so under `Raises:`; in cli/ neither, as `--help` prints
those docstrings.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from tests.architecture.source_tree import exported_names, package_modules

Function = ast.FunctionDef | ast.AsyncFunctionDef

# Third person ends in s; these imperatives do too.
ENDING_IN_S = ("ss", "us", "is")
NO_VERBS = {
    "a",
    "an",
    "the",
    "this",
    "that",
    "it",
    "if",
    "for",
    "when",
    "where",
    "whether",
    "helper",
    "function",
    "method",
}
# Ways for a command to end, which its caller sees as exit codes, and what a method says that is not there.
NOT_ANNOUNCED = {"Exit", "SystemExit", "AssertionError", "NotImplementedError", "AttributeError"}


class Definition(NamedTuple):
    """A public module, class, function or method."""

    name: str
    node: ast.Module | ast.ClassDef | Function
    is_exported: bool

    @property
    def is_callable(self) -> bool:
        return isinstance(self.node, Function) and not is_property(self.node)


def is_property(node: Function) -> bool:
    """Tell whether the function is read like an attribute."""
    decorators = [d.attr if isinstance(d, ast.Attribute) else getattr(d, "id", "") for d in node.decorator_list]
    return any(name in ("property", "cached_property") for name in decorators)


def is_overload_or_setter(node: ast.stmt) -> bool:
    """Tell whether the function only repeats another one that has the docstring."""
    decorators = [ast.unparse(decorator) for decorator in getattr(node, "decorator_list", [])]
    return any(name.endswith(("overload", ".setter")) for name in decorators)


def definitions(module: str, tree: ast.Module, exported: set[str]) -> Iterator[Definition]:
    """Yield the module and its public classes, functions and methods."""
    yield Definition(module, tree, False)
    waiting: list[tuple[str, ast.stmt, bool]] = [(module, node, True) for node in tree.body]
    while waiting:
        place, node, is_outermost = waiting.pop()
        if not isinstance(node, ast.ClassDef | Function) or node.name.startswith("_") or is_overload_or_setter(node):
            continue
        name = f"{place}.{node.name}"
        yield Definition(name, node, is_outermost and node.name in exported)
        if isinstance(node, ast.ClassDef):
            waiting += [(name, inner, False) for inner in node.body]


def parameters(node: Function) -> list[str]:
    """Return the names of a function's parameters, without self and cls."""
    arguments = node.args
    listed = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    listed += [extra for extra in (arguments.vararg, arguments.kwarg) if extra]
    return [argument.arg for argument in listed if argument.arg not in ("self", "cls")]


def raises_something(node: Function) -> bool:
    """Tell whether the function's own body raises what a caller has to know."""
    waiting: list[ast.AST] = list(node.body)
    while waiting:
        inner = waiting.pop()
        if isinstance(inner, ast.Raise) and inner.exc is not None:
            made = inner.exc.func if isinstance(inner.exc, ast.Call) else inner.exc
            if ast.unparse(made).rpartition(".")[2] not in NOT_ANNOUNCED:
                return True
        if not isinstance(inner, Function | ast.Lambda | ast.ClassDef):
            waiting.extend(ast.iter_child_nodes(inner))
    return False


def is_imperative(sentence: str) -> bool:
    """Tell whether a sentence begins like an order: `Return ...`, and not `Returns ...` or `The ...`."""
    word = sentence.split(maxsplit=1)[0].strip("`'\"(),").lower()
    is_third_person = word.endswith("s") and not word.endswith(ENDING_IN_S)
    return word not in NO_VERBS and not is_third_person and not (word.endswith("ing") and word not in ("bring", "ring"))


def problems_of(definition: Definition) -> list[str]:
    """Return what is wrong with one definition's docstring."""
    node, text = definition.node, ast.get_docstring(definition.node)
    if not text:
        return ["has no docstring"]
    problems, first_line = [], text.splitlines()[0].rstrip()
    if not first_line.endswith("."):
        problems.append("does not begin with one sentence on one line, ending in a period")
    if definition.is_callable and not is_imperative(first_line):
        problems.append("does not begin with an imperative (Return, not Returns)")
    is_command_help = definition.name.startswith("ullage.cli.")  # printed by --help, which has its own sections
    if isinstance(node, Function) and not is_command_help:
        if definition.is_exported and parameters(node) and "\nArgs:\n" not in text:
            problems.append("is exported and has no Args section")
        if raises_something(node) and "\nRaises:\n" not in text:
            problems.append("raises and has no Raises section")
    return problems


def problems_in(code: str) -> list[str]:
    """Return what is wrong in a module that exports all its names."""
    tree = ast.parse(code)
    names = {node.name for node in tree.body if isinstance(node, ast.ClassDef | Function)}
    return [problem for definition in definitions("m", tree, names) for problem in problems_of(definition)]


def exported_by_module() -> dict[str, set[str]]:
    """Return, for each room, the names that its `__init__` exports."""
    inits = [(module, tree) for module, path, tree in package_modules() if path.name == "__init__.py"]
    return {module: set(exported_names(tree) or []) for module, tree in inits}


def test_every_public_name_has_a_good_docstring() -> None:
    exported, problems, num_seen = exported_by_module(), [], 0
    for module, _, tree in package_modules():
        room = ".".join(module.split(".")[:2])
        for definition in definitions(module, tree, exported.get(room, set())):
            num_seen += 1
            problems += [f"{definition.name} {problem}" for problem in problems_of(definition)]
    assert num_seen > len(exported)
    assert problems == []


GOOD_MODULE = '''
"""Words about numbers."""
def f(x):
    """Return x.

    Args:
        x: A number.

    Raises:
        E: Always.
    """
    raise E
'''


def test_a_good_module_has_no_problems() -> None:
    assert problems_in(GOOD_MODULE) == []


def test_a_missing_docstring_is_reported() -> None:
    assert (
        problems_in('"""Word."""\ndef f(): ...\nclass C:\n    """A thing."""\n    def g(self): ...\n')
        == ["has no docstring"] * 2
    )


def test_a_private_name_needs_none() -> None:
    assert problems_in('"""Word."""\ndef _f(): ...\nclass _C: ...\n') == []


def test_a_first_line_without_a_period_or_imperative_is_reported() -> None:
    assert len(problems_in('"""Word."""\ndef f():\n    """Returns one"""\n')) == 2


def test_missing_sections_are_reported() -> None:
    problems = problems_in('"""Word."""\ndef f(x):\n    """Return x."""\n    raise E(x)\n')
    assert problems == ["is exported and has no Args section", "raises and has no Raises section"]


def test_raising_in_an_inner_function_or_again_is_not_announced() -> None:
    inner = ast.parse(
        "def f():\n    def g():\n        raise E\n    try:\n        g()\n    except E:\n        raise\n"
    ).body[0]
    assert isinstance(inner, ast.FunctionDef)
    assert not raises_something(inner)


def test_imperatives_are_told_from_statements() -> None:
    good = ["Return x.", "Pass it on.", "Focus.", "Read the file."]
    bad = ["Returns x.", "The number of x.", "Reading the file.", "A number."]
    assert [is_imperative(sentence) for sentence in good + bad] == [True] * 4 + [False] * 4
