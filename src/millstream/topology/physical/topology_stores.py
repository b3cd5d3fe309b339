"""Stores of a topology that are filled straight from a topic: global and read-only ones."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from millstream.errors import TopologyError
from millstream.operators.operator import Operator, OperatorSupplier
from millstream.operators.process import PROCESSOR_METHODS, ProcessOperator
from millstream.processor.processor import FixedKeyProcessor, Processor
from millstream.serdes import Serde
from millstream.state.keyvalue.builders import StoreBuilder
from millstream.topology.arguments import takes, wrong_type
from millstream.topology.call_site import call_site
from millstream.topology.physical.nodes import (
    GlobalStoreNodes,
    Node,
    ProcessorNode,
    SourceNode,
    TimestampExtractor,
)
from millstream.unawaited import asynchronous_advice, asynchronous_method, is_asynchronous, name_of

if TYPE_CHECKING:
    from millstream.topology.physical.topology import Topology


class GlobalStores:
    """The global stores of a topology, beside its nodes.

    Attributes:
        global_stores: by the name of the store, in the order of adding.
    """

    global_stores: dict[str, GlobalStoreNodes]

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
        if source_name == processor_name:
            raise TopologyError(
                f"The source and the processor of a global store need different names, but both "
                f"are {source_name!r}.",
                node=source_name,
                declared_at=site,
            )
        self._check_new_store(store_builder, site, shareable=False)
        source = self._checked_source(
            SourceNode(source_name, (topic,), None, key, value, declared_at=site)
        )
        self._check_new(processor_name, site)
        make = checked_supplier(supplier, processor_name, site)
        builder = unlogged(store_builder)
        processor = ProcessorNode(processor_name, make, (source_name,), (builder.name,), site)
        self.global_stores[builder.name] = GlobalStoreNodes(
            source, processor, builder, len(self.nodes)
        )
        return cast("Topology", self)

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
        topology = cast("Topology", self)
        site = call_site()
        check_store_builder(store_builder)
        builder: Any = store_builder
        topology.add_source(
            source_name,
            topic,
            key=key,
            value=value,
            timestamp_extractor=timestamp_extractor,
            offset_reset="earliest",
            declared_at=site,
        )
        topology.add_processor(processor_name, supplier, source_name, declared_at=site)
        topology.add_state_store(builder.with_logging(False), processor_name)
        return topology._add_source_changelog(store_builder.name, topic)

    # What the topology itself has.
    if TYPE_CHECKING:
        nodes: dict[str, Node]

        def _check_new(self, name: str, site: str) -> None: ...

        def _checked_source(self, source: SourceNode) -> SourceNode: ...

        def _check_new_store(
            self, builder: StoreBuilder, site: str, *, shareable: bool
        ) -> None: ...


def checked_supplier(
    supplier: Callable[[], Any], node: str, site: str, *, fixed_key: bool = False
) -> OperatorSupplier:
    """Turns what the user gives as a processor supplier into what the engine takes.

    Suppliers of operators, which the words of the DSL use, are taken as they are.

    Args:
        supplier: gives a fresh processor, or operator, at each call.
        node: the name of the node, for errors.
        site: file and line of the user's program, for errors.
        fixed_key: whether it must give a `FixedKeyProcessor`.

    Raises:
        TopologyError: it is no function, gives the same object twice, or no processor, or one of
            the other kind.
    """
    if not takes(supplier, 0):
        raise TopologyError(
            "A processor supplier must be a class or a function without arguments that gives a "
            f"new processor at each call, but this one is {supplier!r}. If its processors need "
            "something, give lambda: MyProcessor(something).",
            node=node,
            declared_at=site,
        )
    if is_asynchronous(supplier):
        raise TopologyError(
            asynchronous_advice(f"The processor supplier {name_of(supplier)}"),
            node=node,
            declared_at=site,
        )
    made = supplier()
    if made is supplier():
        raise TopologyError(
            "A supplier must give a new processor at each call, because each task needs its own, "
            "but it gave the same one twice.",
            node=node,
            declared_at=site,
        )
    if isinstance(made, Operator):
        return supplier
    if not callable(getattr(made, "process", None)):
        raise TopologyError(
            f"The supplier gave {type(made).__name__}, which has no method process(record). Give "
            "a class that extends Processor, or a function that makes one.",
            node=node,
            declared_at=site,
        )
    asynchronous = asynchronous_method(made, PROCESSOR_METHODS)
    if asynchronous is not None:
        raise TopologyError(
            asynchronous_advice(f"{type(made).__qualname__}.{asynchronous}"),
            node=node,
            declared_at=site,
        )
    if isinstance(made, Processor if fixed_key else FixedKeyProcessor):
        wanted, use = (
            ("FixedKeyProcessor", "process")
            if fixed_key
            else (
                "Processor",
                "process_values",
            )
        )
        raise TopologyError(
            f"Here a {wanted} is needed, which {type(made).__qualname__} is not. "
            f"Use {use}() of the stream for it.",
            node=node,
            declared_at=site,
        )
    return partial(ProcessOperator, supplier, fixed_key=fixed_key)


def check_store_builder(builder: object) -> None:
    """Refuse what is no store to be, for example a supplier.

    Raises:
        TypeError: it is something else.
    """
    if not callable(getattr(builder, "open", None)):
        raise wrong_type(
            "A store is added as a builder, which knows the serdes as well: "
            f"Stores.key_value_builder(supplier, STRING, LONG) for example. This is {builder!r}."
        )


def supplied_stores(supplier: Callable[[], Any]) -> list[StoreBuilder]:
    """The stores that a processor supplier brings along (`ConnectedStoreProvider`, KIP-401).

    A supplier may have a method `stores()`. For a class which is its own supplier that is a class
    or static method: one of its instances' does not count.
    """
    if inspect.isclass(supplier):
        found = inspect.getattr_static(supplier, "stores", None)
        if not isinstance(found, classmethod | staticmethod):
            return []
    stores = getattr(supplier, "stores", None)
    return list(stores()) if callable(stores) else []


def taken_store(name: str, nodes: Iterable[Node], site: str) -> TopologyError:
    """The error that a store's name is taken, with the node that uses the other store.

    Args:
        name: of both stores.
        nodes: those of the topology.
        site: file and line of the user's program that wants the second one.
    """
    users = [node for node in nodes if isinstance(node, ProcessorNode) and name in node.stores]
    of_whom = ""
    if users:
        where = f", declared at {users[0].declared_at}" if users[0].declared_at else ""
        of_whom = f", that of node {users[0].name!r}{where}"
    return TopologyError(
        f"There is another store called {name!r} already{of_whom}. Give each store its own name, "
        "or add one and the same builder to share a store.",
        declared_at=site,
    )


def unlogged(builder: StoreBuilder) -> StoreBuilder:
    """A builder of the same store without a changelog and without the record cache."""
    changed: Any = builder
    changed = changed.with_logging(False)
    if getattr(changed, "caching", False):
        changed = changed.with_caching(False)
    return cast(StoreBuilder, changed)


def numbered(
    groups: list[tuple[Node, ...]],
    nodes: Mapping[str, Node],
    global_stores: Mapping[str, GlobalStoreNodes],
) -> list[tuple[Node, ...] | GlobalStoreNodes]:
    """Sub-topologies and global stores, each at the place that is its number.

    Global stores take numbers, too: follows Kafka Streams.

    Args:
        groups: the nodes of each sub-topology, in the order of their first nodes.
        nodes: all nodes of the topology by name, in the order of adding.
        global_stores: by name, in the order of adding.
    """
    positions = {name: position for position, name in enumerate(nodes)}
    placed: list[tuple[tuple[int, int], tuple[Node, ...] | GlobalStoreNodes]] = [
        ((positions[group[0].name], 1), group) for group in groups
    ]
    placed += [((store.position, 0), store) for store in global_stores.values()]
    return [entry for _, entry in sorted(placed, key=lambda place: place[0])]
