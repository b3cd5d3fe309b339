"""The modules of the package as the style tests see them: where they are and what they import."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src"
PACKAGE = "millstream"


def source_modules() -> dict[str, Path]:
    """Every module of the package by its dotted name."""
    found = {}
    for path in sorted((SOURCE / PACKAGE).rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports_of(
    module: str, modules: Mapping[str, Path], tree: ast.AST | None = None
) -> Iterator[tuple[int, str]]:
    """What a module imports, each with its line; also inside functions and under TYPE_CHECKING.

    Args:
        module: its dotted name.
        modules: all modules of the package.
        tree: the part of it to look at; by default all of it.
    """
    path = modules[module]
    for node in ast.walk(ast.parse(path.read_text()) if tree is None else tree):
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


def circles(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """The groups of names that can all be reached from each other (Tarjan's algorithm).

    Args:
        graph: what each name leads to.
    """
    found: list[list[str]] = []
    numbers: dict[str, int] = {}
    lowest: dict[str, int] = {}
    open_names: list[str] = []

    def visit(name: str) -> None:
        numbers[name] = lowest[name] = len(numbers)
        open_names.append(name)
        for other in sorted(graph.get(name, ())):
            if other not in numbers:
                visit(other)
                lowest[name] = min(lowest[name], lowest[other])
            elif other in open_names:
                lowest[name] = min(lowest[name], numbers[other])
        if lowest[name] == numbers[name]:
            group = open_names[open_names.index(name) :]
            del open_names[open_names.index(name) :]
            if len(group) > 1:
                found.append(sorted(group))

    for name in graph:
        if name not in numbers:
            visit(name)
    return found
