"""The modules of the package and their imports, for the style tests."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src"
PACKAGE = "millstream"


def source_modules() -> dict[str, Path]:
    """All modules of the package by their dotted names."""
    found = {}
    for path in sorted((SOURCE / PACKAGE).rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@cache
def syntax_nodes(path: Path) -> tuple[ast.AST, ...]:
    """All nodes of a module's syntax tree, in the order of `ast.walk`.

    Cached until the end of the test module (`tests/style/conftest.py`).
    """
    return tuple(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))


def imports_of(
    module: str, modules: Mapping[str, Path], tree: ast.AST | None = None
) -> Iterator[tuple[int, str]]:
    """The imports of a module with their lines, including those in functions and under
    TYPE_CHECKING.

    Args:
        tree: a part of the module; all of it by default.
    """
    path = modules[module]
    for node in syntax_nodes(path) if tree is None else ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                is_package = path.name == "__init__.py"
                parents = module.split(".")[: None if is_package else -1]
                parents = parents[: len(parents) - (node.level - 1)]
                base = ".".join([*parents, base]).rstrip(".")
            for alias in node.names:
                # `from package import name` may mean a module of that name.
                below = f"{base}.{alias.name}"
                yield node.lineno, below if below in modules else base
