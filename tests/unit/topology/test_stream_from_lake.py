"""`stream_from_lake` where it is declared: what becomes of it, what is refused."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import cloudpickle
import pytest

from millstream import KafkaStreams, StreamsBuilder, StreamsConfig, Topology
from millstream.application.histories import LakeHistories, reading_committed
from millstream.assignment.internal_topics import repartition_counts
from millstream.errors import ConfigError, TopologyError
from millstream.runtime.topology_topics import topology_topics
from millstream.serdes import STRING
from millstream.testing import TopologyTestDriver

CONFIG = StreamsConfig(application_id="app", bootstrap_servers="nowhere:9092")
TOPIC = "old-history-repartition"


def from_lake(builder: StreamsBuilder, **options: Any) -> Any:
    given: dict[str, Any] = {"format": "delta", "key": STRING, "value": STRING, **options}
    return builder.stream_from_lake(given.pop("path", "/lake/clicks"), **given)


def counted(**options: Any) -> Topology:
    """A count by key of a table and what comes after it."""
    builder = StreamsBuilder()
    clicks = from_lake(builder, **{"name": "old", "then": "clicks", **options})
    counts = clicks.group_by_key().count(store="counts").to_stream()
    counts.map_values(str).to("out", value=STRING)
    return builder.build()


def test_it_is_a_source_of_two_topics() -> None:
    """Text, plain data and flowchart show the table behind the sub-topologies with tasks."""
    described = counted().describe()
    assert f"Source: old (topics: [{TOPIC}, clicks])" in str(described)
    assert "Sub-topology: 1 for history from the lake (will not generate tasks)" in str(described)
    assert described.to_dict()["histories"] == [
        {
            "id": 1,
            "name": "old",
            "table": "delta: /lake/clicks",
            "output_topic": TOPIC,
            "then": "clicks",
        }
    ]
    flowchart = described.to_mermaid()
    assert 'subgraph sub1["History 1"]' in flowchart
    assert flowchart.count("delta: /lake/clicks") == flowchart.count(TOPIC) == 1
    assert "histories" not in StreamsBuilder().build().describe().to_dict()


def test_its_topic_has_the_partitions_of_the_one_after_it() -> None:
    """It is ours: nobody has to create it, and records that are read are deleted."""
    topics = topology_topics(counted(), CONFIG)
    assert topics.external_source_topics == {"clicks"}
    assert repartition_counts(topics, {"clicks": 5}) == {f"app-{TOPIC}": 5}
    assert topics.repartition_topics[f"app-{TOPIC}"].config["retention.ms"] == "-1"


def test_alone_it_has_those_that_were_asked_for() -> None:
    for given, partitions in (({}, 1), ({"partitions": 3}, 3)):
        topics = topology_topics(counted(then=None, **given), CONFIG)
        assert topics.external_source_topics == set()
        assert repartition_counts(topics, {}) == {f"app-{TOPIC}": partitions}


def test_a_name_may_be_left_out() -> None:
    """Then its topic has a generated name, which is told."""
    builder = StreamsBuilder()
    from_lake(builder).to("out")
    topic = "KSTREAM-SOURCE-0000000000-history-repartition"
    assert builder.build().generated_names()["repartition topics"] == [topic]


def test_workers_get_it_too() -> None:
    """The leader of the group asks for its topics there."""
    topology = cloudpickle.loads(cloudpickle.dumps(counted()))
    assert list(topology.lake_histories) == ["old"]


def test_a_test_driver_is_fed_with_the_rows() -> None:
    """Table and topic are topics like others to it."""
    with TopologyTestDriver(counted(), CONFIG) as driver:
        text: dict[str, Any] = {"key": STRING, "value": STRING}
        driver.create_input_topic(f"app-{TOPIC}", **text).pipe_input("ann", "/old", timestamp=1)
        driver.create_input_topic("clicks", **text).pipe_input("ann", "/new", timestamp=2)
        out = driver.create_output_topic("out", **text)
        assert [record.value for record in out.read_records()] == ["1", "2"]


def test_a_session_has_to_have_its_format() -> None:
    assert LakeHistories(counted(), CONFIG).connectors == ["delta"]
    assert LakeHistories(counted(format="parquet"), CONFIG).connectors == []


def test_only_what_is_committed_is_read() -> None:
    """Also without exactly-once: a step that was killed is not history. Others are left alone."""
    settings = reading_committed(counted(), CONFIG)
    assert settings.client_settings("main_consumer")["isolation.level"] == "read_committed"
    assert reading_committed(StreamsBuilder().build(), CONFIG) is CONFIG
    wrong = CONFIG.replace(consumer={"isolation.level": "read_uncommitted"})
    with pytest.raises(ConfigError, match="read_uncommitted"):
        KafkaStreams(counted(), wrong)


def test_tasks_wait_for_it() -> None:
    with pytest.raises(ConfigError, match="would not wait for the history 'old'"):
        KafkaStreams(counted(), CONFIG.replace(max_task_idle_ms=-1))


def test_a_time_without_a_zone_is_utc() -> None:
    naive, aware = datetime(2026, 1, 2, 3), datetime(2026, 1, 2, 3, tzinfo=UTC)
    for moment in (naive, aware):
        history = counted(then_from=moment).lake_histories["old"]
        assert history.then_from_ms == 1_767_322_800_000


@pytest.mark.parametrize(
    ("problem", "arguments"),
    [
        ("no such format", {"format": "orc"}),
        ("needs the path", {"path": " "}),
        ("needs the serdes", {"value": None}),
        (r"key_column=''", {"key_column": ""}),
        (r"timestamp=3", {"timestamp": 3}),
        ("give a datetime", {"then_from": "2026-01-02", "then": "clicks"}),
        ("but there is none", {"then_from": datetime(2026, 1, 2)}),
        ("Leave it out", {"partitions": 3, "then": "clicks"}),
        ("at least 1", {"partitions": 0}),
        ("cannot have", {"then": "cli cks"}),
    ],
)
def test_what_cannot_be_is_refused(problem: str, arguments: dict[str, Any]) -> None:
    """At once, with what to do."""
    with pytest.raises(TopologyError, match=problem):
        from_lake(StreamsBuilder(), **arguments)


def test_a_topic_is_read_once() -> None:
    """By one history only, and by nobody else."""
    for of_lake in (True, False):
        builder = StreamsBuilder()
        from_lake(builder, name="old", then="clicks").to("out")
        if of_lake:
            from_lake(builder, name="other", then="clicks").to("out")
        else:
            builder.stream("clicks", key=STRING, value=STRING).to("out")
        with pytest.raises(TopologyError, match="'clicks' is read by two sources"):
            builder.build()


def test_a_name_is_given_once() -> None:
    builder = StreamsBuilder()
    from_lake(builder, name="old").to("out")
    from_lake(builder, name="old", path="/lake/others").to("out")
    with pytest.raises(TopologyError, match="another history called 'old'"):
        builder.build()
