"""Where a topology begins: the builder of the DSL."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, overload

from millstream.config_optimization import optimizations
from millstream.processor.processor import Processor
from millstream.record import K, V
from millstream.serdes import Serde
from millstream.state.keyvalue.builders import StoreBuilder
from millstream.topology.arguments import checked_extractor, checked_serdes, topic_names
from millstream.topology.call_site import call_site
from millstream.topology.dsl.builder_tables import TableSources
from millstream.topology.dsl.stream import KStream
from millstream.topology.dsl.stream_part import StreamPart
from millstream.topology.logical.graph import LogicalGraph
from millstream.topology.logical.graph_nodes import (
    GlobalStoreGraphNode,
    SourceGraphNode,
    StoreGraphNode,
)
from millstream.topology.naming import checked_name
from millstream.topology.physical.nodes import OffsetReset, TimestampExtractor, check_offset_reset
from millstream.topology.physical.source_names import SourceNames
from millstream.topology.physical.topology import Topology
from millstream.topology.physical.topology_stores import check_store_builder, checked_supplier

Topics = str | Sequence[str] | re.Pattern[str]


class StreamsBuilder(TableSources):
    """Describes an application: streams are read, operations are put on them, `build` ends it.

    The same program gives the same topology with the same names, each time and on each machine.

    Args:
        optimize: which of Kafka Streams' optimizations to apply: True or `"all"`, False or
            `"none"`, or their names in a list or separated by commas:
            `reuse.ktable.source.topics`, `merge.repartition.topics`, `single.store.self.join`. They
            change which internal topics there are: decide before the first start.

    Raises:
        ConfigError: there is no such optimization.

    Example:
        >>> builder = StreamsBuilder()
        >>> clicks = builder.stream("clicks", key=STRING, value=STRING)
        >>> clicks.group_by_key().count(store="clicks-per-user").to_stream().to("counts")
        >>> builder.build()
        Topology(4 nodes, 1 stores)
    """

    def __init__(self, optimize: bool | str | Iterable[str] = False) -> None:
        self._optimizations = optimizations(optimize)
        self._graph = LogicalGraph()

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

        Several calls for the same topics share one source, so that their options must be the same.

        Args:
            topics: a topic, several, or a pattern that matches the whole names of topics; topics
                which match and appear later are read too.
            key: the serde of the keys; by default the config's `default_key_serde`.
            value: the serde of the values; by default the config's `default_value_serde`.
            timestamp_extractor: `(record, partition_time) -> timestamp`, in milliseconds since the
                epoch; by default the config's.
            offset_reset: where to begin without a committed offset: `"earliest"`, `"latest"`,
                `"none"`, or a timedelta before now; by default the config's.
            name: of the operation.

        Raises:
            TopologyError: there is no topic, or a name is not legal; the offset reset is unknown.
                At `build()`: the same topics are read with other options.

        Example:
            >>> builder = StreamsBuilder()
            >>> orders = builder.stream("orders", key=STRING, value=LONG)
            >>> logs = builder.stream(re.compile("logs-.*"), offset_reset="latest")
        """
        listed, pattern = topic_names("stream()", topics)
        check_offset_reset(offset_reset)
        checked_serdes("stream", key=key, value=value)
        checked_extractor("stream", timestamp_extractor)
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

    def add_state_store(self, store_builder: StoreBuilder) -> StreamsBuilder:
        """Add a store that processors can be connected to by its name.

        Args:
            store_builder: from `Stores`; the same one may be added again.

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

        Every processor can read it by its name, without being connected to it. The one given here
        alone writes it. It sees every record of the topic, also while a copy is made or brought up
        to date. Where the topic is a plain table, take `global_table` instead.

        Args:
            store_builder: from `Stores`; the store gets no changelog, since the topic is its log.
            topic: the topic. Timestamps are those of its records; no extractor is asked.
            processor_supplier: gives a new processor at each call.
            key: the serde of the topic's keys; by default the config's.
            value: the serde of the topic's values; by default the config's.
            name: of the processor.

        Raises:
            TopologyError: a name is not legal; at `build()`: a name or the topic is taken.

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
        checked_serdes("add_global_store", key=key, value=value)
        source = None if name is None else f"{name}-source"
        source_name = names.processor("KSTREAM-SOURCE-", source)
        processor_name = names.processor("KTABLE-SOURCE-", name)
        checked_supplier(processor_supplier, processor_name, site)
        node = GlobalStoreGraphNode(
            name=processor_name,
            declared_at=site,
            source_name=source_name,
            topic=checked_name(topic),
            store_builder=store_builder,
            supplier=processor_supplier,
            key_serde=key,
            value_serde=value,
        )
        self._graph.attach(node, self._graph.root)
        return self

    def build(self) -> Topology:
        """The topology, ready to run or to be described. Nothing can be added afterwards.

        Raises:
            TopologyError: the description contradicts itself: a name is used twice, topics are
                read by two sources that differ, partition counts cannot agree.

        Example:
            >>> builder = StreamsBuilder()
            >>> builder.stream("clicks", key=STRING, value=STRING).to("copies")
            >>> builder.build()
            Topology(2 nodes, 0 stores)
        """
        return self._graph.build(self._optimizations)
