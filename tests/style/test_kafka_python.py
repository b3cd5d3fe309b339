"""What kafka-python does not promise is used in one module only, and listed there."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import kafka

from millstream.kafka.kafka_python_parts import PARTS

SOURCE = Path(__file__).parents[2] / "src" / "millstream"
INSIDERS = ("kafka/kafka_python.py", "kafka/kafka_python_parts.py")
#: Beside what kafka-python lists as its own: the errors, which its methods are documented to
#: raise, what its admin client is documented to take, and the version.
PUBLIC = {*kafka.__all__, "errors", "admin.MemberToRemove", "__version__"}
PRIVATE = {
    name.removesuffix("()")
    for part in PARTS
    for name in (*part.methods, *part.attributes)
    if name.startswith("_")
}


def sources() -> Iterator[tuple[str, ast.Module]]:
    """Every module but the insiders, with its path."""
    for path in sorted(SOURCE.rglob("*.py")):
        name = path.relative_to(SOURCE).as_posix()
        if name not in INSIDERS:
            yield name, ast.parse(path.read_text())


def imports(tree: ast.Module) -> Iterator[str]:
    """What a module imports of kafka-python, by full names."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_only_one_module_imports_what_is_not_public() -> None:
    """Everyone else takes it from `millstream.kafka.kafka_python`, where it is checked."""
    allowed = {"kafka", *(f"kafka.{name}" for name in PUBLIC)}
    assert [
        (name, imported)
        for name, tree in sources()
        for imported in imports(tree)
        if imported.split(".")[0] == "kafka" and imported not in allowed
    ] == []


def test_nobody_else_reaches_into_its_objects() -> None:
    """No module of the group member uses a private name of kafka-python's that is on the list."""
    # The coordinator inherits from kafka-python's; the others may call their own things likewise.
    assert [
        (name, node.lineno, node.attr)
        for name, tree in sources()
        if name.startswith("kafka/member/")
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and node.attr in PRIVATE
        and not (isinstance(node.value, ast.Name) and node.value.id == "self")
    ] == []
    coordinator = dict(sources())["kafka/member/coordinator.py"]
    used = {node.attr for node in ast.walk(coordinator) if isinstance(node, ast.Attribute)}
    assert used & PRIVATE == set()


def test_every_part_that_is_used_is_on_the_list() -> None:
    """The module that wraps kafka-python uses no private name that the check would not notice."""
    tree = ast.parse((SOURCE / INSIDERS[0]).read_text())
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
