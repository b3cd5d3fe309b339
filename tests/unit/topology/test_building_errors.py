"""Errors about a topology contain the node, the topic and the lines of the program."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta

import cloudpickle
import pytest

from millstream import JoinWindows, TimeWindows
from millstream.assignment.internal_topics import repartition_counts
from millstream.config.streams_config import StreamsConfig
from millstream.errors import ConfigError, CopartitionError, StreamsError, TopologyError
from millstream.processor.processor import Processor
from millstream.runtime.start.topology_checks import check_topology
from millstream.runtime.start.topology_topics import topology_topics
from millstream.serdes import STRING
from millstream.topology.dsl.builder import StreamsBuilder
from millstream.topology.options.materialized import Materialized
from millstream.topology.physical.topology import Topology

LINE = r"\S*test_building_errors\.py:\d+"
CONFIG = StreamsConfig(application_id="app", bootstrap_servers="none:1")


def different_counts(builder: StreamsBuilder) -> None:
    left = builder.stream("a", key=STRING, value=STRING).repartition(partitions=2, name="left")
    right = builder.stream("b", key=STRING, value=STRING).repartition(partitions=3, name="right")
    left.join(right, lambda one, other: one, JoinWindows(timedelta(1))).to("out")


def one_name_for_two_nodes(builder: StreamsBuilder) -> None:
    stream = builder.stream("a", key=STRING, value=STRING)
    stream.filter(lambda key, value: True, name="twice").to("b", name="twice")


def one_name_for_two_stores(builder: StreamsBuilder) -> None:
    groups = builder.stream("a", key=STRING, value=STRING).group_by_key()
    groups.count(store="counts")
    groups.reduce(max, store="counts", name="highest")


def topic_read_twice(builder: StreamsBuilder) -> None:
    builder.stream(["a", "b"])
    builder.stream(["b", "c"])


def no_serde_to_read(builder: StreamsBuilder) -> None:
    builder.stream("a", name="reads")


def no_serde_to_write(builder: StreamsBuilder) -> None:
    builder.stream("a", key=STRING, value=STRING).map_values(len).to("b", name="writes")


def no_serde_to_store(builder: StreamsBuilder) -> None:
    groups = builder.stream("a", key=STRING, value=STRING).group_by_key()
    groups.aggregate(int, lambda key, value, count: count + 1, store="kept", name="counts")


def retention_too_short(builder: StreamsBuilder) -> None:
    groups = builder.stream("a", key=STRING, value=STRING).group_by_key()
    day = groups.windowed_by(TimeWindows(timedelta(days=1), grace=timedelta(hours=1)))
    day.count(store=Materialized("daily", retention=timedelta(days=1)))


def table_without_a_name(builder: StreamsBuilder) -> None:
    builder.table("a", key=STRING, value=STRING)


INVALID_TOPOLOGIES: dict[str, tuple[Callable[[StreamsBuilder], None], type[StreamsError], str]] = {
    "co-partitioning": (
        different_counts,
        CopartitionError,
        rf"'left-repartition' has 2 \(node left-repartition-source, {LINE}\), 'right-repartition' "
        rf"has 3 \(node right-repartition-source, {LINE}\).*declared at {LINE}\)$",
    ),
    "nodes": (
        one_name_for_two_nodes,
        TopologyError,
        rf"called 'twice', declared at {LINE}.*\(node twice, declared at {LINE}\)$",
    ),
    "stores": (
        one_name_for_two_stores,
        TopologyError,
        rf"called 'counts', used by node 'KSTREAM-AGGREGATE-0000000001', declared at "
        rf"{LINE}.*declared at {LINE}\)$",
    ),
    "topics": (
        topic_read_twice,
        TopologyError,
        rf"topic 'b' is read by two sources.*declared at {LINE}.*topic b, declared at {LINE}\)$",
    ),
    "serde of a source": (
        no_serde_to_read,
        ConfigError,
        rf"no key serde.*declared at {LINE}\. \(node reads, topic a\)$",
    ),
    "serde of a sink": (
        no_serde_to_write,
        ConfigError,
        rf"no value serde.*declared at {LINE}\. \(node writes, topic b\)$",
    ),
    "serde of a store": (
        no_serde_to_store,
        ConfigError,
        rf"kept has no serde for its values.*declared at {LINE}\. \(node counts\)$",
    ),
    "retention": (
        retention_too_short,
        TopologyError,
        rf"daily.*86400000 ms.*90000000 ms.*declared at {LINE}\)$",
    ),
}


@pytest.mark.parametrize("case", INVALID_TOPOLOGIES)
def test_error_contains_every_location(case: str) -> None:
    """Both the wrong line and the line that it contradicts."""
    program, kind, message = INVALID_TOPOLOGIES[case]
    with pytest.raises(kind, match=rf"(?s){message}"):
        check(program)


def check(program: Callable[[StreamsBuilder], None]) -> None:
    """Run the checks before the start of an application."""
    builder = StreamsBuilder()
    program(builder)
    check_topology(builder.build(), CONFIG)


def test_unknown_parents_and_cycles() -> None:
    """A parent must already exist, so that no node can precede itself."""
    topology = Topology().add_source("source", "in")
    for parent in ("later", "node"):
        with pytest.raises(TopologyError, match=rf"node node, declared at .*{LINE}\)$"):
            topology.add_processor("node", Processor, ["source", parent])


def test_copartition_groups_contain_the_line_of_the_program() -> None:
    """The assignor only has topics, so it receives the lines that join them."""
    builder = StreamsBuilder()
    left = builder.table("a", key=STRING, value=STRING)
    left.join(builder.table("b", key=STRING, value=STRING), lambda one, other: one)
    topics = topology_topics(builder.build(), CONFIG)
    assert topics.copartition_groups == (frozenset("ab"),)
    assert "test_building_errors.py:" in topics.joined_at[frozenset("ab")]


def test_topics_that_match_a_pattern_are_checked_when_they_are_known() -> None:
    """All topics that are joined with them, also indirectly, must have the same number of
    partitions."""
    builder = StreamsBuilder()
    logs = builder.stream(re.compile("log-.*"), key=STRING, value=STRING)
    for name in ("a", "b"):
        logs.left_join(builder.table(name, key=STRING, value=STRING), lambda log, value: log)
    topics = topology_topics(builder.build(), CONFIG)
    assert set(topics.with_matches(["a", "b"]).copartition_groups) == {
        frozenset("a"),
        frozenset("b"),
    }
    found = topics.with_matches(["a", "b", "log-1", "log-2"])
    (group,) = found.copartition_groups
    assert group == {"a", "b", "log-1", "log-2"}
    with pytest.raises(CopartitionError, match=rf"'log-2' has 3 .*{LINE}"):
        repartition_counts(found, {"a": 4, "b": 4, "log-1": 4, "log-2": 3})


def test_possible_stores_need_names_as_well() -> None:
    """As in Kafka Streams: a table without a store today may need one tomorrow."""
    builder = StreamsBuilder()
    table_without_a_name(builder)
    with pytest.raises(TopologyError, match=r"(?s)a-STATE-STORE-0000000000-changelog"):
        builder.build().check_explicit_names()


def test_topologies_with_foreign_keys_can_be_pickled() -> None:
    """All parts of a foreign-key join can be sent to a worker."""
    builder = StreamsBuilder()
    left, right = (builder.table(topic, key=STRING, value=STRING) for topic in ("a", "b"))
    left.left_join(right.filter(lambda k, v: True), lambda a, b: a, foreign_key=lambda v: v)
    topology = builder.build()
    assert cloudpickle.loads(cloudpickle.dumps(topology)).describe() == topology.describe()
