"""The physical topology: source, processor and sink nodes, and their stores."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar, cast

from millstream.errors import TopologyError
from millstream.serdes import Serde
from millstream.state.builders.store_builder import StoreBuilder
from millstream.topology.argument_checks import (
    check_partitioner,
    check_serdes,
    check_store_builder,
    check_timestamp_extractor,
    check_topic,
    store_names,
    topic_names,
)
from millstream.topology.call_site import call_site
from millstream.topology.logical_plan import LogicalPlan
from millstream.topology.naming import checked_name, checked_node_name
from millstream.topology.operations.operation import Operation
from millstream.topology.operations.streams import Process
from millstream.topology.options.lake import LakeHistory
from millstream.topology.physical.copartition import CopartitionedSources
from millstream.topology.physical.dataframe_stage import DataFrameStage
from millstream.topology.physical.internal_topic_configs import (
    ChangelogTopic,
    RepartitionTopic,
    changelog_name,
)
from millstream.topology.physical.nodes import (
    GlobalStoreNodes,
    Node,
    OffsetReset,
    Partitioner,
    ProcessorNode,
    SinkNode,
    SourceNode,
    TimestampExtractor,
    TopicExtractor,
)
from millstream.topology.physical.subtopology import SubTopology, build_subtopology, numbered_parts
from millstream.topology.physical.suppliers import ProcessorWrapper, check_wrapper, wrapped_supplier
from millstream.topology.physical.topology_description import (
    TopologyDescription,
    describe_dataframe_stage,
    describe_global_store,
    describe_lake_history,
    describe_subtopology,
)

_Declared = TypeVar("_Declared", DataFrameStage, LakeHistory)


class Topology:
    """The computation of an application: nodes, their stores, and internal topics.

    `StreamsBuilder.build` creates a topology from the DSL; the `add_` methods extend it. Parents
    and stores must be added before the nodes that refer to them. Nodes are initialized, children
    receive records, and sub-topologies are numbered in the order in which nodes are added.

    Can be pickled with cloudpickle, including the user's functions.

    Args:
        processor_wrapper: `(name, supplier) -> supplier`, called for each added processor; see
            `StreamsBuilder`.

    Raises:
        TypeError: `processor_wrapper` is not a function of two arguments.

    Attributes:
        nodes: the nodes by name, in the order in which they were added.
        state_stores: the builders of the stores, by name.
        global_stores: the global stores, by name.
        internal_topics: the repartition topics, by undecorated name.
        dataframe_stages: the DataFrame functions between sub-topologies, by name.
        lake_histories: the lake tables that are read before topics, by name.
        optimizations: the names of the applied optimizations; None if the topology was not built by
            a `StreamsBuilder`.

    Example:
        >>> topology = Topology()
        >>> topology.add_source("clicks", ["clicks-topic"]).add_sink("copy", "copies", ["clicks"])
        Topology(2 nodes, 0 stores)
    """

    def __init__(self, processor_wrapper: ProcessorWrapper | None = None) -> None:
        check_wrapper(processor_wrapper)
        self._processor_wrapper = processor_wrapper
        self.nodes: dict[str, Node] = {}
        self.state_stores: dict[str, StoreBuilder] = {}
        self.global_stores: dict[str, GlobalStoreNodes] = {}
        self.internal_topics: dict[str, RepartitionTopic] = {}
        self.dataframe_stages: dict[str, DataFrameStage] = {}
        self.lake_histories: dict[str, LakeHistory] = {}
        self._source_changelogs: dict[str, str] = {}
        self._table_topics: set[str] = set()
        self._copartitioned = CopartitionedSources(self.nodes, self.internal_topics)
        self._generated_stores: set[str] = set()
        self._other_generated_stores: dict[str, bool] = {}
        self.optimizations: frozenset[str] | None = None
        #: The program from which the topology was built; None if it was not built by a
        #: `StreamsBuilder`.
        self._logical_plan: LogicalPlan | None = None

    def __getstate__(self) -> dict[str, Any]:
        # Workers need neither the logical plan and the wrapper, which are only used where the
        # topology is built, nor the DataFrame functions, which the driver calls.
        stages = {name: stage.for_workers() for name, stage in self.dataframe_stages.items()}
        excluded = {"_logical_plan": None, "_processor_wrapper": None}
        return {**vars(self), **excluded, "dataframe_stages": stages}

    def __repr__(self) -> str:
        stores = len(self.state_stores) + len(self.global_stores)
        return f"Topology({len(self.nodes)} nodes, {stores} stores)"

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        """Return drawings of the topology, for notebooks."""
        return {**self.describe()._repr_mimebundle_(), "text/plain": repr(self)}

    # ---- construction

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
            topics: a topic, several topics, or a pattern that matches whole names.
            key: deserializes keys; by default the config's `default_key_serde`.
            value: deserializes values; by default the config's `default_value_serde`.
            timestamp_extractor: `(record, partition_time) -> timestamp` in milliseconds.
            offset_reset: `"earliest"`, `"latest"`, `"none"`, or a timedelta (how far back from
                now).
            declared_at: the file and line for error messages; by default those of the caller.

        Raises:
            TopologyError: the name is already in use, `topics` is empty, or another source reads
                one of the topics.

        Example:
            >>> Topology().add_source("clicks", ["web", "app"], key=STRING, value=STRING)
            Topology(1 nodes, 0 stores)
        """
        site = call_site() if declared_at is None else declared_at
        listed, pattern = topic_names(f"Source {name!r}", topics)
        check_serdes("add_source", key=key, value=value)
        check_timestamp_extractor("add_source", timestamp_extractor)
        source = SourceNode(
            name, listed, pattern, key, value, timestamp_extractor, offset_reset, site
        )
        return self._add(self._checked_source(source))

    def add_processor(
        self,
        name: str,
        supplier: Callable[[], Any],
        parents: str | Sequence[str],
        *,
        stores: str | Sequence[str] = (),
        declared_at: str | None = None,
    ) -> Topology:
        """Add a node that processes records.

        Args:
            supplier: a class or function that returns a new `Processor` for each call. It is also
                called when the node is added, to check its results. If it has a method `stores()`,
                the store builders that the method returns are added and connected.
            stores: the names of the stores to connect, or a single name.
            declared_at: the file and line for error messages; by default those of the caller.

        Raises:
            TopologyError: the name is already in use; `parents` is empty, or a parent is unknown or
                a sink; a store is unknown; or the supplier returns no processor, or returns the
                same processor twice.

        Example:
            >>> class Shout(Processor):
            ...     def process(self, record):
            ...         self.context.forward(record.with_value(record.value.upper()))
            >>> topology = Topology().add_source("words", "words-topic", value=STRING)
            >>> topology.add_processor("shout", Shout, "words")
            Topology(2 nodes, 0 stores)
        """
        site = call_site() if declared_at is None else declared_at
        above = self._checked_parents(name, parents, site)
        supplier, builders = wrapped_supplier(self._processor_wrapper, supplier, name, site)
        self._add(ProcessorNode(name, Process(supplier), above, (), site))
        for builder in builders:
            self.add_state_store(builder, name)
        return self.connect_processor_and_state_stores(name, *store_names("add_processor", stores))

    def _add_operation(
        self, name: str, operation: Operation, parents: str | Sequence[str], declared_at: str
    ) -> Topology:
        """Add a node with an operation of the DSL.

        Raises:
            TopologyError: as for `add_processor`.
        """
        above = self._checked_parents(name, parents, declared_at)
        return self._add(ProcessorNode(name, operation, above, (), declared_at))

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
        """Add a node that writes to a topic.

        Args:
            topic: the topic, or `(key, value, record_context) -> topic`.
            key: serializes keys; by default the config's `default_key_serde`.
            value: serializes values; by default the config's `default_value_serde`.
            partitioner: `(topic, key, value, number_of_partitions) -> partition`. It may also
                return a collection of partitions, each of which gets a copy of the record
                (KIP-837), or None for Kafka's default. An empty collection drops the record.
            declared_at: the file and line for error messages; by default those of the caller.

        Raises:
            TopologyError: the name is already in use, or the topic's name is not legal; `parents`
                is empty, or a parent is unknown or a sink.

        Example:
            >>> topology = Topology().add_source("read", "clicks", key=STRING, value=STRING)
            >>> topology.add_sink("write", "copies", "read", key=STRING, value=STRING)
            Topology(2 nodes, 0 stores)
        """
        site = call_site() if declared_at is None else declared_at
        listed = self._checked_parents(name, parents, site)
        check_serdes("add_sink", key=key, value=value)
        check_topic("add_sink", topic)
        check_partitioner("add_sink", partitioner)
        return self._add(SinkNode(name, topic, key, value, partitioner, listed, site))

    def add_state_store(
        self, store_builder: StoreBuilder, *processor_names: str, generated_name: bool = False
    ) -> Topology:
        """Add a store and connect it to processors.

        The same builder may be added more than once, to connect the store to more processors.

        Args:
            processor_names: the processors that may use the store.
            generated_name: whether the store's name is generated.

        Raises:
            TopologyError: another store has this name, or a processor is unknown, or is a source or
                a sink.

        Example:
            >>> topology = Topology().add_source("read", "in")
            >>> _ = topology.add_processor("work", Processor, "read")
            >>> visits = Stores.key_value_builder(Stores.lru_map("visits", 99), STRING, LONG)
            >>> topology.add_state_store(visits, "work")
            Topology(2 nodes, 1 stores)
        """
        check_store_builder(store_builder)
        name = store_builder.name
        users = [self.nodes[processor] for processor in processor_names if processor in self.nodes]
        # The declaration of a node is more helpful than the line of build().
        site = next((node.declared_at for node in users if node.declared_at), None) or call_site()
        self._check_new_store(store_builder, site, shareable=True)
        if name not in self.state_stores:
            self.state_stores[name] = store_builder
            if generated_name:
                self._generated_stores.add(name)
        for processor in processor_names:
            self.connect_processor_and_state_stores(processor, name)
        return self

    def connect_processor_and_state_stores(
        self, processor_name: str, *store_names: str
    ) -> Topology:
        """Connect a processor to stores.

        All processors of a store are in one sub-topology.

        Raises:
            TopologyError: the processor or a store is unknown, or the node is a source or a sink.

        Example:
            >>> topology = Topology().add_source("read", "in")
            >>> _ = topology.add_processor("work", Processor, "read")
            >>> visits = Stores.key_value_builder(Stores.lru_map("visits", 99), STRING, LONG)
            >>> _ = topology.add_state_store(visits)
            >>> topology.connect_processor_and_state_stores("work", "visits")
            Topology(2 nodes, 1 stores)
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
                "A store can only be connected to a processor, not to a source or a sink.",
                node=processor_name,
                declared_at=node.declared_at,
            )
        for store in store_names:
            if store in self.global_stores:
                raise TopologyError(
                    f"The global store {store!r} is available to every processor and must not be "
                    "connected. Leave it out of stores=...",
                    node=processor_name,
                    declared_at=node.declared_at,
                )
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

    def add_global_store(
        self,
        store_builder: StoreBuilder,
        source_name: str,
        topic: str,
        processor_name: str,
        supplier: Callable[[], Any],
        *,
        key: Serde[Any] | None = None,
        value: Serde[Any] | None = None,
        declared_at: str | None = None,
    ) -> Topology:
        """Add a store that every instance fills from all partitions of a topic.

        Every processor can read the store without being connected to it. Only the processor of the
        supplier writes to it: that processor receives every record of the topic, including while
        the store is restored. The store has no changelog, since it is restored from the topic. The
        topic's timestamps are used as they are; no extractor is called.

        Args:
            store_builder: the builder of the store. Its logging and caching are disabled.
            source_name: the name of the node that reads the topic.
            processor_name: the name of the node that fills the store.
            supplier: a class or function that returns a new `Processor` for each call.
            key: deserializes keys; by default the config's `default_key_serde`.
            value: deserializes values; by default the config's `default_value_serde`.
            declared_at: the file and line for error messages; by default those of the caller.

        Raises:
            TopologyError: a name is already in use, a source reads the topic, or both nodes have
                the same name.

        Example:
            >>> in_memory = Stores.in_memory_key_value("prices")
            >>> prices = Stores.key_value_builder(in_memory, STRING, LONG)
            >>> class Fill(Processor):
            ...     def process(self, record):
            ...         self.context.get_state_store("prices").put(record.key, record.value)
            >>> Topology().add_global_store(prices, "read-prices", "prices-topic", "fill", Fill)
            Topology(0 nodes, 1 stores)
        """
        site = call_site() if declared_at is None else declared_at
        check_store_builder(store_builder)
        supplier, _ = wrapped_supplier(self._processor_wrapper, supplier, processor_name, site)
        return self._add_global_store_node(
            store_builder, source_name, topic, processor_name, Process(supplier), key, value, site
        )

    def _add_global_store_node(
        self,
        store_builder: StoreBuilder,
        source_name: str,
        topic: str,
        processor_name: str,
        operation: Operation,
        key: Serde[Any] | None,
        value: Serde[Any] | None,
        declared_at: str,
    ) -> Topology:
        """Add a global store that is filled by an operation; see `add_global_store`."""
        if source_name == processor_name:
            raise TopologyError(
                f"The source and the processor of a global store need different names, but both "
                f"are {source_name!r}.",
                node=source_name,
                declared_at=declared_at,
            )
        self._check_new_store(store_builder, declared_at, shareable=False)
        source = self._checked_source(
            SourceNode(source_name, (topic,), None, key, value, declared_at=declared_at)
        )
        self._check_new(processor_name, declared_at)
        builder = without_logging_or_caching(store_builder)
        processor = ProcessorNode(
            processor_name, operation, (source_name,), (builder.name,), declared_at
        )
        self.global_stores[builder.name] = GlobalStoreNodes(
            source, processor, builder, len(self.nodes)
        )
        return self

    def add_read_only_state_store(
        self,
        store_builder: StoreBuilder,
        source_name: str,
        topic: str,
        processor_name: str,
        supplier: Callable[[], Any],
        *,
        key: Serde[Any] | None = None,
        value: Serde[Any] | None = None,
        timestamp_extractor: TimestampExtractor | None = None,
    ) -> Topology:
        """Add a store that each task fills from its partition of a topic (KIP-813).

        Other processors can be connected to the store, and then belong to the same sub-topology.
        The store has no changelog: a task restores it directly from the topic, without calling the
        processor. The processor must therefore store the records exactly as it receives them.

        Args:
            store_builder: the builder of the store. Its logging is disabled.
            source_name: the name of the node that reads the topic from its beginning.
            processor_name: the name of the node that fills the store.
            supplier: a class or function that returns a new `Processor` for each call.
            key: deserializes keys; by default the config's `default_key_serde`.
            value: deserializes values; by default the config's `default_value_serde`.
            timestamp_extractor: `(record, partition_time) -> timestamp` in milliseconds.

        Raises:
            TopologyError: a name is already in use, or another source reads the topic.

        Example:
            >>> in_memory = Stores.in_memory_key_value("rates")
            >>> rates = Stores.key_value_builder(in_memory, STRING, LONG)
            >>> class Fill(Processor):
            ...     def process(self, record):
            ...         self.context.get_state_store("rates").put(record.key, record.value)
            >>> Topology().add_read_only_state_store(rates, "read", "rates-topic", "fill", Fill)
            Topology(2 nodes, 1 stores)
        """
        site = call_site()
        check_store_builder(store_builder)
        builder: Any = store_builder
        self.add_source(
            source_name,
            topic,
            key=key,
            value=value,
            timestamp_extractor=timestamp_extractor,
            offset_reset="earliest",
            declared_at=site,
        )
        self.add_processor(processor_name, supplier, source_name, declared_at=site)
        self.add_state_store(builder.with_logging(False), processor_name)
        self._add_source_changelog(store_builder.name, topic)
        return self

    def _add_generated_store(self, name: str, *, logged: bool) -> None:
        """Register a generated store name that does not belong to a node's store.

        As in Kafka Streams, this includes global stores and tables that are not materialized, since
        a change to the program may materialize them.

        Args:
            logged: whether the store has a changelog, or would have one.
        """
        self._other_generated_stores[name] = logged

    def _add_internal_topic(self, topic: RepartitionTopic) -> None:
        """Register a topic between a sink and a source as a repartition topic."""
        self.internal_topics[checked_name(topic.name)] = topic

    def _add_source_changelog(self, store_name: str, topic: str) -> None:
        """Register the source topic from which a store without a changelog is restored.

        The content of the store must be exactly that of the topic.
        """
        self._source_changelogs[store_name] = topic
        self._add_table_topic(topic)

    def _add_table_topic(self, topic: str) -> None:
        """Register a topic that is read as a table.

        Such a topic must keep the latest record of each key.
        """
        self._table_topics.add(topic)

    # ---- inspection

    def _subtopologies(self) -> list[SubTopology]:
        """Return the sub-topologies by number, without global stores."""
        return [
            build_subtopology(
                number, part, self.state_stores, self.internal_topics, self._source_changelogs
            )
            for number, part in enumerate(self._numbered_parts())
            if not isinstance(part, GlobalStoreNodes)
        ]

    def _compacted_topics(self) -> frozenset[str]:
        """Return the topics of tables and global tables, except internal topics."""
        global_topics = {store.topic for store in self.global_stores.values()}
        return frozenset((self._table_topics | global_topics) - self.internal_topics.keys())

    def describe(self) -> TopologyDescription:
        """Return a description of the nodes and their connections.

        Its `str()` is the text that Kafka Streams prints for the same topology.

        Example:
            >>> topology = Topology().add_source("read", "in").add_sink("write", "out", "read")
            >>> [node.name for node in topology.describe().subtopologies[0].nodes]
            ['read', 'write']
        """
        stages, histories = self.dataframe_stages.values(), self.lake_histories.values()
        after = len(self._numbered_parts())
        return TopologyDescription(
            tuple(
                describe_subtopology(number, part)
                for number, part in enumerate(self._numbered_parts())
                if not isinstance(part, GlobalStoreNodes)
            ),
            tuple(
                describe_global_store(number, part)
                for number, part in enumerate(self._numbered_parts())
                if isinstance(part, GlobalStoreNodes)
            ),
            tuple(
                describe_dataframe_stage(number, stage)
                for number, stage in enumerate(stages, after)
            ),
            tuple(
                describe_lake_history(number, history)
                for number, history in enumerate(histories, after + len(stages))
            ),
        )

    def _changelog_topics(self) -> dict[str, ChangelogTopic]:
        """Return the changelog of each logged store in use, by undecorated topic name."""
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
        """Return the generated names that must not change between versions, by kind.

        Inserting an operation changes these names, and the application then starts without the
        state and the records under the old names (KIP-1111).

        Example:
            >>> builder = StreamsBuilder()
            >>> _ = builder.stream("clicks").group_by_key().count()
            >>> builder.build().generated_names()["state stores"]
            ['KSTREAM-AGGREGATE-STATE-STORE-0000000001']
        """
        others = self._other_generated_stores
        return {
            "changelog topics": [
                topic.name
                for topic in self._changelog_topics().values()
                if topic.store in self._generated_stores
            ]
            + [changelog_name(name) for name, logged in others.items() if logged],
            "state stores": [name for name in self.state_stores if name in self._generated_stores]
            + list(others),
            "repartition topics": [
                topic.name for topic in self.internal_topics.values() if topic.generated
            ],
        }

    def check_explicit_names(self) -> None:
        """Reject generated names (`ensure.explicit.internal.resource.naming`).

        Raises:
            TopologyError: there are generated names. The message lists all stores and topics that
                have them.

        Example:
            >>> builder = StreamsBuilder()
            >>> _ = builder.stream("clicks").group_by_key().count(store="counts")
            >>> builder.build().check_explicit_names()
        """
        unnamed = {kind: names for kind, names in self.generated_names().items() if names}
        if unnamed:
            listed = "".join(f"\n  {kind}: {', '.join(names)}" for kind, names in unnamed.items())
            raise TopologyError(
                "ensure_explicit_internal_resource_naming is set, but these stores and topics have "
                "generated names:"
                f"{listed}\nGive each store a name with store=..., and each operation that "
                "repartitions with name=..."
            )

    # ---- internals

    def _numbered_parts(self) -> list[tuple[Node, ...] | GlobalStoreNodes]:
        return numbered_parts(list(self.nodes.values()), self.global_stores.values())

    def _check_new(self, name: str, site: str) -> None:
        existing = self.nodes.get(checked_node_name(name))
        for store in self.global_stores.values():
            for node in (store.source, store.processor):
                existing = node if node.name == name else existing
        if existing is not None:
            where = f", declared at {existing.declared_at}" if existing.declared_at else ""
            raise TopologyError(
                f"There is another node called {name!r}{where}. Give each node its own name.",
                node=name,
                declared_at=site,
            )

    def _check_new_store(self, builder: StoreBuilder, site: str, *, shareable: bool) -> None:
        name = checked_name(builder.name)
        existing = self.state_stores.get(name)
        if (shareable and existing is builder) or (
            existing is None and name not in self.global_stores
        ):
            return
        users = [
            node
            for node in self.nodes.values()
            if isinstance(node, ProcessorNode) and name in node.stores
        ]
        owner = ""
        if users:
            where = f", declared at {users[0].declared_at}" if users[0].declared_at else ""
            owner = f", used by node {users[0].name!r}{where}"
        raise TopologyError(
            f"There is already another store called {name!r}{owner}. Give each store its own name, "
            "or add the same builder again to share a store.",
            declared_at=site,
        )

    def _checked_source(self, source: SourceNode) -> SourceNode:
        self._check_new(source.name, source.declared_at)
        for topic in source.topics:
            checked_name(topic)
        for other in self._sources():
            _check_no_common_topic(source, other)
        return source

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
                    f"The sink {parent!r} cannot be a parent: its records can only be read from "
                    "its topic."
                )
        if problem:
            raise TopologyError(problem, node=name, declared_at=site)
        return listed

    def _sources(self) -> list[SourceNode]:
        sources = [node for node in self.nodes.values() if isinstance(node, SourceNode)]
        return sources + [store.source for store in self.global_stores.values()]


def without_logging_or_caching(builder: StoreBuilder) -> StoreBuilder:
    """Return a builder of the same store without changelog and record cache."""
    changed: Any = builder
    changed = changed.with_logging(False)
    if getattr(changed, "caching", False):
        changed = changed.with_caching(False)
    return cast(StoreBuilder, changed)


def add_unique(existing: dict[str, _Declared], new: _Declared, kind: str) -> None:
    """Add a stage or history, whose name must be unique.

    Raises:
        TopologyError: the name is already in use.
    """
    other = existing.get(new.name)
    if other is not None:
        raise TopologyError(
            f"There is another {kind} called {new.name!r}, declared at {other.declared_at}. Give "
            f"each {kind} its own name.",
            declared_at=new.declared_at,
        )
    existing[new.name] = new


def _check_no_common_topic(source: SourceNode, other: SourceNode) -> None:
    """Reject two sources of the same topic.

    This is an error because a task reads each partition only once.
    """
    common = [topic for topic in source.topics if other.reads(topic)]
    common += [topic for topic in other.topics if source.reads(topic)]
    if common:
        raise TopologyError(
            f"The topic {common[0]!r} is already read by another source, {other.name!r}"
            f"{f' declared at {other.declared_at}' if other.declared_at else ''}. "
            "Read the topic once and use the stream twice.",
            topic=common[0],
            node=source.name,
            declared_at=source.declared_at,
        )
