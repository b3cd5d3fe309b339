"""Private parts of kafka-python are used in one module only, and listed there."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path

import kafka
from support.source_modules import syntax_nodes

from millstream.kafka.kafka_python_compat import PRIVATE_CLASSES

SOURCE = Path(__file__).parents[2] / "src" / "millstream"
WRAPPERS = ("kafka/kafka_python.py", "kafka/kafka_python_compat.py")
#: The names that kafka-python exports; the documented errors of its methods and arguments of its
#: admin client; and the version.
PUBLIC = {*kafka.__all__, "errors", "admin.MemberToRemove", "__version__"}
PRIVATE = {
    name.removesuffix("()")
    for part in PRIVATE_CLASSES
    for name in (*part.methods, *part.attributes)
    if name.startswith("_")
}


def sources() -> Iterator[tuple[str, tuple[ast.AST, ...]]]:
    """All modules that must not use private parts: their paths and syntax nodes."""
    for path in sorted(SOURCE.rglob("*.py")):
        name = path.relative_to(SOURCE).as_posix()
        if name not in WRAPPERS:
            yield name, syntax_nodes(path)


def imports(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """The full names that a module imports."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_only_one_module_imports_private_parts() -> None:
    """Other modules import them from `millstream.kafka.kafka_python`, which checks them."""
    allowed = {"kafka", *(f"kafka.{name}" for name in PUBLIC)}
    assert [
        (name, imported)
        for name, nodes in sources()
        for imported in imports(nodes)
        if imported.split(".")[0] == "kafka" and imported not in allowed
    ] == []


def test_other_modules_use_no_private_attributes() -> None:
    """No module of the group member uses a listed private name of kafka-python."""
    # The coordinator inherits from kafka-python's class; other modules may have the same names.
    assert [
        (name, node.lineno, node.attr)
        for name, nodes in sources()
        if name.startswith("kafka/membership/")
        for node in nodes
        if isinstance(node, ast.Attribute)
        and node.attr in PRIVATE
        and not (isinstance(node.value, ast.Name) and node.value.id == "self")
    ] == []
    coordinator = dict(sources())["kafka/membership/coordinator.py"]
    used = {node.attr for node in coordinator if isinstance(node, ast.Attribute)}
    assert used & PRIVATE == set()


def test_all_used_private_names_are_listed() -> None:
    """The wrapping module only uses private names that the check at start covers."""
    tree = ast.parse((SOURCE / WRAPPERS[0]).read_text())
    defined = {
        node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)
    } | {
        target.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign | ast.AnnAssign)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Attribute)
    }
    used = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr.startswith("_")
        if not node.attr.startswith("__")
    }
    assert used - defined - PRIVATE == set()
