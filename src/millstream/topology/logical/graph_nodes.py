"""The nodes of the logical graph, which add their nodes to the physical topology."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from operator import attrgetter
from types import FunctionType
from typing import Any, ClassVar, Final

from millstream.async_checks import name_of
from millstream.errors import TopologyError
from millstream.serdes import Serde
from millstream.state.builders.store_builder import StoreBuilder
from millstream.topology.argument_checks import check_partitioner
from millstream.topology.logical_plan import LogicalKind
from millstream.topology.naming import NameGenerator
from millstream.topology.operations.joins import StreamSelfJoin, StreamStreamJoin
from millstream.topology.operations.operation import Operation, VersionAwareOperation
from millstream.topology.operations.streams import Branch, NullKeyFilter, PassThrough
from millstream.topology.options.lake import LakeHistory
from millstream.topology.physical.internal_topic_configs import RepartitionTopic
from millstream.topology.physical.nodes import (
    OffsetReset,
    Partitioner,
    TimestampExtractor,
    TopicExtractor,
)
from millstream.topology.physical.topology import Topology, add_unique


@dataclass(eq=False, slots=True, kw_only=True)
class GraphNode:
    """An operation in the user's program."""

    #: The kind of operation; None for the root node.
    kind: ClassVar[LogicalKind | None] = "operation"

    #: The name of the physical node to which children attach.
    name: str
    declared_at: str
    #: Whether the keys of records may change, so that records may belong to other tasks.
    changes_key: bool = False
    changes_value: bool = False
    is_merge: bool = False
    #: For a windowed aggregation, how long after its end a window may still change, including the
    #: inactivity gap of a session; None for other nodes.
    grace_ms: int | None = None
    #: Whether the output has the semantics of a versioned table; None to inherit this from the
    #: input.
    output_versioned: bool | None = None
    #: Whether the node is a left or outer join of a stream. Such a join processes records without a
    #: key, so upstream repartition nodes must not drop them (KIP-962).
    accepts_null_keys: bool = False
    parents: list[GraphNode] = field(default_factory=list, repr=False)
    children: list[GraphNode] = field(default_factory=list, repr=False)
    #: Nodes are written in ascending order of priority, each after its parents.
    priority: int = -1

    def write(self, topology: Topology) -> None:
        """Add the physical nodes, stores and topics of this node to the topology."""
        raise NotImplementedError

    def add_child(self, child: GraphNode) -> None:
        """Attach a child to this node, unless it is already attached."""
        if child not in self.children:
            self.children.append(child)
        if self not in child.parents:
            child.parents.append(self)

    def remove_child(self, child: GraphNode) -> None:
        self.children.remove(child)
        child.parents.remove(self)

    @property
    def parent_names(self) -> list[str]:
        """The physical nodes from which this node takes records."""
        return [parent.name for parent in self.parents]

    @property
    def read_topics(self) -> tuple[str, ...]:
        """The user's topics that this node reads, or the pattern of their names."""
        return ()


@dataclass(eq=False, slots=True, kw_only=True)
class RootGraphNode(GraphNode):
    """The parent of sources and stores, which represents no operation."""

    kind = None

    def write(self, topology: Topology) -> None:
        """Do nothing."""


@dataclass(eq=False, slots=True, kw_only=True)
class SourceGraphNode(GraphNode):
    """`stream(...)`: a source of topics, or of topics that match a pattern."""

    kind = "source"

    topics: tuple[str, ...]
    pattern: re.Pattern[str] | None
    key_serde: Serde[Any] | None
    value_serde: Serde[Any] | None
    timestamp_extractor: TimestampExtractor | None
    offset_reset: OffsetReset | None

    def write(self, topology: Topology) -> None:
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
        return self.topics if self.pattern is None else (self.pattern.pattern,)

    def reads_same_topics(self, other: SourceGraphNode) -> bool:
        """Return whether both sources read the same topics or have the same pattern.

        Raises:
            TopologyError: the topics overlap, but are not the same.
        """
        if self.pattern is not None or other.pattern is not None:
            return self.pattern == other.pattern
        common = set(self.topics) & set(other.topics)
        if common and set(self.topics) != set(other.topics):
            raise TopologyError(
                f"The topic {min(common)!r} is read by two sources with different sets of "
                f"topics: {sorted(self.topics)} (declared at {self.declared_at}) and "
                f"{sorted(other.topics)}. Read each set of topics once and merge() the streams.",
                topic=min(common),
                node=other.name,
                declared_at=other.declared_at,
            )
        return bool(common)

    def merge_with(self, other: SourceGraphNode) -> None:
        """Take over the children of a source with the same topics and options.

        Raises:
            TopologyError: the options of the two sources differ.
        """
        for label, own, others in (
            ("offset resets", self.offset_reset, other.offset_reset),
            ("key serdes", self.key_serde, other.key_serde),
            ("value serdes", self.value_serde, other.value_serde),
            ("timestamp extractors", self.timestamp_extractor, other.timestamp_extractor),
        ):
            if not _same_option(own, others):
                raise TopologyError(
                    f"Two sources of the same topics have different {label}: {_option_text(own)} "
                    f"(declared at {self.declared_at}) and {_option_text(others)}. A topic is read "
                    "once: use the same option for both, or create one stream and use it twice.",
                    topic=self.topics[0] if self.topics else None,
                    node=other.name,
                    declared_at=other.declared_at,
                )
        for child in list(other.children):
            other.remove_child(child)
            self.add_child(child)
        for parent in list(other.parents):
            parent.remove_child(other)


