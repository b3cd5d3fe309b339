"""The kinds of nodes in the logical graph, and the physical nodes that each becomes."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from types import FunctionType
from typing import Any, ClassVar

from millstream.errors import TopologyError
from millstream.serdes import Serde
from millstream.state.builders.store_builder import StoreBuilder
from millstream.topology.arguments import checked_partitioner
from millstream.topology.logical_plan import LogicalKind
from millstream.topology.operations.operation import Operation, VersionHeedingOperation
from millstream.topology.operations.streams import Branch, NullKeyFilter, PassThrough
from millstream.topology.physical.internal_topics import RepartitionTopic
from millstream.topology.physical.nodes import (
    OffsetReset,
    Partitioner,
    TimestampExtractor,
    TopicExtractor,
)
from millstream.topology.physical.topology import Topology
from millstream.unawaited import name_of


@dataclass(eq=False, slots=True, kw_only=True)
class GraphNode:
    """An operation of the user's program.

    Args:
        name: that of the physical node to which children attach.
        declared_at: file and line of the user's program.
        changes_key: whether records may leave with another key, and so belong elsewhere.
        changes_value: whether records may leave with another value.
        merges: whether it only brings streams together.
        grace_ms: of a windowed aggregation: how long after its end a window may still change, a
            session's inactivity gap included; None for other nodes.
        output_versioned: whether its changes are those of a versioned table; None if they are as
            those of its input.
        takes_null_keys: whether it is a left or outer join of a stream, which has use for records
            without a key, so that repartition topics above must let them pass (KIP-962).
        parents: in the order of attaching.
        children: in the order of attaching.
        priority: nodes are written in this order, each after its parents.

    Attributes:
        kind: what it stands for; None for the root, which stands for nothing.
    """

    kind: ClassVar[LogicalKind | None] = "operation"

    name: str
    declared_at: str
    changes_key: bool = False
    changes_value: bool = False
    merges: bool = False
    grace_ms: int | None = None
    output_versioned: bool | None = None
    takes_null_keys: bool = False
    parents: list[GraphNode] = field(default_factory=list, repr=False)
    children: list[GraphNode] = field(default_factory=list, repr=False)
    priority: int = -1

    def write(self, topology: Topology) -> None:
        """Add what this node stands for to the physical topology."""
        raise NotImplementedError

    def add_child(self, child: GraphNode) -> None:
        """Attach a node below this one, unless it is there already."""
        if child not in self.children:
            self.children.append(child)
        if self not in child.parents:
            child.parents.append(self)

    def remove_child(self, child: GraphNode) -> None:
        """Detach a node from this one."""
        self.children.remove(child)
        child.parents.remove(self)

    @property
    def parent_names(self) -> list[str]:
        """The physical nodes from which this one takes records."""
        return [parent.name for parent in self.parents]

    @property
    def read_topics(self) -> tuple[str, ...]:
        """The topics of the user's that this node reads, or the pattern of their names."""
        return ()


@dataclass(eq=False, slots=True, kw_only=True)
class RootGraphNode(GraphNode):
    """The parent of sources and stores. Stands for nothing."""

    kind = None

    def write(self, topology: Topology) -> None:
        """Nothing to write."""


