"""The physical topology: source, processor and sink nodes, and the stores they use."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from millstream.errors import TopologyError
from millstream.operators.operator import OperatorSupplier
from millstream.serdes import Serde
from millstream.state.builders import KeyValueStoreBuilder as StoreBuilder
from millstream.topology.call_site import call_site
from millstream.topology.copartition import check_enforced_partitions, merge_overlapping
from millstream.topology.describe import TopologyDescription, describe_subtopology
from millstream.topology.internal_topics import (
    ChangelogTopic,
    RepartitionTopic,
    changelog_name,
)
from millstream.topology.naming import checked_name
from millstream.topology.nodes import (
    Node,
    OffsetReset,
    Partitioner,
    ProcessorNode,
    SinkNode,
    SourceNode,
    TimestampExtractor,
    TopicExtractor,
)
from millstream.topology.subtopology import SubTopology, group_nodes


class Topology:
    """What an application computes: nodes, the stores they use, and its internal topics.

    `StreamsBuilder.build` makes one from the words of the DSL; the `add_` methods add to it.
    Parents and stores must be added before what refers to them. The order of adding is the order
    in which nodes are initialized, children get their records, and sub-topologies are numbered.

    Can be pickled with cloudpickle, functions of the user's included.

    Attributes:
        nodes: by name, in the order of adding.
        state_stores: the builders of the stores, by name.
        internal_topics: the repartition topics, by undecorated name.

    Example:
        >>> topology = Topology()
        >>> topology.add_source("clicks", ["clicks-topic"]).add_sink("copy", "copies", ["clicks"])
        Topology(2 nodes, 0 stores)
    """

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self.state_stores: dict[str, StoreBuilder] = {}
        self.internal_topics: dict[str, RepartitionTopic] = {}
        self._copartitioned: list[tuple[str, ...]] = []
        self._generated_stores: set[str] = set()

    def __repr__(self) -> str:
        return f"Topology({len(self.nodes)} nodes, {len(self.state_stores)} stores)"

    # ---- building

    def add_source(
        self,
        name: str,
        topics: str | Sequence[str] | re.Pattern[str],
        *,
        key: Serde[Any] | None = None,
        value: Serde[Any] | None = None,
        timestamp_extractor: TimestampExtractor | None = None,
        offset_reset: OffsetReset | None = None,
        declared_at: str | None = None,
    ) -> Topology:
        """Add a node that reads topics.

        Args:
            name: of the node, unique in the topology.
            topics: a topic, several, or a pattern that matches their whole names.
            key: decodes keys; by default the config's `default_key_serde`.
            value: decodes values; by default the config's `default_value_serde`.
            timestamp_extractor: `(record, partition_time) -> timestamp` in milliseconds.
            offset_reset: `"earliest"`, `"latest"`, `"none"`, or a timedelta before now.
            declared_at: file and line to name in errors; by default the caller's.

        Raises:
            TopologyError: the name is taken; there is no topic; a topic is read by another source.
        """
        site = call_site() if declared_at is None else declared_at
        self._check_new(name, site)
        pattern = topics if isinstance(topics, re.Pattern) else None
        if isinstance(topics, re.Pattern):
            listed: tuple[str, ...] = ()
        else:
            listed = (topics,) if isinstance(topics, str) else tuple(dict.fromkeys(topics))
        if pattern is None and not listed:
            raise TopologyError(
                "A source must read at least one topic.", node=name, declared_at=site
            )
        source = SourceNode(
            name, listed, pattern, key, value, timestamp_extractor, offset_reset, site
        )
        for topic in listed:
            checked_name(topic)
        for other in self._sources():
            _check_apart(source, other)
        return self._add(source)

    def add_processor(
        self,
        name: str,
        supplier: OperatorSupplier,
        parents: str | Sequence[str],
        *,
        stores: Sequence[str] = (),
        declared_at: str | None = None,
    ) -> Topology:
        """Add a node that works on records.

        Args:
            name: of the node, unique in the topology.
            supplier: gives a fresh operator at each call. It is called here to see that it does.
            parents: the nodes whose output it takes.
            stores: the names of stores to connect.
            declared_at: file and line to name in errors; by default the caller's.

        Raises:
            TopologyError: the name is taken; there is no parent, or it is unknown or a sink; a
                store is unknown; the supplier gives the same operator twice.
        """
        site = call_site() if declared_at is None else declared_at
        listed = self._checked_parents(name, parents, site)
        if supplier() is supplier():
            raise TopologyError(
                "A supplier must give a new operator at each call, because each task needs its "
                "own, but it gave the same one twice.",
                node=name,
                declared_at=site,
            )
        self._add(ProcessorNode(name, supplier, listed, (), site))
        return self.connect_processor_and_state_stores(name, *stores)

    def add_sink(
        self,
        name: str,
        topic: str | TopicExtractor,
        parents: str | Sequence[str],
        *,
        key: Serde[Any] | None = None,
        value: Serde[Any] | None = None,
        partitioner: Partitioner | None = None,
        declared_at: str | None = None,
    ) -> Topology:
        """Add a node that writes a topic.

        Args:
            name: of the node, unique in the topology.
            topic: the topic, or `(key, value, record_context) -> topic`.
            parents: the nodes whose output it takes.
            key: encodes keys; by default the config's `default_key_serde`.
            value: encodes values; by default the config's `default_value_serde`.
            partitioner: `(topic, key, value, number_of_partitions) -> partition | None`.
            declared_at: file and line to name in errors; by default the caller's.

        Raises:
            TopologyError: the name is taken or the topic's not legal; there is no parent, or it is
                unknown or a sink.
        """
        site = call_site() if declared_at is None else declared_at
        listed = self._checked_parents(name, parents, site)
        if isinstance(topic, str):
            checked_name(topic)
        return self._add(SinkNode(name, topic, key, value, partitioner, listed, site))

    def add_state_store(
        self, store_builder: StoreBuilder, *processor_names: str, generated_name: bool = False
    ) -> Topology:
        """Add a store and connect it to processors.

        The same builder may be added again, to connect the store to more processors.

        Args:
            store_builder: knows the store's name and how to make one for a task.
            processor_names: the processors that may use it.
            generated_name: whether the name was generated and not given by the user.

        Raises:
            TopologyError: another store has that name; a processor is unknown, or no processor.
        """
        name = store_builder.name
        known = self.state_stores.get(name)
        if known is None:
            self.state_stores[checked_name(name)] = store_builder
            if generated_name:
                self._generated_stores.add(name)
        elif known is not store_builder:
            raise TopologyError(
                f"There is another store called {name!r} already. Give each store its own name, or "
                "add one and the same builder to share a store.",
                declared_at=call_site(),
            )
        for processor in processor_names:
            self.connect_processor_and_state_stores(processor, name)
        return self

    def connect_processor_and_state_stores(
        self, processor_name: str, *store_names: str
    ) -> Topology:
        """Let a processor use stores. All processors that use a store share a sub-topology.

        Raises:
            TopologyError: the processor or a store is unknown; the node is a source or a sink.
        """
        node = self.nodes.get(processor_name)
        if node is None:
            raise TopologyError(
                f"There is no processor {processor_name!r} to connect a store to. "
                "Add the processor first.",
                declared_at=call_site(),
            )
        if not isinstance(node, ProcessorNode):
            raise TopologyError(
                "A store can be connected to a processor only, not to a source or a sink.",
                node=processor_name,
                declared_at=node.declared_at,
            )
        for store in store_names:
            if store not in self.state_stores:
                raise TopologyError(
                    f"There is no store {store!r}. Add it with add_state_store first, or correct "
                    "the name.",
                    node=processor_name,
                    declared_at=node.declared_at,
                )
        stores = tuple(dict.fromkeys((*node.stores, *store_names)))
        self.nodes[processor_name] = replace(node, stores=stores)
        return self

    def add_internal_topic(self, topic: RepartitionTopic) -> Topology:
        """Say that a topic, read by a source and written by a sink, is a repartition topic."""
        self.internal_topics[checked_name(topic.name)] = topic
        return self

    def copartition(self, source_names: Iterable[str]) -> Topology:
        """Say that all topics read by these sources must have equally many partitions."""
        self._copartitioned.append(tuple(source_names))
        return self

    # ---- asking

    def subtopologies(self) -> list[SubTopology]:
        """The sub-topologies, by their number."""
        return [
            self._subtopology(number, nodes)
            for number, nodes in enumerate(group_nodes(list(self.nodes.values())))
        ]

    def describe(self) -> TopologyDescription:
        """The nodes and how they are connected; `str()` of it is Kafka Streams' text."""
        return TopologyDescription(
            tuple(
                describe_subtopology(number, nodes)
                for number, nodes in enumerate(group_nodes(list(self.nodes.values())))
            )
        )

    def copartition_groups(self) -> list[frozenset[str]]:
        """Sets of (undecorated) topics that must have equally many partitions."""
        groups = (
            [topic for name in sources for topic in self._topics_of(name)]
            for sources in self._copartitioned
        )
        return merge_overlapping(groups)

    def check_copartition(self) -> None:
        """Refuse partition counts that cannot agree, whatever the cluster looks like.

        Raises:
            CopartitionError: repartition topics to be joined were given different counts.
        """
        check_enforced_partitions(self.copartition_groups(), self.internal_topics)

    def changelog_topics(self) -> dict[str, ChangelogTopic]:
        """The changelog of each logged store that a processor uses, by undecorated topic name."""
        used = {
            store
            for node in self.nodes.values()
            if isinstance(node, ProcessorNode)
            for store in node.stores
        }
        topics = (
            ChangelogTopic(
                changelog_name(name), name, builder.changelog_config(), builder.topic_config
            )
            for name, builder in self.state_stores.items()
            if builder.logging and name in used
        )
        return {topic.name: topic for topic in topics}

    def generated_names(self) -> Mapping[str, list[str]]:
        """What has a generated name that outlives the program, by kind.

        Inserting an operator changes these names, and the application then starts without the
        state and the records under the old ones (KIP-1111).
        """
        return {
            "changelog topics": [
                topic.name
                for topic in self.changelog_topics().values()
                if topic.store in self._generated_stores
            ],
            "state stores": [name for name in self.state_stores if name in self._generated_stores],
            "repartition topics": [
                topic.name for topic in self.internal_topics.values() if topic.generated
            ],
        }

    def check_explicit_names(self) -> None:
        """Refuse generated names (`ensure.explicit.internal.resource.naming`).

        Raises:
            TopologyError: it lists every store and internal topic that the user did not name.
        """
        unnamed = {kind: names for kind, names in self.generated_names().items() if names}
        if unnamed:
            listed = "".join(f"\n  {kind}: {', '.join(names)}" for kind, names in unnamed.items())
            raise TopologyError(
                "ensure_explicit_internal_resource_naming is set, but these have generated names:"
                f"{listed}\nGive a name with store=... to each store and with name=... to each "
                "operation that repartitions."
            )

    # ---- inside

    def _check_new(self, name: str, site: str) -> None:
        known = self.nodes.get(checked_name(name))
        if known is not None:
            where = f", declared at {known.declared_at}" if known.declared_at else ""
            raise TopologyError(
                f"There is another node called {name!r}{where}. Give each node its own name.",
                node=name,
                declared_at=site,
            )

    def _add(self, node: Node) -> Topology:
        self.nodes[node.name] = node
        return self

    def _checked_parents(
        self, name: str, parents: str | Sequence[str], site: str
    ) -> tuple[str, ...]:
        self._check_new(name, site)
        listed = (parents,) if isinstance(parents, str) else tuple(dict.fromkeys(parents))
        problem = ""
        if not listed:
            problem = "A processor or sink needs at least one parent."
        for parent in listed:
            node = self.nodes.get(parent)
            if parent == name:
                problem = "A node cannot be its own parent."
            elif node is None:
                problem = f"There is no parent {parent!r}. Add the parent first."
            elif isinstance(node, SinkNode):
                problem = (
                    f"The sink {parent!r} cannot be a parent: what it writes can only be read back "
                    "from its topic."
                )
        if problem:
            raise TopologyError(problem, node=name, declared_at=site)
        return listed

    def _sources(self) -> list[SourceNode]:
        return [node for node in self.nodes.values() if isinstance(node, SourceNode)]

    def _topics_of(self, source: str) -> tuple[str, ...]:
        node = self.nodes[source]
        assert isinstance(node, SourceNode)
        return node.topics

    def _subtopology(self, number: int, nodes: tuple[Node, ...]) -> SubTopology:
        sources = [node for node in nodes if isinstance(node, SourceNode)]
        source_topics = tuple(dict.fromkeys(topic for node in sources for topic in node.topics))
        sink_topics = tuple(
            dict.fromkeys(
                node.topic
                for node in nodes
                if isinstance(node, SinkNode) and isinstance(node.topic, str)
            )
        )
        store_names = dict.fromkeys(
            store for node in nodes if isinstance(node, ProcessorNode) for store in node.stores
        )
        stores = {name: self.state_stores[name] for name in store_names}
        changelogs = {
            name: changelog_name(name) for name, builder in stores.items() if builder.logging
        }
        repartition_topics = {
            topic: self.internal_topics[topic]
            for topic in source_topics
            if topic in self.internal_topics
        }
        passing = [topic for topic in sink_topics if topic in self.internal_topics]
        return SubTopology(
            id=number,
            nodes=nodes,
            source_topics=source_topics,
            source_patterns=tuple(node.pattern for node in sources if node.pattern is not None),
            sink_topics=sink_topics,
            repartition_topics=repartition_topics,
            stores=stores,
            changelogs=changelogs,
            internal_topics=frozenset((*repartition_topics, *passing, *changelogs.values())),
        )


def _check_apart(source: SourceNode, other: SourceNode) -> None:
    """Refuse two sources which read the same topic: each partition is read once by one task."""
    common = [topic for topic in source.topics if other.reads(topic)]
    common += [topic for topic in other.topics if source.reads(topic)]
    if common:
        raise TopologyError(
            f"The topic {common[0]!r} is read by another source already, {other.name!r}"
            f"{f' declared at {other.declared_at}' if other.declared_at else ''}. "
            "Read it once and use the stream twice.",
            topic=common[0],
            node=source.name,
            declared_at=source.declared_at,
        )
