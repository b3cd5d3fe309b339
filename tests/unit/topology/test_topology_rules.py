"""The rules of topologies, and the locations in the errors about them."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

import pytest

from millstream.errors import CopartitionError, TopologyError
from millstream.processor.processor import Processor
from millstream.state.builders.store_builder import KeyValueStoreBuilder
from millstream.topology.physical.internal_topic_configs import RepartitionTopic
from millstream.topology.physical.topology import Topology


def store(name: str = "s") -> KeyValueStoreBuilder:
    return KeyValueStoreBuilder(name)


def base() -> Topology:
    """Return a topology with a source, a processor and a sink in a row."""
    return (
        Topology()
        .add_source("source", "in")
        .add_processor("processor", Processor, "source")
        .add_sink("sink", "out", "processor")
    )


def caller_location(offset: int = 0) -> str:
    """Return the location of the caller, as in errors."""
    frame = inspect.currentframe()
    assert frame is not None
    assert frame.f_back is not None
    return f"test_topology_rules.py:{frame.f_back.f_lineno + offset}"


NO_NAME: Any = None
SHARED: Processor[Any, Any, Any, Any] = Processor()

INVALID: dict[str, tuple[Callable[[Topology], object], str]] = {
    "taken source name": (lambda t: t.add_source("sink", "x"), "another node called 'sink'"),
    "taken processor name": (
        lambda t: t.add_processor("source", Processor, "source"),
        "another node called 'source'",
    ),
    "taken sink name": (lambda t: t.add_sink("sink", "x", "source"), "another node called"),
    "empty name": (lambda t: t.add_source("", "x"), "must be a non-empty string"),
    "no name": (lambda t: t.add_sink(NO_NAME, "x", "source"), "but got None"),
    "no topic": (lambda t: t.add_source("b", []), "at least one topic"),
    "illegal topic": (lambda t: t.add_sink("b", "a/b", "source"), "'a/b' contains a character"),
    "topic read twice": (
        lambda t: t.add_source("b", ["x", "in"]),
        "'in' is already read by another",
    ),
    "pattern over a topic": (lambda t: t.add_source("b", re.compile("i.")), "'in' is already read"),
    "topic under a pattern": (
        lambda t: t.add_source("b", re.compile("logs-.*")).add_source("c", "logs-1"),
        "'logs-1' is already read by another source, 'b' declared at",
    ),
    "no parent": (lambda t: t.add_processor("b", Processor, []), "at least one parent"),
    "unknown parent": (lambda t: t.add_sink("b", "x", ["zz"]), "no parent 'zz'"),
    "own parent": (lambda t: t.add_processor("b", Processor, "b"), "its own parent"),
    "sink as parent": (lambda t: t.add_sink("b", "x", "sink"), "'sink' cannot be a parent"),
    "one operator for all": (
        lambda t: t.add_processor("b", lambda: SHARED, "source"),
        "new processor for each call",
    ),
    "unknown store": (
        lambda t: t.connect_processor_and_state_stores("processor", "nope"),
        "no store 'nope'",
    ),
    "unknown processor": (lambda t: t.add_state_store(store(), "zz"), "no processor 'zz'"),
    "store for a sink": (lambda t: t.add_state_store(store(), "sink"), "to a processor, not"),
    "store for a source": (lambda t: t.add_state_store(store(), "source"), "to a processor, not"),
    "two stores of one name": (
        lambda t: t.add_state_store(store()).add_state_store(store()),
        "another store called 's'",
    ),
}


def test_public_methods_of_a_topology() -> None:
    """Methods for the engine and the DSL are private."""
    assert {name for name in dir(Topology) if not name.startswith("_")} == {
        *("add_source", "add_processor", "add_sink", "add_state_store"),
        *("add_global_store", "add_read_only_state_store", "connect_processor_and_state_stores"),
        *("describe", "generated_names", "check_explicit_names"),
    }


@pytest.mark.parametrize("case", INVALID)
def test_error_contains_the_location(case: str) -> None:
    """The error for each rule contains the problem and the line of the program."""
    call, message = INVALID[case]
    with pytest.raises(TopologyError, match=re.escape(message)) as caught:
        call(base())
    assert "declared at" in str(caught.value)
    assert "test_topology_rules.py:" in str(caught.value)
    assert caught.value.retriable is False


def test_nodes_can_have_any_name() -> None:
    """No topic is named after them, as in Kafka Streams."""
    name = 'read / <all> "orders" \u00fc'
    topology = Topology().add_source(name, "in").add_sink("a" * 300, "out", name)
    assert [node.name for node in topology.describe().subtopologies[0].nodes] == [name, "a" * 300]
    chart = topology.describe().to_mermaid()
    assert "read / #lt;all> #quot;orders#quot; \u00fc" in chart


def test_rejected_nodes_are_not_added() -> None:
    """The topology stays the same."""
    topology = base()
    before = topology.describe()
    for call, _ in INVALID.values():
        with pytest.raises(TopologyError):
            call(base())
    with pytest.raises(TopologyError):
        topology.add_sink("b", "x", "zz")
    assert topology.describe() == before


def test_errors_contain_the_first_declaration_too() -> None:
    """For two nodes with one name, the error contains both lines."""
    topology = base().add_source("twice", "x")
    first = caller_location(-1)
    with pytest.raises(TopologyError) as caught:
        topology.add_processor("twice", Processor, "source")
    assert f"{first}. Give each node" in str(caught.value)
    assert str(caught.value).endswith(f"{caller_location(-2)})")
    assert caught.value.node == "twice"


def test_store_builder_can_be_added_again() -> None:
    """In this way two processors share a store, which puts them into one sub-topology."""
    shared = store()
    topology = base()
    topology.add_source("other", "in2").add_processor("second", Processor, "other")
    assert len(topology._subtopologies()) == 2
    topology.add_state_store(shared, "processor").add_state_store(shared, "second")
    (part,) = topology._subtopologies()
    assert part.stores == {"s": shared}
    assert part.changelogs == {"s": "s-changelog"}
    assert part.is_stateful


def test_stores_without_a_changelog_do_not_make_a_sub_topology_stateful() -> None:
    """Only logged stores do."""
    topology = base().add_state_store(store().with_logging(False), "processor")
    (part,) = topology._subtopologies()
    assert part.changelogs == {}
    assert not part.is_stateful
    assert topology._changelog_topics() == {}


def test_stores_without_a_processor_have_no_changelog() -> None:
    """They belong to no sub-topology, so no topic is created for them."""
    topology = base().add_state_store(store())
    assert topology._changelog_topics() == {}
    assert topology._subtopologies()[0].stores == {}


def test_connections_keep_the_order_of_nodes() -> None:
    """Connecting a store later must not move the processor behind its children."""
    topology = base().add_state_store(store(), "processor")
    assert list(topology.nodes) == ["source", "processor", "sink"]
    assert topology.connect_processor_and_state_stores("processor", "s") is topology
    (part,) = topology._subtopologies()
    assert [node.name for node in part.nodes] == ["source", "processor", "sink"]


def test_only_internal_topics_are_decorated() -> None:
    """Topics of the user keep their names on the cluster; internal topics start with the
    application id."""
    topology = base().add_state_store(store(), "processor")
    topology._add_internal_topic(RepartitionTopic("r-repartition"))
    topology.add_sink("to-r", "r-repartition", "processor").add_source("from-r", "r-repartition")
    first, second = topology._subtopologies()
    names = [first.decorate(each, "app") for each in ("in", "out", "r-repartition", "s-changelog")]
    assert names == ["in", "out", "app-r-repartition", "app-s-changelog"]
    assert second.repartition_topics == {"r-repartition": RepartitionTopic("r-repartition")}
    assert first.repartition_topics == {}


def repartitions(*counts: int | None) -> Topology:
    """Return a topology with sources of repartition topics with these partition counts, and of an
    external topic."""
    topology = Topology().add_source("external", "e")
    for number, count in enumerate(counts):
        topology._add_internal_topic(RepartitionTopic(f"r{number}", count))
        topology.add_source(f"source{number}", f"r{number}")
    return topology


def test_copartition_groups_with_common_topics_are_merged() -> None:
    """If a must match b and b must match c, all three must."""
    sources = repartitions(None, None, None, None)._copartitioned
    sources.add(["source0", "source1"])
    sources.add(["source2", "source3"])
    assert len(sources.groups()) == 2
    sources.add(["source1", "source2"])
    assert sources.groups() == [frozenset(["r0", "r1", "r2", "r3"])]


def test_different_enforced_counts_are_rejected() -> None:
    """2 and 3 can never be equal, so the error is raised at once."""
    sources = repartitions(2, 3)._copartitioned
    sources.add(["source0", "source1"])
    with pytest.raises(CopartitionError, match=r"'r0' has 2 .*, 'r1' has 3 "):
        sources.check()


@pytest.mark.parametrize("counts", [(2, 2), (2, None), (None, None)])
def test_counts_that_can_be_equal_are_accepted(counts: tuple[int | None, ...]) -> None:
    """Equal counts, and counts that the assignor can still choose."""
    sources = repartitions(*counts)._copartitioned
    sources.add(["source0", "source1"])
    sources.check()


def test_counts_of_external_topics_are_left_to_the_assignor() -> None:
    """The count of an external topic is only known to the cluster."""
    sources = repartitions(2, 3)._copartitioned
    sources.add(["source0", "source1", "external"])
    sources.check()


def test_precedence_of_topic_configs() -> None:
    """Defaults, then the topic settings of the application, then those of the store."""
    topology = base().add_state_store(
        store().with_logging({"cleanup.policy": "delete"}), "processor"
    )
    changelog = topology._changelog_topics()["s-changelog"]
    settings = {"cleanup.policy": "compact,delete", "message.timestamp.type": "LogAppendTime"}
    assert changelog.config(settings) == {
        "cleanup.policy": "delete",
        "message.timestamp.type": "LogAppendTime",
    }
    assert RepartitionTopic("r").config({"segment.bytes": "1"}) == {
        "cleanup.policy": "delete",
        "retention.ms": "-1",
        "segment.bytes": "1",
        "message.timestamp.type": "CreateTime",
    }