@dataclass(eq=False, slots=True, kw_only=True)
class SourceGraphNode(GraphNode):
    """`stream(...)`: topics, or a pattern of their names, are read."""

    kind = "source"

    topics: tuple[str, ...]
    pattern: re.Pattern[str] | None
    key_serde: Serde[Any] | None
    value_serde: Serde[Any] | None
    timestamp_extractor: TimestampExtractor | None
    offset_reset: OffsetReset | None

    def write(self, topology: Topology) -> None:
        """A source node."""
        topology.add_source(
            self.name,
            self.topics if self.pattern is None else self.pattern,
            key=self.key_serde,
            value=self.value_serde,
            timestamp_extractor=self.timestamp_extractor,
            offset_reset=self.offset_reset,
            declared_at=self.declared_at,
        )

    @property
    def read_topics(self) -> tuple[str, ...]:
        """The topics, or the pattern of their names."""
        return self.topics if self.pattern is None else (self.pattern.pattern,)

    def reads_the_same(self, other: SourceGraphNode) -> bool:
        """Whether both read the same topics or have the same pattern.

        Raises:
            TopologyError: some topics are the same, but not all.
        """
        if self.pattern is not None or other.pattern is not None:
            return self.pattern == other.pattern
        common = set(self.topics) & set(other.topics)
        if common and set(self.topics) != set(other.topics):
            raise TopologyError(
                f"The topic {min(common)!r} is read by two sources which do not read the same "
                f"topics otherwise: {sorted(self.topics)} (declared at {self.declared_at}) and "
                f"{sorted(other.topics)}. Read each set of topics once and merge() the streams.",
                topic=min(common),
                node=other.name,
                declared_at=other.declared_at,
            )
        return bool(common)

    def absorb(self, other: SourceGraphNode) -> None:
        """Take over the children of a source of the same topics, which has the same options.

        Raises:
            TopologyError: the two want to read the topics in different ways.
        """
        for what, own, others in (
            ("offset resets", self.offset_reset, other.offset_reset),
            ("key serdes", self.key_serde, other.key_serde),
            ("value serdes", self.value_serde, other.value_serde),
            ("timestamp extractors", self.timestamp_extractor, other.timestamp_extractor),
        ):
            if not _alike(own, others):
                raise TopologyError(
                    f"Two sources of the same topics have different {what}: {_option(own)} "
                    f"(declared at {self.declared_at}) and {_option(others)}. A topic is read "
                    "once, so give both the same, or read it once and use the stream twice.",
                    topic=self.topics[0] if self.topics else None,
                    node=other.name,
                    declared_at=other.declared_at,
                )
        for child in list(other.children):
            other.remove_child(child)
            self.add_child(child)
        for parent in list(other.parents):
            parent.remove_child(other)


def _alike(one: object, other: object) -> bool:
    """Whether two options of sources do the same, as far as that shows.

    Functions, and serdes made of them, are not equal when they are made twice from the same lines.
    """
    if one == other:
        return True
    if isinstance(one, FunctionType) and isinstance(other, FunctionType):
        return _made_of(one) == _made_of(other)
    if type(one) is type(other) is Serde:
        return all(map(_alike, vars(one).values(), vars(other).values()))
    return False


def _made_of(function: FunctionType) -> tuple[object, ...]:
    """A function's code, and what it got from where it was made."""
    return (
        function.__code__,
        function.__defaults__,
        function.__kwdefaults__,
        function.__closure__,
    )


def _option(value: object) -> str:
    """An option of a source as its user knows it."""
    if value is None:
        return "the config's default"
    if callable(value):
        return name_of(value)
    return repr(value)


@dataclass(eq=False, slots=True, kw_only=True)
class OperatorGraphNode(GraphNode):
    """An operation that becomes one processor node, with a store of its own or shared ones."""

    operation: Operation
    store_builder: StoreBuilder | None = None
    store_name_generated: bool = False
    store_names: tuple[str, ...] = ()

    def complete_operation(self) -> Operation:
        """The operation, with what is known only when the graph is complete."""
        if isinstance(self.operation, VersionHeedingOperation):
            return replace(self.operation, versioned=is_versioned_above(self))
        return self.operation

    def write(self, topology: Topology) -> None:
        """A processor node, its store, and its connections to stores."""
        topology._add_operation(
            self.name, self.complete_operation(), self.parent_names, self.declared_at
        )
        if self.store_builder is not None:
            topology.add_state_store(
                self.store_builder, self.name, generated_name=self.store_name_generated
            )
        topology.connect_processor_and_state_stores(self.name, *self.store_names)


@dataclass(eq=False, slots=True, kw_only=True)
class ProcessGraphNode(GraphNode):
    """`process(...)`: a processor of the user's, with stores that it brings or refers to."""

    operation: Operation
    store_builders: tuple[StoreBuilder, ...] = ()
    store_names: tuple[str, ...] = ()

    def write(self, topology: Topology) -> None:
        """A processor node, the stores it brings, and its connections to stores."""
        topology._add_operation(self.name, self.operation, self.parent_names, self.declared_at)
        for builder in self.store_builders:
            topology.add_state_store(builder, self.name)
        topology.connect_processor_and_state_stores(self.name, *self.store_names)


