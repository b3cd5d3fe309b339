"""The logical plan: an immutable description of the user's optimized program.

The logical graph is mutable until its nodes are written to the physical topology. The plan then
records the physical nodes, stores and topics of each operation in the program.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Literal

from millstream.topology.operations.operation import Operation

#: The kind of a logical node. Operations on streams and tables have the kind "operation"; their
#: details are in `operations`.
LogicalKind = Literal[
    "source",
    "table_source",
    "operation",
    "repartition",
    "dataframe",
    "sink",
    "store",
    "global_store",
]


@dataclass(frozen=True)
class LogicalNode:
    """An operation in the user's program."""

    kind: LogicalKind
    #: The name of the physical node to which children are attached; for a store, the store's name.
    name: str
    parents: tuple[str, ...] = ()
    operations: tuple[Operation, ...] = ()
    #: The names of the physical nodes, in the order in which they were added.
    physical: tuple[str, ...] = ()
    #: The names of the stores that the physical nodes use, or that this node adds.
    stores: tuple[str, ...] = ()
    #: The user topics that this node reads, or the pattern of their names.
    topics: tuple[str, ...] = ()
    changes_key: bool = False
    changes_value: bool = False
    is_merge: bool = False
    accepts_null_keys: bool = False
    #: For a windowed aggregation, how long after its end a window may still change; None for other
    #: nodes.
    grace_ms: int | None = None
    #: Whether the output has the semantics of a versioned table; None to inherit this from the
    #: input.
    output_versioned: bool | None = None
    declared_at: str = field(default="", compare=False)


@dataclass(frozen=True)
class LogicalPlan:
    """All operations in the user's program, each after its parents."""

    nodes: tuple[LogicalNode, ...]

    def __getitem__(self, name: str) -> LogicalNode:
        """Return the node with this name. Stores are not included.

        Raises:
            KeyError: there is no such node, or it is a store.
        """
        return self._by_name[name]

    def children(self, name: str) -> tuple[LogicalNode, ...]:
        """Return the nodes that receive records from the node with this name, in order."""
        return tuple(node for node in self.nodes if name in node.parents)

    def origin(self, physical: str) -> LogicalNode:
        """Return the logical node from which a physical node was created.

        Raises:
            KeyError: there is no physical node with this name.
        """
        return self._origins[physical]

    @cached_property
    def _by_name(self) -> Mapping[str, LogicalNode]:
        return MappingProxyType({node.name: node for node in self.nodes if node.kind != "store"})

    @cached_property
    def _origins(self) -> Mapping[str, LogicalNode]:
        return MappingProxyType({name: node for node in self.nodes for name in node.physical})
