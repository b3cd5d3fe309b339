"""What fills a store or a repartition topic whose name was made up: the way from the input to it.

A made-up name is a number of operators, so another store may bear it in the next version. What is
computed on the way tells the two apart, as far as code can be compared.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
from collections.abc import Iterable, Iterator
from types import CodeType
from typing import Any, Final

from millstream.topology.physical.describe import function_name
from millstream.topology.physical.nodes import Node, ProcessorNode, SinkNode, SourceNode
from millstream.topology.physical.topology import Topology

_SIMPLE: Final = (str, int, float, bytes, bool, type(None))


def origin_of_store(topology: Topology, store: str) -> tuple[str, ...]:
    """The steps on the way to a store, those of all of its inputs."""
    users = [
        node
        for node in topology.nodes.values()
        if isinstance(node, ProcessorNode) and store in node.stores
    ]
    return _steps(topology, users)


def origin_of_topic(topology: Topology, topic: str) -> tuple[str, ...]:
    """The steps on the way to a repartition topic."""
    return _steps(topology, _writers(topology, topic))


def _steps(topology: Topology, ends: Iterable[Node]) -> tuple[str, ...]:
    """Each step once, sources first; names are left out, since they are made up as well."""
    found: dict[str, Node] = {}
    open_ = list(ends)
    while open_:
        node = open_.pop()
        if node.name in found:
            continue
        found[node.name] = node
        if isinstance(node, SourceNode):
            for topic in node.topics:
                open_ += _writers(topology, topic) if topic in topology.internal_topics else ()
        else:
            open_ += (topology.nodes[parent] for parent in node.parents)
    ordered = (node for name, node in topology.nodes.items() if name in found)
    return tuple(step for node in ordered for step in _step(topology, node))


def _writers(topology: Topology, topic: str) -> list[Node]:
    return [
        node
        for node in topology.nodes.values()
        if isinstance(node, SinkNode) and node.topic == topic
    ]


def _step(topology: Topology, node: Node) -> Iterator[str]:
    if isinstance(node, SourceNode):
        outside = [topic for topic in node.topics if topic not in topology.internal_topics]
        if outside or node.pattern is not None:
            yield ", ".join([*outside, *([node.pattern.pattern] if node.pattern else [])])
    elif isinstance(node, ProcessorNode):
        functions = ", ".join(_functions(node.operation))
        yield f"{type(node.operation).__name__}({functions})"


def _functions(value: Any) -> Iterator[str]:
    """The functions in an operation, told by their names and their code."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield from _functions(getattr(value, field.name))
    elif isinstance(value, tuple | list):
        for each in value:
            yield from _functions(each)
    elif isinstance(value, functools.partial):
        yield from _functions(value.func)
    elif callable(value):
        code = getattr(value, "__code__", None)
        mark = "" if code is None else f" {_mark(code, getattr(value, '__closure__', None))}"
        yield f"{function_name(value).rpartition('.')[2]}{mark}"


def _mark(code: CodeType, closure: tuple[Any, ...] | None) -> str:
    """A short number of what a function does, wherever it stands in its file."""
    told = hashlib.sha256()
    _tell(code, told)
    for cell in closure or ():
        held = cell.cell_contents if _is_filled(cell) else None
        if isinstance(held, _SIMPLE):
            told.update(repr(held).encode())
    return told.hexdigest()[:8]


def _is_filled(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True


def _tell(code: CodeType, told: Any) -> None:
    told.update(code.co_code)
    told.update(repr(code.co_names).encode())
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            _tell(constant, told)
        elif isinstance(constant, frozenset):
            told.update(repr(sorted(map(repr, constant))).encode())
        else:
            told.update(repr(constant).encode())