@dataclass(eq=False, slots=True, kw_only=True)
class GlobalStoreGraphNode(GraphNode):
    """A global store, with what fills it. Its name is that of the processor.

    Args:
        source_name: of the node that reads the topic.
        topic: the topic.
        store_builder: of the store.
        operation: of the processor.
        key_serde: of the topic's keys; None for the config's default.
        value_serde: of the topic's values; None for the config's default.
        store_name_generated: whether the user gave the store no name.
    """

    kind = "global_store"

    source_name: str
    topic: str
    store_builder: StoreBuilder
    operation: Operation
    key_serde: Serde[Any] | None
    value_serde: Serde[Any] | None
    store_name_generated: bool = False

    @property
    def read_topics(self) -> tuple[str, ...]:
        """The topic."""
        return (self.topic,)

    def write(self, topology: Topology) -> None:
        """The store, its source and its processor."""
        topology._fill_global_store(
            self.store_builder,
            self.source_name,
            self.topic,
            self.name,
            self.operation,
            self.key_serde,
            self.value_serde,
            self.declared_at,
        )
        if self.store_name_generated:
            topology._note_generated_store(self.store_builder.name, logged=False)


@dataclass(eq=False, slots=True, kw_only=True)
class BranchGraphNode(GraphNode):
    """`split()`: which branches there are is known when the program has named them all."""

    predicates: list[Callable[[Any, Any], Any]] = field(default_factory=list)
    branches: list[str] = field(default_factory=list)
    default: str | None = None

    def write(self, topology: Topology) -> None:
        """A processor node that sends each record to one of its children."""
        children: tuple[str | None, ...] = tuple(self.branches)
        if self.default is not None:
            children = (*children, self.default)
        operation = Branch(tuple(self.predicates), children)
        topology._add_operation(self.name, operation, self.parent_names, self.declared_at)


@dataclass(eq=False, slots=True, kw_only=True)
class SinkGraphNode(GraphNode):
    """`to(...)`: records are written to a topic."""

    kind = "sink"

    topic: str | TopicExtractor
    key_serde: Serde[Any] | None
    value_serde: Serde[Any] | None
    partitioner: Partitioner | None

    def __post_init__(self) -> None:
        checked_partitioner("to", self.partitioner)

    def write(self, topology: Topology) -> None:
        """A sink node."""
        topology.add_sink(
            self.name,
            self.topic,
            self.parent_names,
            key=self.key_serde,
            value=self.value_serde,
            partitioner=self.partitioner,
            declared_at=self.declared_at,
        )


@dataclass(eq=False, slots=True, kw_only=True)
class RepartitionGraphNode(GraphNode):
    """Records pass through an internal topic to the tasks that own their keys.

    Its name is that of the source which reads the topic.

    Args:
        topic: the internal topic.
        filter_name: the node that drops records without a key.
        sink_name: the node that writes the topic.
        key_serde: of the topic's keys; None for the config's default.
        value_serde: of the topic's values; None for the config's default.
        partitioner: chosen by the user; None for Kafka's default.
        optimizable: whether the operation asked for it by itself, so that it may be shared.
        keeps_null_keys: whether records without a key pass, on any partition.
    """

    kind = "repartition"

    topic: RepartitionTopic
    filter_name: str
    sink_name: str
    key_serde: Serde[Any] | None
    value_serde: Serde[Any] | None
    partitioner: Partitioner | None = None
    optimizable: bool = True
    keeps_null_keys: bool = False

    def write(self, topology: Topology) -> None:
        """A filter of null keys, a sink and a source."""
        site = self.declared_at
        topic = self.topic.name
        topology._add_internal_topic(self.topic)
        operation = PassThrough() if self.keeps_null_keys else NullKeyFilter()
        topology._add_operation(self.filter_name, operation, self.parent_names, site)
        topology.add_sink(
            self.sink_name,
            topic,
            self.filter_name,
            key=self.key_serde,
            value=self.value_serde,
            partitioner=self.partitioner,
            declared_at=site,
        )
        topology.add_source(
            self.name,
            topic,
            key=self.key_serde,
            value=self.value_serde,
            declared_at=site,
        )


@dataclass(eq=False, slots=True, kw_only=True)
class StoreGraphNode(GraphNode):
    """`add_state_store(...)`: a store that processors refer to by name."""

    kind = "store"

    store_builder: StoreBuilder

    def write(self, topology: Topology) -> None:
        """The store, not connected to any processor yet."""
        topology.add_state_store(self.store_builder)


def is_versioned_above(node: GraphNode) -> bool:
    """Whether the changes that a node gets come from a versioned table.

    Follows Kafka Streams (KIP-914): nodes that keep no store, such as filters, hand the property
    of their input on.
    """
    return any(is_versioned(parent) for parent in node.parents)


def is_versioned(node: GraphNode) -> bool:
    """Whether the changes that a node gives are those of a versioned table."""
    if node.output_versioned is not None:
        return node.output_versioned
    return is_versioned_above(node)
