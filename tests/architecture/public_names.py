"""Lists the public names: what each room's `__init__` exports.

python -m tests.architecture.public_names > tests/architecture/public_names.txt    accepts a change
"""

from __future__ import annotations

from tests.architecture.source_tree import exported_names, package_modules


def public_names() -> list[str]:
    """Return the exported names of the package and of its rooms, each with its module, sorted."""
    names = []
    for module, path, tree in package_modules():
        if path.name == "__init__.py":
            names += [f"{module}.{name}" for name in exported_names(tree) or []]
    return sorted(names)


if __name__ == "__main__":
    print("\n".join(public_names()))
