"""The user's program as the passes left it, for those who read a built topology.

The logical graph itself is for building: its nodes change until they are written. What is kept of
it is immutable, and tells for each word of the program what it became.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Literal

from millstream.topology.operations.operation import Operation

#: What a logical node stands for. Operations on streams and tables are told apart by their data.
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
    """A word of the user's program.

    Args:
        kind: what it stands for.
        name: that of the physical node to which children attach; of a store, the store's.
        parents: the names of the nodes whose records it takes, in the order of attaching.
        operations: what its processor nodes do, in their order.
        physical: the names of the physical nodes that it became, in the order of adding.
        stores: the names of the stores that these use, or that it adds.
        topics: the topics of the user's that it reads, or the pattern of their names.
        changes_key: whether records may leave with another key.
        changes_value: whether records may leave with another value.
        merges: whether it only brings streams together.
        takes_null_keys: whether it has use for records without a key.
        grace_ms: of a windowed aggregation: how long after its end a window may still change; None
            for others.
        output_versioned: whether its changes are those of a versioned table; None if they are as
            those of its input.
        declared_at: file and line of the user's program.
    """

    kind: LogicalKind
    name: str
    parents: tuple[str, ...] = ()
    operations: tuple[Operation, ...] = ()
    physical: tuple[str, ...] = ()
    stores: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()
    changes_key: bool = False
    changes_value: bool = False
    merges: bool = False
    takes_null_keys: bool = False
    grace_ms: int | None = None
    output_versioned: bool | None = None
    declared_at: str = field(default="", compare=False)


@dataclass(frozen=True)
class LogicalPlan:
    """All words of the user's program, each after its parents.

    Args:
        nodes: in the order in which they became physical nodes.
    """

    nodes: tuple[LogicalNode, ...]

    def __getitem__(self, name: str) -> LogicalNode:
        """The node of that name, which is not a mere store.

        Raises:
            KeyError: there is none.
        """
        return self._by_name[name]

    def children(self, name: str) -> tuple[LogicalNode, ...]:
        """The nodes that take the records of the one of that name, in order."""
        return tuple(node for node in self.nodes if name in node.parents)

    def origin(self, physical: str) -> LogicalNode:
        """The word of the program that a physical node belongs to.

        Args:
            physical: the name of the physical node.

        Raises:
            KeyError: there is no such node.
        """
        return self._origins[physical]

    @cached_property
    def _by_name(self) -> Mapping[str, LogicalNode]:
        return MappingProxyType({node.name: node for node in self.nodes if node.kind != "store"})

    @cached_property
    def _origins(self) -> Mapping[str, LogicalNode]:
        return MappingProxyType({name: node for node in self.nodes for name in node.physical})
