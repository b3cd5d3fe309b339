"""Where a topology begins: the builder of the DSL."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, overload

from millstream.errors import TopologyError
from millstream.record import K, V
from millstream.serdes import Serde
from millstream.state.builders import KeyValueStoreBuilder as StoreBuilder
from millstream.topology.call_site import call_site
from millstream.topology.graph import LogicalGraph
from millstream.topology.graph_nodes import SourceGraphNode, StoreGraphNode
from millstream.topology.naming import checked_name
from millstream.topology.nodes import OffsetReset, TimestampExtractor
from millstream.topology.stream import KStream
from millstream.topology.stream_part import StreamPart
from millstream.topology.topology import Topology

Topics = str | Sequence[str] | re.Pattern[str]


class StreamsBuilder:
    """Describes an application: streams are read, operations are put on them, `build` ends it.

    The same program gives the same topology with the same names, each time and on each machine.

    Args:
        optimize: merge repartition topics that would hold the same records (Kafka Streams'
            `topology.optimization=all`). It changes the names of internal topics: decide
            before the first start.

    Example:
        >>> builder = StreamsBuilder()
        >>> clicks = builder.stream("clicks", key=STRING, value=STRING)
        >>> clicks.group_by_key().count(store="clicks-per-user").to_stream().to("counts")
        >>> builder.build()
        Topology(4 nodes, 1 stores)
    """

    def __init__(self, optimize: bool = False) -> None:
        self._optimize = optimize
        self._graph = LogicalGraph()

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

        Several calls for the same topics share one source, with the options of the first call.

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

        Example:
            >>> builder = StreamsBuilder()
            >>> orders = builder.stream("orders", key=STRING, value=LONG)
            >>> logs = builder.stream(re.compile("logs-.*"), offset_reset="latest")
        """
        pattern = topics if isinstance(topics, re.Pattern) else None
        if isinstance(topics, re.Pattern):
            listed: tuple[str, ...] = ()
        else:
            listed = (topics,) if isinstance(topics, str) else tuple(dict.fromkeys(topics))
        if pattern is None and not listed:
            raise TopologyError("stream() needs at least one topic.", declared_at=call_site())
        for topic in listed:
            checked_name(topic)
        _check_offset_reset(offset_reset)
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
        return KStream(StreamPart(self._graph, node, key, value, frozenset([node.name])))

    def add_state_store(self, store_builder: StoreBuilder) -> StreamsBuilder:
        """Add a store that processors can be connected to by its name.

        Args:
            store_builder: from `Stores`; the same one may be added again.
        """
        node = StoreGraphNode(
            name=store_builder.name, declared_at=call_site(), store_builder=store_builder
        )
        self._graph.attach(node, self._graph.root)
        return self

    def build(self) -> Topology:
        """The topology, ready to run or to be described. Nothing can be added afterwards.

        Raises:
            TopologyError: the description contradicts itself: a name is used twice, topics are
                read by two sources that differ, partition counts cannot agree.
        """
        return self._graph.build(optimize=self._optimize)


def _check_offset_reset(reset: OffsetReset | None) -> None:
    if reset is None or isinstance(reset, timedelta) or reset in ("earliest", "latest", "none"):
        return
    raise TopologyError(
        f"There is no offset reset {reset!r}. "
        "Choose 'earliest', 'latest', 'none', or a timedelta before now.",
        declared_at=call_site(),
    )
