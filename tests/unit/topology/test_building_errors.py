"""What is wrong with a program is told by node, topic, and the program's own lines."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta

import cloudpickle
import pytest

from millstream import JoinWindows, TimeWindows
from millstream.assignment.internal_topics import repartition_counts
from millstream.config import StreamsConfig
from millstream.errors import ConfigError, CopartitionError, StreamsError, TopologyError
from millstream.processor.processor import Processor
from millstream.runtime.check import check_topology
from millstream.runtime.topology_topics import topology_topics
from millstream.serdes import STRING
from millstream.topology.dsl.builder import StreamsBuilder
from millstream.topology.options.materialized import Materialized
from millstream.topology.physical.topology import Topology

HERE = r"\S*test_building_errors\.py:\d+"
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


def no_serde_to_keep(builder: StreamsBuilder) -> None:
    groups = builder.stream("a", key=STRING, value=STRING).group_by_key()
    groups.aggregate(int, lambda key, value, count: count + 1, store="kept", name="counts")


def windows_kept_too_short(builder: StreamsBuilder) -> None:
    groups = builder.stream("a", key=STRING, value=STRING).group_by_key()
    day = groups.windowed_by(TimeWindows(timedelta(days=1), grace=timedelta(hours=1)))
    day.count(store=Materialized("daily", retention=timedelta(days=1)))


def names_demanded(builder: StreamsBuilder) -> None:
    builder.table("a", key=STRING, value=STRING)


REFUSED: dict[str, tuple[Callable[[StreamsBuilder], None], type[StreamsError], str]] = {
    "co-partitioning": (
        different_counts,
        CopartitionError,
        rf"'left-repartition' has 2 \(node left-repartition-source, {HERE}\), 'right-repartition' "
        rf"has 3 \(node right-repartition-source, {HERE}\).*declared at {HERE}\)$",
    ),
    "nodes": (
        one_name_for_two_nodes,
        TopologyError,
        rf"called 'twice', declared at {HERE}.*\(node twice, declared at {HERE}\)$",
    ),
    "stores": (
        one_name_for_two_stores,
        TopologyError,
        rf"called 'counts' already, that of node 'KSTREAM-AGGREGATE-0000000001', declared at "
        rf"{HERE}.*declared at {HERE}\)$",
    ),
    "topics": (
        topic_read_twice,
        TopologyError,
        rf"topic 'b' is read by two sources.*declared at {HERE}.*topic b, declared at {HERE}\)$",
    ),
    "serde of a source": (
        no_serde_to_read,
        ConfigError,
        rf"no key serde.*declared at {HERE}\. \(node reads, topic a\)$",
    ),
    "serde of a sink": (
        no_serde_to_write,
        ConfigError,
        rf"no value serde.*declared at {HERE}\. \(node writes, topic b\)$",
    ),
    "serde of a store": (
        no_serde_to_keep,
        ConfigError,
        rf"kept has no serde for its values.*declared at {HERE}\. \(node counts\)$",
    ),
    "retention": (
        windows_kept_too_short,
        TopologyError,
        rf"daily.*86400000 ms.*90000000 ms.*declared at {HERE}\)$",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_with_every_place(case: str) -> None:
    """Both the line that is wrong and the line that it contradicts."""
    program, kind, said = REFUSED[case]
    with pytest.raises(kind, match=rf"(?s){said}"):
        started(program)


def started(program: Callable[[StreamsBuilder], None]) -> None:
    """As far as an application is checked before it starts."""
    builder = StreamsBuilder()
    program(builder)
    check_topology(builder.build(), CONFIG)


def test_unknown_parents_and_cycles() -> None:
    """A parent must be there already, so that no node can come before itself."""
    topology = Topology().add_source("source", "in")
    for parent in ("later", "node"):
        with pytest.raises(TopologyError, match=rf"node node, declared at .*{HERE}\)$"):
            topology.add_processor("node", Processor, ["source", parent])


def test_the_cluster_tells_the_program_s_line_too() -> None:
    """The assignor, which sees topics alone, is given the lines that join them."""
    builder = StreamsBuilder()
    left = builder.table("a", key=STRING, value=STRING)
    left.join(builder.table("b", key=STRING, value=STRING), lambda one, other: one)
    topics = topology_topics(builder.build(), CONFIG)
    assert topics.copartition_groups == (frozenset("ab"),)
    assert "test_building_errors.py:" in topics.joined_at[frozenset("ab")]


def test_topics_that_match_a_pattern_are_judged_when_they_are_known() -> None:
    """Those beside them, in one join or by way of two, must all be partitioned alike."""
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
    with pytest.raises(CopartitionError, match=rf"'log-2' has 3 .*{HERE}"):
        repartition_counts(found, {"a": 4, "b": 4, "log-1": 4, "log-2": 3})


def test_stores_that_may_come_need_names_as_well() -> None:
    """Follows Kafka Streams: a table that is not kept today may be tomorrow."""
    builder = StreamsBuilder()
    names_demanded(builder)
    with pytest.raises(TopologyError, match=r"(?s)a-STATE-STORE-0000000000-changelog"):
        builder.build().check_explicit_names()


def test_topologies_with_foreign_keys_travel() -> None:
    """Everything that a join by foreign key brings along can be shipped to a worker."""
    builder = StreamsBuilder()
    left, right = (builder.table(topic, key=STRING, value=STRING) for topic in ("a", "b"))
    left.left_join(right.filter(lambda k, v: True), lambda a, b: a, foreign_key=lambda v: v)
    topology = builder.build()
    assert cloudpickle.loads(cloudpickle.dumps(topology)).describe() == topology.describe()
