"""Processors and stores in a topology: checks, connections and numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from millstream.config.streams_config import StreamsConfig
from millstream.errors import ConfigError, TopologyError
from millstream.processor.processor import FixedKeyProcessor, Processor
from millstream.runtime.start.topology_checks import check_topology
from millstream.serdes import STRING
from millstream.state.builders.store_builder import KeyValueStoreBuilder
from millstream.state.stores import Stores
from millstream.testing import TopologyTestDriver
from millstream.topology.dsl.builder import StreamsBuilder
from millstream.topology.physical.topology import Topology


def store(name: str) -> KeyValueStoreBuilder:
    return Stores.key_value_builder(Stores.in_memory_key_value(name), STRING, STRING)


class Put(Processor[str, str, str, str]):
    """Writes its records to a store."""

    store = "g"

    def process(self, record: Any) -> None:
        self.context.get_state_store(self.store).put(record.key, record.value)


def topology_with_global_store() -> Topology:
    topology = Topology()
    return topology.add_global_store(
        store("g"), "read-g", "g-topic", "fill-g", Put, key=STRING, value=STRING
    )


@pytest.mark.parametrize(
    ("add", "message"),
    [
        (lambda t: t.add_source("read-g", "other"), "another node called 'read-g'"),
        (lambda t: t.add_source("fill-g", "other"), "another node called 'fill-g'"),
        (lambda t: t.add_source("s", "g-topic"), "already read by another source, 'read-g'"),
        (lambda t: t.add_state_store(store("g")), "another store called 'g'"),
        (lambda t: t.add_global_store(store("g"), "a", "b", "c", Put), "another store called 'g'"),
        (lambda t: t.add_global_store(store("h"), "a", "g-topic", "c", Put), "read by another"),
        (lambda t: t.add_global_store(store("h"), "a", "b", "a", Put), "need different names"),
        (lambda t: t.add_global_store(store("h"), "a", "b", "read-g", Put), "another node called"),
        (lambda t: t.add_global_store(store("h"), "a", "b", "c", dict), "no method process"),
        (
            lambda t: (
                t.add_source("s", "in")
                .add_processor("p", Put, "s")
                .connect_processor_and_state_stores("p", "g")
            ),
            "global store 'g' is available to every processor",
        ),
    ],
)
def test_names_and_topic_of_a_global_store_are_reserved(
    add: Callable[[Any], Any], message: str
) -> None:
    with pytest.raises(TopologyError, match=message):
        add(topology_with_global_store())


def test_global_store_cannot_have_the_name_of_a_store() -> None:
    topology = Topology().add_source("s", "in").add_processor("p", Put, "s")
    topology.add_state_store(store("g"), "p")
    with pytest.raises(TopologyError, match="another store called 'g'"):
        topology.add_global_store(store("g"), "read-g", "g-topic", "fill-g", Put)


def test_global_stores_are_numbered_in_the_order_of_addition() -> None:
    topology = Topology().add_source("a", "a-topic").add_sink("b", "b-topic", "a")
    topology.add_global_store(store("g"), "read-g", "g-topic", "fill-g", Put)
    topology.add_source("c", "c-topic")
    topology.add_global_store(store("h"), "read-h", "h-topic", "fill-h", Put)
    assert [part.id for part in topology._subtopologies()] == [0, 2]
    description = topology.describe()
    assert [part.id for part in description.global_stores] == [1, 3]
    headings = [line.strip() for line in str(description).splitlines() if "Sub-topology" in line]
    assert headings == [
        "Sub-topology: 0",
        "Sub-topology: 1 for global store (will not generate tasks)",
        "Sub-topology: 2",
        "Sub-topology: 3 for global store (will not generate tasks)",
    ]
    data = description.to_dict()["global_stores"][0]
    assert [node["name"] for node in data["nodes"]] == ["read-g", "fill-g"]
    assert 'subgraph sub1["Global store 1"]' in description.to_mermaid()


def test_application_needs_the_serdes_of_a_global_topic() -> None:
    config = StreamsConfig(application_id="app", bootstrap_servers="not-used:9092")
    topology = Topology().add_source("s", "in", key=STRING, value=STRING)
    topology.add_global_store(store("g"), "read-g", "g-topic", "fill-g", Put, key=STRING)
    with pytest.raises(ConfigError, match="value") as raised:
        check_topology(topology, config)
    assert raised.value.node == "read-g"
    check_topology(topology, config.replace(default_value_serde=STRING))


def test_topology_can_consist_of_global_stores() -> None:
    config = StreamsConfig(application_id="app", bootstrap_servers="not-used:9092")
    check_topology(topology_with_global_store(), config.replace(default_key_serde=STRING))
    with pytest.raises(TopologyError, match="reads no topic"):
        check_topology(Topology(), config)


SHARED = Put()


@pytest.mark.parametrize("dsl", [True, False])
@pytest.mark.parametrize(
    ("supplier", "message"),
    [
        (lambda: SHARED, "same processor twice"),
        (dict, "no method process"),
        (SHARED, "a class or a function without arguments"),
    ],
)
def test_suppliers_are_checked_at_their_declaration(dsl: bool, supplier: Any, message: str) -> None:
    stream = StreamsBuilder().stream("in")
    topology = Topology().add_source("s", "in")
    with pytest.raises(TopologyError, match=message) as raised:
        stream.process(supplier) if dsl else topology.add_processor("p", supplier, "s")
    assert "test_topology_stores.py" in str(raised.value)


def test_kinds_of_processors_are_distinguished() -> None:
    class Fixed(FixedKeyProcessor[str, str, str]):
        pass

    stream: Any = StreamsBuilder().stream("in")
    with pytest.raises(TopologyError, match=r"Use the stream's process_values\(\)"):
        stream.process(Fixed)
    with pytest.raises(TopologyError, match=r"Use the stream's process_values\(\)"):
        Topology().add_source("s", "in").add_processor("p", Fixed, "s")
    with pytest.raises(TopologyError, match=r"Use the stream's process\(\)"):
        stream.process_values(lambda: Put())


class SupplierWithStore:
    """A supplier with its own store, which can be used twice."""

    def __init__(self, builder: KeyValueStoreBuilder) -> None:
        self.builder = builder

    def __call__(self) -> Put:
        put = Put()
        put.store = "s"
        return put

    def stores(self) -> list[KeyValueStoreBuilder]:
        return [self.builder]


@pytest.mark.parametrize("dsl", [True, False])
def test_suppliers_can_have_stores(dsl: bool) -> None:
    supplier = SupplierWithStore(store("s"))
    if dsl:
        builder = StreamsBuilder()
        stream = builder.stream("in", key=STRING, value=STRING)
        stream.process(supplier)
        stream.process(supplier)
        topology = builder.build()
    else:
        topology = Topology().add_source("source", "in", key=STRING, value=STRING)
        topology.add_processor("p", supplier, "source").add_processor("q", supplier, "source")
    (part,) = topology._subtopologies()
    assert list(part.stores) == ["s"]
    with TopologyTestDriver(topology) as driver:
        driver.create_input_topic("in", key=STRING, value=STRING).pipe_input("k", "v")
        assert driver.get_state_store("s").get("k") == "v"


def test_class_can_define_stores_in_a_class_method() -> None:
    """An instance method called `stores` has no meaning."""

    class WithStores(Put):
        store = "s"

        @classmethod
        def stores(cls) -> list[KeyValueStoreBuilder]:
            return [store("s")]

    class WithInstanceMethod(Put):
        def stores(self) -> list[str]:
            return ["fruit", "bread"]

    topology = Topology().add_source("s", "in").add_processor("p", WithStores, "s")
    topology.add_processor("q", WithInstanceMethod, "s")
    assert list(topology.state_stores) == ["s"]


def test_read_only_store_is_a_copy_of_its_topic() -> None:
    """It has no changelog of its own; its readers are in its sub-topology."""

    class Read(Processor[str, str, str, str]):
        def process(self, record: Any) -> None:
            rate = self.context.get_state_store("rates").get(record.key)
            self.context.forward(record.with_value(f"{record.value} at {rate}"))

    class Fill(Put):
        store = "rates"

    topology = Topology().add_source("orders", "orders", key=STRING, value=STRING)
    topology.add_processor("read", Read, "orders")
    topology.add_sink("sink", "out", "read", key=STRING, value=STRING)
    topology.add_read_only_state_store(
        store("rates"), "read-rates", "rates-topic", "fill", Fill, key=STRING, value=STRING
    )
    topology.connect_processor_and_state_stores("read", "rates")
    (part,) = topology._subtopologies()
    assert part.changelogs == {"rates": "rates-topic"}
    with TopologyTestDriver(topology) as driver:
        driver.create_input_topic("rates-topic", key=STRING, value=STRING).pipe_input("k", "2")
        driver.create_input_topic("orders", key=STRING, value=STRING).pipe_input("k", "order")
        assert driver.produced_topic_names() == {"out"}
        out = driver.create_output_topic("out", key=STRING, value=STRING)
        assert out.read_value() == "order at 2"
        assert driver.topology_metadata()["topics"] == {}


def test_single_store_can_be_given_by_its_name() -> None:
    """In all operations: a string is one name, not a list of letters."""

    class Transformer:
        def transform(self, key: str, value: str | None) -> str | None:
            return value

    builder = StreamsBuilder().add_state_store(store("names"))
    stream = builder.stream("in", key=STRING, value=STRING)
    stream.process(Put, stores="names", name="process")
    stream.process_values(FixedKeyProcessor, stores="names", name="values")
    stream.to_table().transform_values(Transformer, stores="names", name="transform")
    topology = builder.build().add_source("more", "more")
    topology.add_processor("put", Put, "more", stores="names")
    users = {
        node.name
        for part in topology._subtopologies()
        for node in part.nodes
        if "names" in getattr(node, "stores", ())
    }
    assert users == {"process", "values", "transform", "put"}
