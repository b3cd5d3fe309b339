"""What a builder reads as a table: a topic whose records say what a key's value is from now on."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, overload

from millstream.errors import TopologyError
from millstream.operators.table_source import TableSource
from millstream.record import K, V
from millstream.serdes import Serde
from millstream.topology.arguments import checked_extractor, checked_serdes
from millstream.topology.call_site import call_site
from millstream.topology.dsl.global_table import GlobalKTable
from millstream.topology.dsl.stream_part import StreamPart
from millstream.topology.dsl.table import KTable
from millstream.topology.dsl.table_inner import SourceTable
from millstream.topology.logical.graph import LogicalGraph
from millstream.topology.logical.graph_nodes import GlobalStoreGraphNode
from millstream.topology.logical.table_nodes import TableSourceGraphNode
from millstream.topology.naming import checked_name, suffixed_name
from millstream.topology.options.materialized import (
    Materialized,
    StoreChoice,
    TableStoreBuilder,
    key_value_builder,
    materialized,
)
from millstream.topology.physical.nodes import OffsetReset, TimestampExtractor, check_offset_reset
from millstream.topology.physical.source_names import SourceNames


class TableSources:
    """The tables of a `StreamsBuilder`."""

    _graph: LogicalGraph

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
        """Read a topic as a table: each record is the new value of its key (Kafka's `table`).

        A record without a value says that its key is gone; one without a key is dropped. The table
        is kept in a store if `store=` names one, or if an operation needs to look into it. Records
        count in the order of the topic, whatever their timestamps; only in a versioned store a
        record with an earlier timestamp does not replace a later one.

        Args:
            topic: the topic, which is better compacted than cut off.
            key: the serde of the keys; by default the config's `default_key_serde`.
            value: the serde of the values; by default the config's `default_value_serde`.
            timestamp_extractor: `(record, partition_time) -> timestamp`, in milliseconds since the
                epoch; by default the config's.
            offset_reset: where to begin without a committed offset, as for `stream`.
            store: where the table is kept.
            name: of the operation.

        Raises:
            TopologyError: a name is not legal, or the store cannot be had; at `build()`: the topic
                is read twice.

        Example:
            >>> builder = StreamsBuilder()
            >>> prices = builder.table("prices", key=STRING, value=LONG, store="prices-store")
            >>> prices.queryable_store_name
            'prices-store'
        """
        check_offset_reset(offset_reset)
        checked_serdes("table", key=key, value=value)
        checked_extractor("table", timestamp_extractor)
        names, choice = self._graph.names, materialized(store)
        builder = _store_of(self._graph, checked_name(topic), choice, key, value)
        source = suffixed_name(names, name, "-source", "KSTREAM-SOURCE-")
        node = TableSourceGraphNode(
            name=names.processor("KTABLE-SOURCE-", name),
            declared_at=call_site(),
            supplier=TableSource,
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
        return KTable(
            StreamPart(self._graph, node, key, value, SourceNames([source])),
            queryable_store_name=choice.store_name,
            inner=SourceTable(node),
        )

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
        """Read a topic as a table of which every instance has a whole copy.

        A stream can look up any key in it, without being partitioned alike. The copy is complete
        before processing begins; later changes arrive some time, in no order with other topics. So
        it suits small tables that change rarely.

        Args:
            topic: the topic.
            key: the serde of the keys; by default the config's `default_key_serde`.
            value: the serde of the values; by default the config's `default_value_serde`.
            store: where the table is kept. It has no changelog: the topic is its log.
            name: of the operation.

        Raises:
            TopologyError: a name is not legal, or the store cannot be had; at `build()`: the topic
                is read twice.

        Example:
            >>> builder = StreamsBuilder()
            >>> countries = builder.global_table("countries", key=STRING, value=STRING)
        """
        checked_serdes("global_table", key=key, value=value)
        names, choice = self._graph.names, materialized(store)
        if choice.is_versioned:
            raise TopologyError(
                "A global table cannot be versioned: it is read without regard to time. Leave out "
                "the versions.",
                declared_at=call_site(),
            )
        builder = _store_of(self._graph, checked_name(topic), choice, key, value)
        source = suffixed_name(names, name, "-source", "KSTREAM-SOURCE-")
        node = GlobalStoreGraphNode(
            name=names.processor("KTABLE-SOURCE-", name),
            declared_at=call_site(),
            source_name=source,
            topic=topic,
            store_builder=builder,
            supplier=partial(TableSource, builder.name),
            key_serde=key,
            value_serde=value,
            store_name_generated=choice.store_name is None,
        )
        self._graph.attach(node, self._graph.root)
        return GlobalKTable(self._graph, builder.name, queryable_store_name=choice.store_name)


def _store_of(
    graph: LogicalGraph,
    topic: str,
    choice: Materialized[Any, Any],
    key: Serde[Any] | None,
    value: Serde[Any] | None,
) -> TableStoreBuilder:
    """The store of a table read from a topic. Its serdes are those which read the topic."""
    read_with = replace(choice, key=key or choice.key, value=value or choice.value)
    return key_value_builder(read_with, graph.names, f"{topic}-", key_serde=None, value_serde=None)