def _same_option(one: object, other: object) -> bool:
    """Return whether two options of sources are equivalent.

    The result is False if this cannot be determined. Two functions that the same lines create are
    not equal, and neither are serdes that use them. Functions are therefore compared by their code,
    defaults and closures.
    """
    if one == other:
        return True
    if isinstance(one, FunctionType) and isinstance(other, FunctionType):
        return _function_parts(one) == _function_parts(other)
    if type(one) is type(other) is Serde:
        return all(map(_same_option, vars(one).values(), vars(other).values()))
    return False


_function_parts = attrgetter("__code__", "__defaults__", "__kwdefaults__", "__closure__")


def _option_text(value: object) -> str:
    if value is None:
        return "the config's default"
    return name_of(value) if callable(value) else repr(value)


@dataclass(eq=False, slots=True, kw_only=True)
class OperatorGraphNode(GraphNode):
    """An operation that becomes one processor node, with its own or shared stores."""

    operation: Operation
    store_builder: StoreBuilder | None = None
    store_name_generated: bool = False
    store_names: tuple[str, ...] = ()

    def complete_operation(self) -> Operation:
        """Return the operation, including the fields that depend on the complete graph."""
        if isinstance(self.operation, VersionAwareOperation):
            return replace(self.operation, versioned=has_versioned_input(self))
        return self.operation

    def write(self, topology: Topology) -> None:
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
    """`process(...)`: a custom processor with its supplier's stores and named stores."""

    operation: Operation
    store_builders: tuple[StoreBuilder, ...] = ()
    store_names: tuple[str, ...] = ()

    def write(self, topology: Topology) -> None:
        topology._add_operation(self.name, self.operation, self.parent_names, self.declared_at)
        for builder in self.store_builders:
            topology.add_state_store(builder, self.name)
        topology.connect_processor_and_state_stores(self.name, *self.store_names)


@dataclass(eq=False, slots=True, kw_only=True)
class GlobalStoreGraphNode(GraphNode):
    """A global store and its processor. The node has the name of the processor."""

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
        return (self.topic,)

    def write(self, topology: Topology) -> None:
        topology._add_global_store_node(
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
            topology._add_generated_store(self.store_builder.name, logged=False)


@dataclass(eq=False, slots=True, kw_only=True)
class BranchGraphNode(GraphNode):
    """`split()`: a node to which branches are added until the topology is built."""

    predicates: list[Callable[[Any, Any], Any]] = field(default_factory=list)
    branches: list[str] = field(default_factory=list)
    default: str | None = None

    def write(self, topology: Topology) -> None:
        default = () if self.default is None else (self.default,)
        operation = Branch(tuple(self.predicates), (*self.branches, *default))
        topology._add_operation(self.name, operation, self.parent_names, self.declared_at)


@dataclass(eq=False, slots=True, kw_only=True)
class SinkGraphNode(GraphNode):
    """`to(...)`: a sink that writes records to a topic."""

    kind = "sink"

    topic: str | TopicExtractor
    key_serde: Serde[Any] | None
    value_serde: Serde[Any] | None
    partitioner: Partitioner | None

    def __post_init__(self) -> None:
        check_partitioner("to", self.partitioner)

    def write(self, topology: Topology) -> None:
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
    """An internal topic through which records reach the tasks that own their keys.

    The node is named after the source that reads the topic.
    """

    kind = "repartition"

    topic: RepartitionTopic
    #: The name of the filter above the sink. The filter drops records without a key unless
    #: `passes_null_keys` is set.
    filter_name: str
    sink_name: str
    key_serde: Serde[Any] | None
    value_serde: Serde[Any] | None
    partitioner: Partitioner | None = None
    #: Whether an operation added the node implicitly, so that it may be merged with others.
    optimizable: bool = True
    #: Whether records without a key are written, each to an arbitrary partition.
    passes_null_keys: bool = False

    def write(self, topology: Topology) -> None:
        topic, site = self.topic.name, self.declared_at
        topology._add_internal_topic(self.topic)
        operation = PassThrough() if self.passes_null_keys else NullKeyFilter()
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
            self.name, topic, key=self.key_serde, value=self.value_serde, declared_at=site
        )


