"""The Processor API in the DSL: user code that gets a stream record by record, with stores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from millstream.processor.processor import FixedKeyProcessor, Processor
from millstream.record import K, V
from millstream.topology.arguments import store_names
from millstream.topology.call_site import call_site
from millstream.topology.dsl.stream_part import StreamPart
from millstream.topology.logical.graph_nodes import ProcessGraphNode
from millstream.topology.naming import checked_name
from millstream.topology.physical.topology_stores import checked_supplier, supplied_stores

if TYPE_CHECKING:
    from millstream.topology.dsl.stream import KStream

K1 = TypeVar("K1")
V1 = TypeVar("V1")


class StreamProcess(Generic[K, V]):
    """`process` and `process_values` of a stream."""

    __slots__ = ()

    _part: StreamPart

    def process(
        self,
        supplier: Callable[[], Processor[K, V, K1, V1]],
        *,
        stores: str | Sequence[str] = (),
        name: str | None = None,
    ) -> KStream[K1, V1]:
        """Run a `Processor` on each record; what it forwards is the new stream.

        The keys may change, so a later operation by key repartitions; where they do not, prefer
        `process_values`.

        Args:
            supplier: gives a new processor at each call: its class, or a function. If it has a
                method `stores()`, the store builders which that gives are added and connected.
            stores: the names of stores to connect, which were added with
                `StreamsBuilder.add_state_store` or belong to tables. Global stores need not be.
            name: of the operation; the processor's children are called by their names.

        Raises:
            TopologyError: the supplier gives the same processor twice, or none; at `build()`: a
                store is unknown.

        Example:
            >>> class Longest(Processor[str, str, str, str]):
            ...     def process(self, record):
            ...         store = self.context.get_state_store("longest")
            ...         if len(record.value) > len(store.get(record.key) or ""):
            ...             store.put(record.key, record.value)
            ...             self.context.forward(record)
            >>> builder = StreamsBuilder()
            >>> kept = Stores.persistent_key_value("longest")
            >>> _ = builder.add_state_store(Stores.key_value_builder(kept, STRING, STRING))
            >>> words = builder.stream("words", key=STRING, value=STRING)
            >>> longest = words.process(Longest, stores=["longest"])
        """
        from millstream.topology.dsl.stream import KStream

        part = self._part
        node = self._process_node("KSTREAM-PROCESSOR-", supplier, stores, name, fixed_key=False)
        return KStream(StreamPart(part.graph, node, None, None, part.sources, True))

    def process_values(
        self,
        supplier: Callable[[], FixedKeyProcessor[K, V, V1]],
        *,
        stores: str | Sequence[str] = (),
        name: str | None = None,
    ) -> KStream[K, V1]:
        """Run a `FixedKeyProcessor` on each record; what it forwards is the new stream.

        Args:
            supplier: gives a new processor at each call: its class, or a function. If it has a
                method `stores()`, the store builders which that gives are added and connected.
            stores: the names of stores to connect, which were added with
                `StreamsBuilder.add_state_store` or belong to tables. Global stores need not be.
            name: of the operation; the processor's children are called by their names.

        Raises:
            TopologyError: the supplier gives the same processor twice, or none; at `build()`: a
                store is unknown.

        Example:
            >>> class Age(FixedKeyProcessor[str, str, str]):
            ...     def process(self, record):
            ...         age_ms = self.context.current_stream_time_ms() - record.timestamp
            ...         self.context.forward(record.with_value(f"{record.value}, {age_ms} ms old"))
            >>> words = StreamsBuilder().stream("words", key=STRING, value=STRING)
            >>> aged = words.process_values(Age, name="age")
        """
        from millstream.topology.dsl.stream import KStream

        part = self._part
        node = self._process_node("KSTREAM-PROCESSVALUES-", supplier, stores, name, fixed_key=True)
        return KStream(
            StreamPart(
                part.graph, node, part.key_serde, None, part.sources, part.repartition_required
            )
        )

    def _process_node(
        self,
        prefix: str,
        supplier: Callable[[], Any],
        stores: str | Sequence[str],
        name: str | None,
        *,
        fixed_key: bool,
    ) -> ProcessGraphNode:
        graph = self._part.graph
        site = call_site()
        # A given name takes no number here: follows Kafka Streams.
        named = graph.names.processor(prefix) if name is None else checked_name(name)
        node = ProcessGraphNode(
            name=named,
            declared_at=site,
            supplier=checked_supplier(supplier, named, site, fixed_key=fixed_key),
            store_names=store_names("process_values" if fixed_key else "process", stores),
            store_builders=tuple(supplied_stores(supplier)),
        )
        graph.attach(node, self._part.node)
        return node
