"""`StreamsBuilder`, the entry point of the DSL."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, overload

from millstream.config.validation import optimizations
from millstream.errors import TopologyError
from millstream.processor.processor import Processor
from millstream.record import K, V
from millstream.serdes import Serde
from millstream.state.builders.store_builder import StoreBuilder
from millstream.topology.argument_checks import (
    check_serdes,
    check_store_builder,
    check_timestamp_extractor,
    topic_names,
)
from millstream.topology.call_site import call_site
from millstream.topology.dsl.global_table import GlobalKTable
from millstream.topology.dsl.migration_hints import Hinted
from millstream.topology.dsl.stream_part import StreamPart
from millstream.topology.dsl.streams_and_tables import KStream, KTable
from millstream.topology.dsl.table_access import SourceTable, TablePart
from millstream.topology.logical.graph_nodes import (
    GlobalStoreGraphNode,
    HistoryGraphNode,
    SourceGraphNode,
    StoreGraphNode,
)
from millstream.topology.logical.logical_graph import LogicalGraph
from millstream.topology.logical.table_nodes import TableSourceGraphNode
from millstream.topology.naming import checked_name, suffixed_name
from millstream.topology.operations.streams import Process
from millstream.topology.operations.tables import TableSource
from millstream.topology.options.lake import HistoryColumns, LakeFormat, lake_history
from millstream.topology.options.materialized import (
    Materialized,
    StoreChoice,
    TableStoreBuilder,
    key_value_builder,
    materialized,
)
from millstream.topology.passes.build import build_topology
from millstream.topology.physical.java_order import SourceNames
from millstream.topology.physical.nodes import OffsetReset, TimestampExtractor, check_offset_reset
from millstream.topology.physical.suppliers import ProcessorWrapper, check_wrapper, wrapped_supplier
from millstream.topology.physical.topology import Topology

Topics = str | Sequence[str] | re.Pattern[str]


class StreamsBuilder(Hinted):
    """The entry point of the DSL.

    Read streams and tables, add operations, and call `build`. The same program always produces the
    same topology with the same names, on every machine.

    Args:
        optimize: the optimizations of Kafka Streams to apply: True or `"all"`, False or `"none"`,
            or names, as a list or separated by commas: `reuse.ktable.source.topics`,
            `merge.repartition.topics`, `single.store.self.join`. Optimizations change the internal
            topics of the application: choose them before the first start.
        processor_wrapper: `(name, supplier) -> supplier`, called for each custom processor (in
            `process`, `process_values` and `add_global_store`) with the name of its node; the
            returned supplier replaces the original one. If the returned supplier has no method
            `stores()`, the stores of the original supplier are used (KIP-1112).

    Raises:
        ConfigError: an optimization is unknown.
        TypeError: `processor_wrapper` is not a function of two arguments.

    Example:
        >>> builder = StreamsBuilder()
        >>> clicks = builder.stream("clicks", key=STRING, value=STRING)
        >>> clicks.group_by_key().count(store="clicks-per-user").to_stream().to("counts")
        >>> builder.build()
        Topology(4 nodes, 1 stores)
    """

    def __init__(
        self,
        optimize: bool | str | Iterable[str] = False,
        *,
        processor_wrapper: ProcessorWrapper | None = None,
    ) -> None:
        check_wrapper(processor_wrapper)
        self._optimizations = optimizations(optimize)
        self._graph = LogicalGraph(processor_wrapper)
        self._built: Topology | None = None

    def __repr__(self) -> str:
        nodes = self._graph.nodes
        topics = list(dict.fromkeys(topic for node in nodes for topic in node.read_topics))
        return f"StreamsBuilder({len(nodes)} operations, topics={topics!r})"

    @overload
    def stream(
        self,
        topics: Topics,
        *,
        key: Serde[K],
        value: Serde[V],
        timestamp_extractor: TimestampExtractor | None = None,
        offset_reset: OffsetReset | None = None,
        name: str | None = None,
    ) -> KStream[K, V]: ...
    @overload
    def stream(
        self,
        topics: Topics,
        *,
        key: Serde[K],
        value: None = None,
        timestamp_extractor: TimestampExtractor | None = None,
        offset_reset: OffsetReset | None = None,
        name: str | None = None,
    ) -> KStream[K, Any]: ...
    @overload
    def stream(
        self,
        topics: Topics,
        *,
        key: None = None,
        value: Serde[V],
        timestamp_extractor: TimestampExtractor | None = None,
        offset_reset: OffsetReset | None = None,
        name: str | None = None,
    ) -> KStream[Any, V]: ...
    @overload
    def stream(
        self,
        topics: Topics,
        *,
        key: None = None,
        value: None = None,
        timestamp_extractor: TimestampExtractor | None = None,
        offset_reset: OffsetReset | None = None,
        name: str | None = None,
    ) -> KStream[Any, Any]: ...
    def stream(
        self,
        topics: Topics,
        *,
        key: Serde[Any] | None = None,
        value: Serde[Any] | None = None,
        timestamp_extractor: TimestampExtractor | None = None,
        offset_reset: OffsetReset | None = None,
        name: str | None = None,
    ) -> KStream[Any, Any]:
        """Read topics as a stream.

        Several calls for the same topics share one source, so their options must be the same.

        Args:
            topics: a topic, several topics, or a pattern that matches whole names. Matching topics
                that are created later are read too.
            key: the serde of the keys; by default the config's `default_key_serde`.
            value: the serde of the values; by default the config's `default_value_serde`.
            timestamp_extractor: `(record, partition_time) -> timestamp`, in milliseconds since the
                epoch; by default the config's `default_timestamp_extractor`.
            offset_reset: where to start without a committed offset: `"earliest"`, `"latest"`,
                `"none"`, or a timedelta (how far back from now); by default the consumer's
                `auto.offset.reset`.

        Raises:
            TopologyError: `topics` is empty, a name is not legal, or the offset reset is unknown.
                From `build()`: the same topics are read with different options.

        Example:
            >>> builder = StreamsBuilder()
            >>> orders = builder.stream("orders", key=STRING, value=LONG)
            >>> logs = builder.stream(re.compile("logs-.*"), offset_reset="latest")
        """
        listed, pattern = topic_names("stream()", topics)
        check_offset_reset(offset_reset)
        check_serdes("stream", key=key, value=value)
        check_timestamp_extractor("stream", timestamp_extractor)
        node = SourceGraphNode(
            name=self._graph.names.processor("KSTREAM-SOURCE-", name),
            declared_at=call_site(),
            topics=listed,
            pattern=pattern,
            key_serde=key,
            value_serde=value,
            timestamp_extractor=timestamp_extractor,
            offset_reset=offset_reset,
        )
        self._graph.attach(node, self._graph.root)
        return KStream(StreamPart(self._graph, node, key, value, SourceNames([node.name])))

    def stream_from_lake(
        self,
        path: str | os.PathLike[str],
        *,
        format: LakeFormat,
        key: Serde[K],
        value: Serde[V],
        timestamp: str = "timestamp",
        then: str | None = None,
        then_from: datetime | None = None,
        key_column: str = "key",
        value_column: str = "value",
        partitions: int | None = None,
        name: str | None = None,
    ) -> KStream[K, V]:
        """Read the rows of a lake table as records, then a topic from the table's end.

        The rows of each partition are read in the order of their timestamps. At the application's
        first start, before its threads run, a Spark job writes the rows into an internal topic,
        `<application.id>-<name>-history-repartition`, and sets the offsets at which `then`
        continues. If a start is interrupted, the next start continues the job: no row is written
        twice. Once the job has completed, the table is not read again. If a topic follows, a task
        compares the next records of the internal topic and of `then`, and always processes the one
        with the smaller timestamp first.

        A table that `KStream.to_lake` has written from `then` contains offsets, which define where
        the topic continues. Such a table must contain all records of the topic unchanged, and each
        row is written to the partition of its original record. For any other table, `then_from`
        defines where the topic continues, and each row is written to the partition that Kafka's own
        producers choose for its key.

        Args:
            path: the directory of the table, or a URL that Spark's Hadoop supports.
            format: `"parquet"`, `"delta"` or `"iceberg"`.
            key: the serde of the keys, for both the rows and the topic.
            value: the serde of the values, for both the rows and the topic.
            timestamp: a column or a Spark SQL expression for the event time: a timestamp, a date,
                or an integer in milliseconds since the epoch.
            then: the topic that follows the table; None for no topic.
            then_from: for a table without offsets, the time at which the topic takes over. Rows
                before this time are used. Each partition of the topic is read from its first record
                that has this timestamp or a later one. A datetime without a time zone is in UTC.
            key_column: a column or a Spark SQL expression whose type matches the key serde.
            value_column: a column or a Spark SQL expression whose type matches the value serde,
                such as `"struct(page, country)"`.
            partitions: the number of partitions of the internal topic if no topic follows; 1 by
                default.

        Raises:
            TopologyError: an option is not valid, or a name is not legal. From `build()`: another
                source reads `then`.

        Example:
            >>> builder = StreamsBuilder()
            >>> clicks = builder.stream_from_lake(
            ...     "/lake/clicks", format="delta", key=STRING, value=JSON, then="clicks",
            ...     name="clicks",
            ... )
            >>> print(builder.build().describe())
            Topologies:
               Sub-topology: 0
                Source: clicks (topics: [clicks-history-repartition, clicks])
                  --> none
            <BLANKLINE>
              Sub-topology: 1 for history from the lake (will not generate tasks)
                History: clicks (delta: /lake/clicks, then: clicks)
                  --> topic: clicks-history-repartition
            <BLANKLINE>
            <BLANKLINE>
        """
        node_name = self._graph.names.processor("KSTREAM-SOURCE-", name)
        history = lake_history(
            node_name,
            path,
            format,
            key=key,
            value=value,
            columns=HistoryColumns(key_column, value_column, timestamp),
            then=then,
            then_from=then_from,
            partitions=partitions,
        )
        node = HistoryGraphNode(
            name=node_name,
            declared_at=history.declared_at,
            topics=(history.topic,) if then is None else (history.topic, then),
            pattern=None,
            key_serde=key,
            value_serde=value,
            timestamp_extractor=None,
            offset_reset=None,
            history=history,
            generated_name=name is None,
        )
        self._graph.attach(node, self._graph.root)
        return KStream(StreamPart(self._graph, node, key, value, SourceNames([node.name])))

    @overload
    def table(
        self,
        topic: str,
        *,
        key: Serde[K],
        value: Serde[V],
        timestamp_extractor: TimestampExtractor | None = None,
        offset_reset: OffsetReset | None = None,
        store: StoreChoice[K, V] = None,
        name: str | None = None,
    ) -> KTable[K, V]: ...
    @overload
    def table(
        self,
        topic: str,
        *,
        key: Serde[K],
        value: None = None,
        timestamp_extractor: TimestampExtractor | None = None,
        offset_reset: OffsetReset | None = None,
        store: StoreChoice[K, Any] = None,
        name: str | None = None,
    ) -> KTable[K, Any]: ...
    @overload
    def table(
        self,
        topic: str,
        *,
        key: None = None,
        value: Serde[V],
        timestamp_extractor: TimestampExtractor | None = None,
        offset_reset: OffsetReset | None = None,
        store: StoreChoice[Any, V] = None,
        name: str | None = None,
    ) -> KTable[Any, V]: ...
    @overload
    def table(
        self,
        topic: str,
        *,
        key: None = None,
        value: None = None,
        timestamp_extractor: TimestampExtractor | None = None,
        offset_reset: OffsetReset | None = None,
        store: StoreChoice = None,
        name: str | None = None,
    ) -> KTable[Any, Any]: ...
    def table(
        self,
        topic: str,
        *,
        key: Serde[Any] | None = None,
        value: Serde[Any] | None = None,
        timestamp_extractor: TimestampExtractor | None = None,
        offset_reset: OffsetReset | None = None,
        store: StoreChoice = None,
        name: str | None = None,
    ) -> KTable[Any, Any]:
        """Read a topic as a table: each record is the new value of its key.

        Kafka Streams' `StreamsBuilder.table`. A record without a value deletes its key; a record
        without a key is dropped. The table is stored if `store=` names a store, or if an operation
        needs to look up its rows. Records are applied in the order of the topic, regardless of
        their timestamps. In a versioned store, however, a record does not replace one with a later
        timestamp.

        Args:
            topic: the topic, which should be compacted rather than truncated.
            key: the serde of the keys; by default the serde of a `Materialized`, or else the
                config's `default_key_serde`.
            value: the serde of the values; by default the serde of a `Materialized`, or else the
                config's `default_value_serde`.
            timestamp_extractor: `(record, partition_time) -> timestamp`, in milliseconds since the
                epoch; by default the config's `default_timestamp_extractor`.
            offset_reset: where to start without a committed offset, as for `stream`.

        Raises:
            TopologyError: a name is not legal, or the store is not valid. From `build()`: the topic
                is read twice.

        Example:
            >>> builder = StreamsBuilder()
            >>> prices = builder.table("prices", key=STRING, value=LONG, store="prices-store")
            >>> prices.queryable_store_name
            'prices-store'
        """
        check_offset_reset(offset_reset)
        check_serdes("table", key=key, value=value)
        check_timestamp_extractor("table", timestamp_extractor)
        names, choice = self._graph.names, materialized(store)
        key, value = _topic_serdes(choice, key, value)
        builder = _topic_store(self._graph, checked_name(topic), choice, key, value)
        source = suffixed_name(names, name, "-source", "KSTREAM-SOURCE-")
        node = TableSourceGraphNode(
            name=names.processor("KTABLE-SOURCE-", name),
            declared_at=call_site(),
            operation=TableSource(),
            source_name=source,
            topic=topic,
            key_serde=key,
            value_serde=value,
            timestamp_extractor=timestamp_extractor,
            offset_reset=offset_reset,
            lazy_store=builder,
            store_name_generated=choice.store_name is None,
            materialized=choice.store_name is not None,
            output_versioned=choice.is_versioned,
        )
        self._graph.attach(node, self._graph.root)
        part = StreamPart(self._graph, node, key, value, SourceNames([source]))
        return KTable(TablePart(part, SourceTable(node), choice.store_name))

    @overload
    def global_table(
        self,
        topic: str,
        *,
        key: Serde[K],
        value: Serde[V],
        store: StoreChoice[K, V] = None,
        name: str | None = None,
    ) -> GlobalKTable[K, V]: ...
    @overload
    def global_table(
        self,
        topic: str,
        *,
        key: Serde[K],
        value: None = None,
        store: StoreChoice[K, Any] = None,
        name: str | None = None,
    ) -> GlobalKTable[K, Any]: ...
    @overload
    def global_table(
        self,
        topic: str,
        *,
        key: None = None,
        value: Serde[V],
        store: StoreChoice[Any, V] = None,
        name: str | None = None,
    ) -> GlobalKTable[Any, V]: ...
    @overload
    def global_table(
        self,
        topic: str,
        *,
        key: None = None,
        value: None = None,
        store: StoreChoice = None,
        name: str | None = None,
    ) -> GlobalKTable[Any, Any]: ...
    def global_table(
        self,
        topic: str,
        *,
        key: Serde[Any] | None = None,
        value: Serde[Any] | None = None,
        store: StoreChoice = None,
        name: str | None = None,
    ) -> GlobalKTable[Any, Any]:
        """Read a topic as a table of which every instance has a complete copy.

        A stream can look up any key in it without being co-partitioned. The copy is complete before
        processing starts; later changes arrive asynchronously, in no defined order relative to
        other topics. Global tables are therefore suitable for small tables that change rarely.

        Args:
            key: the serde of the keys; by default the serde of a `Materialized`, or else the
                config's `default_key_serde`.
            value: the serde of the values; by default the serde of a `Materialized`, or else the
                config's `default_value_serde`.
            store: the store of the table. It has no changelog, since it is restored from the topic.

        Raises:
            TopologyError: a name is not legal, or the store is not valid. From `build()`: the topic
                is read twice.

        Example:
            >>> builder = StreamsBuilder()
            >>> countries = builder.global_table("countries", key=STRING, value=STRING)
        """
        check_serdes("global_table", key=key, value=value)
        names, choice = self._graph.names, materialized(store)
        if choice.is_versioned:
            raise TopologyError(
                "A global table cannot be versioned, since it is read regardless of time. Use a "
                "store that is not versioned.",
                declared_at=call_site(),
            )
        key, value = _topic_serdes(choice, key, value)
        builder = _topic_store(self._graph, checked_name(topic), choice, key, value)
        source = suffixed_name(names, name, "-source", "KSTREAM-SOURCE-")
        node = GlobalStoreGraphNode(
            name=names.processor("KTABLE-SOURCE-", name),
            declared_at=call_site(),
            source_name=source,
            topic=topic,
            store_builder=builder,
            operation=TableSource(store=builder.name),
            key_serde=key,
            value_serde=value,
            store_name_generated=choice.store_name is None,
        )
        self._graph.attach(node, self._graph.root)
        return GlobalKTable(self._graph, builder.name, queryable_store_name=choice.store_name)

    def add_state_store(self, store_builder: StoreBuilder) -> StreamsBuilder:
        """Add a store that can be connected to processors by its name.

        Args:
            store_builder: a builder from `Stores`; the same builder may be added more than once.

        Example:
            >>> visits = Stores.key_value_builder(Stores.lru_map("visits", 99), STRING, LONG)
            >>> builder = StreamsBuilder().add_state_store(visits)
            >>> class Count(Processor[str, str, str, int]):
            ...     def process(self, record: Record[str, str]) -> None:
            ...         visits = self.context.get_state_store("visits")
            ...         visits.put(record.key, (visits.get(record.key) or 0) + 1)
            >>> pages = builder.stream("pages", key=STRING, value=STRING)
            >>> counted = pages.process(Count, stores=["visits"])
        """
        site = call_site()
        check_store_builder(store_builder)
        node = StoreGraphNode(
            name=store_builder.name, declared_at=site, store_builder=store_builder
        )
        self._graph.attach(node, self._graph.root)
        return self

    def add_global_store(
        self,
        store_builder: StoreBuilder,
        topic: str,
        processor_supplier: Callable[[], Processor[Any, Any, Any, Any]],
        *,
        key: Serde[Any] | None = None,
        value: Serde[Any] | None = None,
        name: str | None = None,
    ) -> StreamsBuilder:
        """Add a store that every instance fills from all partitions of a topic.

        Every processor can read the store by its name without being connected to it. Only the
        processor of the supplier writes to it: that processor receives every record of the topic,
        including while the store is restored. If the topic is a plain table, use `global_table`.

        Args:
            store_builder: a builder from `Stores`. The store has no changelog, since it is restored
                from the topic.
            topic: the topic. Its timestamps are used as they are; no extractor is called.
            key: the serde of the topic's keys; by default the config's `default_key_serde`.
            value: the serde of the topic's values; by default the config's `default_value_serde`.

        Raises:
            TopologyError: a name is not legal. From `build()`: a name or the topic is already
                in use.

        Example:
            >>> class Fill(Processor[str, int, None, None]):
            ...     def process(self, record):
            ...         if record.key is not None:
            ...             self.context.get_state_store("prices").put(record.key, record.value)
            >>> in_memory = Stores.in_memory_key_value("prices")
            >>> prices = Stores.key_value_builder(in_memory, STRING, LONG)
            >>> builder = StreamsBuilder()
            >>> _ = builder.add_global_store(prices, "prices", Fill, key=STRING, value=LONG)
        """
        names, site = self._graph.names, call_site()
        check_store_builder(store_builder)
        check_serdes("add_global_store", key=key, value=value)
        source = None if name is None else f"{name}-source"
        source_name = names.processor("KSTREAM-SOURCE-", source)
        processor_name = names.processor("KTABLE-SOURCE-", name)
        supplier, _ = wrapped_supplier(
            self._graph.processor_wrapper, processor_supplier, processor_name, site
        )
        node = GlobalStoreGraphNode(
            name=processor_name,
            declared_at=site,
            source_name=source_name,
            topic=checked_name(topic),
            store_builder=store_builder,
            operation=Process(supplier),
            key_serde=key,
            value_serde=value,
        )
        self._graph.attach(node, self._graph.root)
        return self

    def build(self) -> Topology:
        """Return the topology. Nothing can be added to the builder afterwards.

        Raises:
            TopologyError: the program is inconsistent: a name is used twice, two sources read the
                same topic with different options, or partition counts conflict.

        Example:
            >>> builder = StreamsBuilder()
            >>> builder.stream("clicks", key=STRING, value=STRING).to("copies")
            >>> builder.build()
            Topology(2 nodes, 0 stores)
        """
        if self._built is None:
            self._built = build_topology(self._graph, self._optimizations)
        return self._built


def _topic_serdes(
    choice: Materialized[Any, Any], key: Serde[Any] | None, value: Serde[Any] | None
) -> tuple[Serde[Any] | None, Serde[Any] | None]:
    """Return the serdes of a table's topic: by default those of the store."""
    return choice.key if key is None else key, choice.value if value is None else value


def _topic_store(
    graph: LogicalGraph,
    topic: str,
    choice: Materialized[Any, Any],
    key: Serde[Any] | None,
    value: Serde[Any] | None,
) -> TableStoreBuilder:
    """Return the builder of the store for a topic's table.

    The store has the serdes of the topic.
    """
    choice = replace(choice, key=key, value=value)
    return key_value_builder(choice, graph.names, f"{topic}-", key_serde=None, value_serde=None)