@dataclass(eq=False, slots=True, kw_only=True)
class StoreGraphNode(GraphNode):
    """`add_state_store(...)`: a store that processors refer to by name."""

    kind = "store"

    store_builder: StoreBuilder

    def write(self, topology: Topology) -> None:
        topology.add_state_store(self.store_builder)


def has_versioned_input(node: GraphNode) -> bool:
    """Return whether a node receives changes of a versioned table.

    As in Kafka Streams (KIP-914), nodes without a store, such as filters, inherit the property from
    their input.
    """
    return any(is_versioned(parent) for parent in node.parents)


def is_versioned(node: GraphNode) -> bool:
    """Return whether the output of a node has the semantics of a versioned table."""
    if node.output_versioned is not None:
        return node.output_versioned
    return has_versioned_input(node)


@dataclass(eq=False, slots=True, kw_only=True)
class StreamStreamJoinGraphNode(GraphNode):
    """A join of two streams, without the nodes that store the records of either side."""

    #: The nodes that store the records of this stream and the other stream.
    windowed: tuple[OperatorGraphNode, OperatorGraphNode]
    #: The names of the nodes that join the records of either side.
    joins: tuple[str, str]
    operations: tuple[StreamStreamJoin, StreamStreamJoin]
    #: The operation that replaces both operations if the streams are the same.
    self_join: StreamSelfJoin
    stores: tuple[StoreBuilder, StoreBuilder]
    #: The additional store of left and outer joins.
    unmatched_store: StoreBuilder | None
    unmatched_name_generated: bool
    #: Whether one node and one store serve both sides.
    is_self_join: bool = False

    def write(self, topology: Topology) -> None:
        site = self.declared_at
        if self.is_self_join:
            parent = self.windowed[0].name
            topology._add_operation(self.name, self.self_join, parent, site)
            topology.add_state_store(self.stores[0], self.name)
            return
        for position, name in enumerate(self.joins):
            parent = self.windowed[position].name
            topology._add_operation(name, self.operations[position], parent, site)
            topology.add_state_store(self.stores[1 - position], name)
            if self.unmatched_store is not None:
                topology.add_state_store(
                    self.unmatched_store, name, generated_name=self.unmatched_name_generated
                )
        topology._add_operation(self.name, PassThrough(), self.joins, site)


@dataclass(eq=False, slots=True, kw_only=True)
class HistoryGraphNode(SourceGraphNode):
    """`stream_from_lake(...)`: a source of the history topic and the following topic."""

    history: LakeHistory
    generated_name: bool

    def write(self, topology: Topology) -> None:
        history = self.history
        topology._add_internal_topic(
            RepartitionTopic(history.topic, history.partitions, self.generated_name)
        )
        add_unique(topology.lake_histories, history, "history")
        SourceGraphNode.write(self, topology)

    @property
    def read_topics(self) -> tuple[str, ...]:
        """The topic that follows the history, if any."""
        return () if self.history.then is None else (self.history.then,)

    def merge_with(self, other: SourceGraphNode) -> None:
        """Reject a second history, since both would write to the same topic.

        Raises:
            TopologyError: always.
        """
        raise TopologyError(
            f"There is another history called {self.history.name!r}, declared at "
            f"{self.declared_at}. Give each history its own name, or use the stream twice.",
            declared_at=other.declared_at,
        )


_SUFFIX: Final = "-repartition"
_GENERATED = re.compile(r"KSTREAM.*-[0-9]{10}")


def repartition_node(
    names: NameGenerator,
    base: str,
    *,
    key_serde: Serde[Any] | None,
    value_serde: Serde[Any] | None,
    declared_at: str,
    generated: bool,
    partitions: int | None = None,
    partitioner: Partitioner | None = None,
    optimizable: bool = True,
) -> RepartitionGraphNode:
    """Return a repartition node with the topic `<base>-repartition`.

    The sink, the filter and the source take one number each. As in Kafka Streams, the numbers only
    appear in the names if the base name is generated as well.

    Args:
        base: the user's name for the operation, or the name of its store or stream.
        partitions: None to let the assignor choose.
        optimizable: whether the node may be merged with others.
    """
    check_partitioner("repartition", partitioner)
    topic = base if base.endswith(_SUFFIX) else base + _SUFFIX
    sink = names.processor("KSTREAM-SINK-")
    null_filter = names.processor("KSTREAM-FILTER-")
    source = names.processor("KSTREAM-SOURCE-")
    if not _GENERATED.fullmatch(base):
        sink, null_filter, source = f"{topic}-sink", f"{topic}-filter", f"{topic}-source"
    return RepartitionGraphNode(
        name=source,
        declared_at=declared_at,
        topic=RepartitionTopic(topic, partitions, generated),
        filter_name=null_filter,
        sink_name=sink,
        key_serde=key_serde,
        value_serde=value_serde,
        partitioner=partitioner,
        optimizable=optimizable,
    )
