"""What streams, tables and groups have in common: a place in the logical graph."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from millstream.serdes import Serde
from millstream.topology.graph import LogicalGraph
from millstream.topology.graph_nodes import GraphNode


@dataclass(frozen=True, slots=True)
class StreamPart:
    """The node that a stream or table comes out of, and what is known about its records.

    Args:
        graph: the graph it belongs to.
        node: where the next operation attaches.
        key_serde: of its keys, if known; an operation that changes keys forgets it.
        value_serde: of its values, if known; an operation that changes values forgets it.
        sources: the names of the sources from which its tasks read, for co-partitioning.
        repartition_required: whether keys may have changed since the records were last placed
            by key, so that an operation by key must repartition first.
    """

    graph: LogicalGraph
    node: GraphNode
    key_serde: Serde[Any] | None
    value_serde: Serde[Any] | None
    sources: frozenset[str]
    repartition_required: bool = False

    @property
    def name(self) -> str:
        """The name of the physical node whose output this is."""
        return self.node.name


def checked_function(operation: str, parameter: str, function: Callable[..., Any]) -> None:
    """Refuse what cannot be called, where the mistake is made and not where the record arrives.

    Raises:
        TypeError: it is not callable.
    """
    if not callable(function):
        raise TypeError(
            f"{operation}() needs a function as its {parameter}, "
            f"but got {type(function).__name__}: {function!r}."
        )
