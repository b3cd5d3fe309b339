"""`stream_from_lake`: its effects on a topology, and the checks of its arguments."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import cloudpickle
import pytest

from millstream import KafkaStreams, StreamsBuilder, StreamsConfig, Topology
from millstream.application.dataframes import LakeHistories, with_read_committed
from millstream.assignment.internal_topics import repartition_counts
from millstream.errors import ConfigError, TopologyError
from millstream.runtime.start.topology_topics import topology_topics
from millstream.serdes import STRING
from millstream.testing import TopologyTestDriver

CONFIG = StreamsConfig(application_id="app", bootstrap_servers="nowhere:9092")
TOPIC = "old-history-repartition"


def from_lake(builder: StreamsBuilder, **options: Any) -> Any:
    arguments: dict[str, Any] = {"format": "delta", "key": STRING, "value": STRING, **options}
    return builder.stream_from_lake(arguments.pop("path", "/lake/clicks"), **arguments)


def topology_with_history(**options: Any) -> Topology:
    """Return a topology with a count by key of a table and the topic after it."""
    builder = StreamsBuilder()
    clicks = from_lake(builder, **{"name": "old", "then": "clicks", **options})
    counts = clicks.group_by_key().count(store="counts").to_stream()
    counts.map_values(str).to("out", value=STRING)
    return builder.build()


def test_history_is_a_source_with_two_topics() -> None:
    """Descriptions as text, data and flowchart show the table behind the sub-topologies with
    tasks."""
    described = topology_with_history().describe()
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


def test_topic_of_a_history_has_the_partitions_of_the_topic_after_it() -> None:
    """It is an internal topic: it does not need to be created, and its records are deleted after
    use."""
    topics = topology_topics(topology_with_history(), CONFIG)
    assert topics.external_source_topics == {"clicks"}
    assert repartition_counts(topics, {"clicks": 5}) == {f"app-{TOPIC}": 5}
    assert topics.repartition_topics[f"app-{TOPIC}"].config["retention.ms"] == "-1"


def test_topic_of_a_single_history_has_the_configured_partitions() -> None:
    for arguments, partitions in (({}, 1), ({"partitions": 3}, 3)):
        topics = topology_topics(topology_with_history(then=None, **arguments), CONFIG)
        assert topics.external_source_topics == set()
        assert repartition_counts(topics, {}) == {f"app-{TOPIC}": partitions}


def test_name_is_optional() -> None:
    """Without a name, the topic has a generated name, which is reported."""
    builder = StreamsBuilder()
    from_lake(builder).to("out")
    topic = "KSTREAM-SOURCE-0000000000-history-repartition"
    assert builder.build().generated_names()["repartition topics"] == [topic]


def test_workers_receive_the_history() -> None:
    """The leader of the group needs its topics."""
    topology = cloudpickle.loads(cloudpickle.dumps(topology_with_history()))
    assert list(topology.lake_histories) == ["old"]


def test_topology_test_driver_accepts_the_rows() -> None:
    """The driver treats the table and the topic like other topics."""
    with TopologyTestDriver(topology_with_history(), CONFIG) as driver:
        text: dict[str, Any] = {"key": STRING, "value": STRING}
        driver.create_input_topic(f"app-{TOPIC}", **text).pipe_input("ann", "/old", timestamp=1)
        driver.create_input_topic("clicks", **text).pipe_input("ann", "/new", timestamp=2)
        out = driver.create_output_topic("out", **text)
        assert [record.value for record in out.read_records()] == ["1", "2"]


def test_session_needs_the_connector_of_the_format() -> None:
    assert LakeHistories(topology_with_history(), CONFIG).connectors == ["delta"]
    assert LakeHistories(topology_with_history(format="parquet"), CONFIG).connectors == []


def test_only_committed_records_are_read() -> None:
    """Also without exactly-once: an aborted step is not history. Other topologies are not
    affected."""
    settings = with_read_committed(topology_with_history(), CONFIG)
    assert settings.client_settings("main_consumer")["isolation.level"] == "read_committed"
    assert with_read_committed(StreamsBuilder().build(), CONFIG) is CONFIG
    wrong = CONFIG.replace(consumer={"isolation.level": "read_uncommitted"})
    with pytest.raises(ConfigError, match="read_uncommitted"):
        KafkaStreams(topology_with_history(), wrong)


def test_tasks_have_to_wait_for_the_history() -> None:
    with pytest.raises(ConfigError, match="would not wait for the history 'old'"):
        KafkaStreams(topology_with_history(), CONFIG.replace(max_task_idle_ms=-1))


def test_time_without_a_zone_is_utc() -> None:
    naive, aware = datetime(2026, 1, 2, 3), datetime(2026, 1, 2, 3, tzinfo=UTC)
    for moment in (naive, aware):
        history = topology_with_history(then_from=moment).lake_histories["old"]
        assert history.then_from_ms == 1_767_322_800_000


@pytest.mark.parametrize(
    ("problem", "arguments"),
    [
        ("no such format", {"format": "orc"}),
        ("needs the path", {"path": " "}),
        ("needs the serdes", {"value": None}),
        (r"key_column=''", {"key_column": ""}),
        (r"timestamp=3", {"timestamp": 3}),
        ("pass a datetime", {"then_from": "2026-01-02", "then": "clicks"}),
        ("but there is no topic", {"then_from": datetime(2026, 1, 2)}),
        ("Leave partitions out", {"partitions": 3, "then": "clicks"}),
        ("at least 1", {"partitions": 0}),
        ("is not legal", {"then": "cli cks"}),
    ],
)
def test_invalid_arguments_are_rejected(problem: str, arguments: dict[str, Any]) -> None:
    """At the declaration, with the remedy."""
    with pytest.raises(TopologyError, match=problem):
        from_lake(StreamsBuilder(), **arguments)


def test_topic_can_only_be_read_once() -> None:
    """By one history, and by no other source."""
    for of_lake in (True, False):
        builder = StreamsBuilder()
        from_lake(builder, name="old", then="clicks").to("out")
        if of_lake:
            from_lake(builder, name="other", then="clicks").to("out")
        else:
            builder.stream("clicks", key=STRING, value=STRING).to("out")
        with pytest.raises(TopologyError, match="'clicks' is read by two sources"):
            builder.build()


def test_name_of_a_history_must_be_unique() -> None:
    builder = StreamsBuilder()
    from_lake(builder, name="old").to("out")
    from_lake(builder, name="old", path="/lake/others").to("out")
    with pytest.raises(TopologyError, match="another history called 'old'"):
        builder.build()
