"""The physical topology: source, processor and sink nodes, and the stores they use."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from millstream.errors import TopologyError
from millstream.serdes import Serde
from millstream.state.builders.store_builder import StoreBuilder
from millstream.topology.arguments import (
    checked_extractor,
    checked_partitioner,
    checked_serdes,
    checked_topic,
    store_names,
    topic_names,
)
from millstream.topology.call_site import call_site
from millstream.topology.logical_plan import LogicalPlan
from millstream.topology.naming import checked_name, checked_node_name
from millstream.topology.operations.operation import Operation
from millstream.topology.operations.processors import Process
from millstream.topology.options.history import LakeHistory
from millstream.topology.physical.copartition import CopartitionedSources, PatternJoin
from millstream.topology.physical.dataframe_stage import DataFrameStage
from millstream.topology.physical.describe import (
    TopologyDescription,
    describe_dataframe_stage,
    describe_global_store,
    describe_lake_history,
    describe_subtopology,
)
from millstream.topology.physical.internal_topics import (
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
from millstream.topology.physical.subtopology import SubTopology, group_nodes, subtopology_of
from millstream.topology.physical.suppliers import (
    ProcessorWrapper,
    check_wrapper,
    wrapped_supplier,
)
from millstream.topology.physical.topology_stores import (
    check_store_builder,
    numbered,
    taken_store,
    unlogged,
)

_Declared = TypeVar("_Declared", DataFrameStage, LakeHistory)


class Topology:
    """What an application computes: nodes, the stores they use, and its internal topics.

    `StreamsBuilder.build` makes one from the words of the DSL; the `add_` methods add to it.
    Parents and stores must be added before what refers to them. The order of adding is the order
    in which nodes are initialized, children get their records, and sub-topologies are numbered.

    Can be pickled with cloudpickle, functions of the user's included.

    Args:
        processor_wrapper: `(name, supplier) -> supplier`, called for each processor that is added;
            see `StreamsBuilder`.

    Raises:
        TypeError: `processor_wrapper` is no function of two arguments.

    Attributes:
        nodes: by name, in the order of adding.
        state_stores: the builders of the stores, by name.
        global_stores: the global stores, by name.
        internal_topics: the repartition topics, by undecorated name.
        dataframe_stages: the DataFrame functions between sub-topologies, by name.
        lake_histories: the tables of the lake that are read before topics, by name.
        optimizations: the names of those that were applied; None if no `StreamsBuilder` made it.

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
        #: The program that it was built from; None if no `StreamsBuilder` made it.
        self._logical_plan: LogicalPlan | None = None

    def __getstate__(self) -> dict[str, Any]:
        # Whoever reads the program, or adds to it, does so where it was built: no worker is sent
        # what that takes. Nor is DataFrame functions' code, which the driver calls.
        stages = {name: stage.for_workers() for name, stage in self.dataframe_stages.items()}
        left_out = {"_logical_plan": None, "_processor_wrapper": None}
        return {**vars(self), **left_out, "dataframe_stages": stages}

    def __repr__(self) -> str:
        stores = len(self.state_stores) + len(self.global_stores)
        return f"Topology({len(self.nodes)} nodes, {stores} stores)"

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

        Example:
            >>> Topology().add_source("clicks", ["web", "app"], key=STRING, value=STRING)
            Topology(1 nodes, 0 stores)
        """
        site = call_site() if declared_at is None else declared_at
        listed, pattern = topic_names(f"Source {name!r}", topics)
        checked_serdes("add_source", key=key, value=value)
        checked_extractor("add_source", timestamp_extractor)
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
        """Add a node that works on records.

        Args:
            name: of the node, unique in the topology.
            supplier: gives a fresh `Processor` at each call: its class, or a function. It is called
                here to see that it does. If it has a method `stores()`, the builders which that
                gives are added and connected.
            parents: the nodes whose output it takes.
            stores: the stores to connect: a name, or several.
            declared_at: file and line to name in errors; by default the caller's.

        Raises:
            TopologyError: the name is taken; there is no parent, or it is unknown or a sink; a
                store is unknown; the supplier gives the same processor twice, or none.

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
        """Add a node that works on records by an operation of the DSL.

        Args:
            name: of the node, unique in the topology.
            operation: what it does.
            parents: the nodes whose output it takes.
            declared_at: file and line to name in errors.

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
        """Add a node that writes a topic.

        Args:
            name: of the node, unique in the topology.
            topic: the topic, or `(key, value, record_context) -> topic`.
            parents: the nodes whose output it takes.
            key: encodes keys; by default the config's `default_key_serde`.
            value: encodes values; by default the config's `default_value_serde`.
            partitioner: `(topic, key, value, number_of_partitions) -> partition`, or a collection
                of partitions, each of which gets a copy of the record: an empty one drops the
                record (KIP-837). None leaves the choice to Kafka's default.
            declared_at: file and line to name in errors; by default the caller's.

        Raises:
            TopologyError: the name is taken or the topic's not legal; there is no parent, or it is
                unknown or a sink.

        Example:
            >>> topology = Topology().add_source("read", "clicks", key=STRING, value=STRING)
            >>> topology.add_sink("write", "copies", "read", key=STRING, value=STRING)
            Topology(2 nodes, 0 stores)
        """
        site = call_site() if declared_at is None else declared_at
        listed = self._checked_parents(name, parents, site)
        checked_serdes("add_sink", key=key, value=value)
        checked_topic("add_sink", topic)
        checked_partitioner("add_sink", partitioner)
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
        # The line that describes the node says more than that of build().
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
        """Let a processor use stores. All processors that use a store share a sub-topology.

        Raises:
            TopologyError: the processor or a store is unknown; the node is a source or a sink.

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
                "A store can be connected to a processor only, not to a source or a sink.",
                node=processor_name,
                declared_at=node.declared_at,
            )
        for store in store_names:
            if store in self.global_stores:
                raise TopologyError(
                    f"The global store {store!r} is open to every processor and must not be "
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

        Every processor can read it, without being connected to it; only the one given here writes
        it. That one sees every record of the topic, also while a copy is made or brought up to
        date. The store has no changelog: the topic is its log. Timestamps are those of the topic;
        no extractor is asked.

        Args:
            store_builder: of the store; its logging is turned off.
            source_name: of the node that reads the topic.
            topic: the topic.
            processor_name: of the node that fills the store.
            supplier: gives a fresh `Processor` at each call.
            key: decodes keys; by default the config's `default_key_serde`.
            value: decodes values; by default the config's `default_value_serde`.
            declared_at: file and line to name in errors; by default the caller's.

        Raises:
            TopologyError: a name is taken, the topic is read by a source, or both nodes have the
                same name.

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
        return self._fill_global_store(
            store_builder, source_name, topic, processor_name, Process(supplier), key, value, site
        )

    def _fill_global_store(
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
        """Add a global store which an operation fills; the other arguments are those for users."""
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
        builder = unlogged(store_builder)
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

        Other processors can be connected to the store, and are then in one sub-topology with it.
        The store has no changelog: a task restores it from the topic, without asking the
        processor, which therefore must put what it reads and nothing else.

        Args:
            store_builder: of the store; its logging is turned off.
            source_name: of the node that reads the topic, from its beginning.
            topic: the topic.
            processor_name: of the node that fills the store.
            supplier: gives a fresh `Processor` at each call.
            key: decodes keys; by default the config's `default_key_serde`.
            value: decodes values; by default the config's `default_value_serde`.
            timestamp_extractor: `(record, partition_time) -> timestamp` in milliseconds.

        Raises:
            TopologyError: a name is taken, or the topic is read by another source.

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
        return self._add_source_changelog(store_builder.name, topic)

    def _note_generated_store(self, name: str, *, logged: bool) -> Topology:
        """Say that a store has a generated name which is not among those of the nodes.

        Follows Kafka Streams: global stores count, and so do those of tables that nobody needs to
        keep, since a change to the program may need them.

        Args:
            name: of the store.
            logged: whether it has a changelog, or would have.
        """
        self._other_generated_stores[name] = logged
        return self

    def _add_internal_topic(self, topic: RepartitionTopic) -> Topology:
        """Say that a topic, read by a source and written by a sink, is a repartition topic."""
        self.internal_topics[checked_name(topic.name)] = topic
        return self

    def _add_dataframe_stage(self, stage: DataFrameStage) -> Topology:
        """Say that a query reads one internal topic and writes another, or a sink.

        Raises:
            TopologyError: there is a stage of that name.
        """
        _add_once(self.dataframe_stages, stage, "DataFrame function")
        return self

    def _add_lake_history(self, history: LakeHistory) -> Topology:
        """Say that an internal topic, read by a source, is filled with the rows of a table.

        Raises:
            TopologyError: there is a history of that name.
        """
        _add_once(self.lake_histories, history, "history")
        return self

    def _add_source_changelog(self, store_name: str, topic: str) -> Topology:
        """Say that a store without a changelog is restored from a topic that a source reads.

        Args:
            store_name: of the store, which holds what the topic says and nothing else.
            topic: the topic.
        """
        self._source_changelogs[store_name] = topic
        return self._note_table_topic(topic)

    def _note_table_topic(self, topic: str) -> Topology:
        """Record that a topic is read as a table, and so must keep the newest record of each key.

        Args:
            topic: the topic.
        """
        self._table_topics.add(topic)
        return self

    def _copartition(
        self,
        source_names: Iterable[str],
        *,
        listed: Iterable[str] | None = None,
        declared_at: str = "",
    ) -> Topology:
        """Say that all topics read by these sources must have equally many partitions.

        Args:
            source_names: of sources; what is no source of the topology is passed over.
            listed: the ones that Kafka Streams lists, if it loses some.
            declared_at: file and line to name in errors.
        """
        self._copartitioned.add(source_names, listed, declared_at)
        return self

    # ---- asking

    def _subtopologies(self) -> list[SubTopology]:
        """The sub-topologies, in the order of their numbers. Global stores are not among them."""
        return [
            subtopology_of(
                number, part, self.state_stores, self.internal_topics, self._source_changelogs
            )
            for number, part in enumerate(self._numbered())
            if not isinstance(part, GlobalStoreNodes)
        ]

    def _compacted_topics(self) -> frozenset[str]:
        """The topics of tables and global tables that other programs write."""
        of_global_tables = {store.topic for store in self.global_stores.values()}
        return frozenset((self._table_topics | of_global_tables) - self.internal_topics.keys())

    def describe(self) -> TopologyDescription:
        """The nodes and how they are connected; `str()` of it is Kafka Streams' text.

        Example:
            >>> topology = Topology().add_source("read", "in").add_sink("write", "out", "read")
            >>> [node.name for node in topology.describe().subtopologies[0].nodes]
            ['read', 'write']
        """
        stages, histories = self.dataframe_stages.values(), self.lake_histories.values()
        after = len(self._numbered())
        return TopologyDescription(
            tuple(
                describe_subtopology(number, part)
                for number, part in enumerate(self._numbered())
                if not isinstance(part, GlobalStoreNodes)
            ),
            tuple(
                describe_global_store(number, part)
                for number, part in enumerate(self._numbered())
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

    def _listed_sources(self) -> list[list[SourceNode]]:
        """The sources that Kafka Streams lists as read side by side, in the order of saying."""
        return self._copartitioned.listed_sources()

    def _copartition_groups(self) -> list[frozenset[str]]:
        """Sets of (undecorated) topics that must have equally many partitions."""
        return self._copartitioned.groups()

    def _pattern_joins(self) -> list[PatternJoin]:
        """What must have equally many partitions as topics whose names are not known yet."""
        return self._copartitioned.pattern_joins()

    def _joined_at(self, group: frozenset[str]) -> str:
        """The lines of the user's program that read the topics of a group side by side."""
        return self._copartitioned.joined_at(group)

    def _check_copartition(self) -> None:
        """Refuse partition counts that cannot agree, whatever the cluster looks like.

        Raises:
            CopartitionError: repartition topics to be joined were given different counts.
        """
        self._copartitioned.check()

    def generated_names(self) -> Mapping[str, list[str]]:
        """What has a generated name that outlives the program, by kind.

        Inserting an operator changes these names, and the application then starts without the
        state and the records under the old ones (KIP-1111).

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
        """Refuse generated names (`ensure.explicit.internal.resource.naming`).

        Raises:
            TopologyError: it lists every store and internal topic that the user did not name.

        Example:
            >>> builder = StreamsBuilder()
            >>> _ = builder.stream("clicks").group_by_key().count(store="counts")
            >>> builder.build().check_explicit_names()
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

    def _numbered(self) -> list[tuple[Node, ...] | GlobalStoreNodes]:
        groups = group_nodes(list(self.nodes.values()))
        return numbered(groups, self.nodes, self.global_stores)

    def _check_new(self, name: str, site: str) -> None:
        known = self.nodes.get(checked_node_name(name))
        for store in self.global_stores.values():
            for node in (store.source, store.processor):
                known = node if node.name == name else known
        if known is not None:
            where = f", declared at {known.declared_at}" if known.declared_at else ""
            raise TopologyError(
                f"There is another node called {name!r}{where}. Give each node its own name.",
                node=name,
                declared_at=site,
            )

    def _check_new_store(self, builder: StoreBuilder, site: str, *, shareable: bool) -> None:
        name = checked_name(builder.name)
        known = self.state_stores.get(name)
        if (shareable and known is builder) or (known is None and name not in self.global_stores):
            return
        raise taken_store(name, self.nodes.values(), site)

    def _checked_source(self, source: SourceNode) -> SourceNode:
        self._check_new(source.name, source.declared_at)
        for topic in source.topics:
            checked_name(topic)
        for other in self._sources():
            _check_apart(source, other)
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
                    f"The sink {parent!r} cannot be a parent: what it writes can only be read back "
                    "from its topic."
                )
        if problem:
            raise TopologyError(problem, node=name, declared_at=site)
        return listed

    def _sources(self) -> list[SourceNode]:
        sources = [node for node in self.nodes.values() if isinstance(node, SourceNode)]
        return sources + [store.source for store in self.global_stores.values()]


def _add_once(known: dict[str, _Declared], new: _Declared, what: str) -> None:
    """Add something under its name, which nothing of its kind may have."""
    other = known.get(new.name)
    if other is not None:
        raise TopologyError(
            f"There is another {what} called {new.name!r}, declared at {other.declared_at}. Give "
            "each its own name.",
            declared_at=new.declared_at,
        )
    known[new.name] = new


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
