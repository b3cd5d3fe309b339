"""The next version of an application continues with the state and topics of the previous one.

Counterparts of Apache Kafka's streams_named_repartition_topic_test and streams_optimized_test.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from support.broker.topics import fill, latest
from support.running.applications import Application

from millstream import StreamsBuilder, Topology
from millstream.serdes import LONG, STRING
from millstream.testing import EmbeddedKafka

PARTITIONS = 2
KEYS = 7


def named(version: int) -> Callable[[str], Topology]:
    """Counts by value.

    The second version has more operators before it, with other generated names.
    """

    def build(name: str) -> Topology:
        builder = StreamsBuilder()
        stream = builder.stream(f"{name}-in", key=STRING, value=STRING)
        if version == 2:
            stream = stream.filter(lambda _, value: bool(value)).map_values(str.strip)
        (
            stream.group_by(lambda _, value: value, key=STRING, value=STRING, name="by-value")
            .count(store="counts")
            .to_stream()
            .to(f"{name}-out", key=STRING, value=LONG)
        )
        return builder.build()

    return build


def optimized(optimize: bool) -> Callable[[str], Topology]:
    """Counts and reduces a stream with a new key: with two repartition topics, or with one."""

    def build(name: str) -> Topology:
        builder = StreamsBuilder(optimize=optimize)
        stream = builder.stream(f"{name}-in", key=STRING, value=STRING).select_key(
            lambda _, value: value
        )
        (
            stream.group_by_key(key=STRING, value=STRING)
            .count(store="counts")
            .to_stream()
            .to(f"{name}-out", key=STRING, value=LONG)
        )
        (
            stream.group_by_key(key=STRING, value=STRING)
            .reduce(max, store="longest")
            .to_stream()
            .to(f"{name}-longest", key=STRING, value=STRING)
        )
        return builder.build()

    return build


class Upgraded:
    """One application, in one version after the other.

    Args:
        kafka: the broker.
        spark: the session.
        folder: for its state.
        versions: its topologies.
    """

    def __init__(
        self,
        kafka: EmbeddedKafka,
        spark: SparkSession,
        folder: Path,
        *versions: Callable[[str], Topology],
    ) -> None:
        self._kafka = kafka
        self._spark = spark
        self._folder = folder
        self._versions = iter(versions)
        self._written = 0
        self.app = Application(
            kafka,
            lambda name: next(self._versions)(name),
            {"in": PARTITIONS},
            {"out": PARTITIONS, "longest": PARTITIONS},
        )

    def run(self, records: int, **settings: str) -> dict[str, int]:
        """Run the next version until it has processed more records, and return its counts."""
        values = [f"v{n % KEYS}".encode() for n in range(self._written, self._written + records)]
        self._written += records
        fill(self._kafka.unsecured_servers, self.app.topic("in"), [(b"k", each) for each in values])
        with self.app.running(self._spark, self._folder, **settings):
            self.app.wait_until_done()
        found = latest(self._kafka.unsecured_servers, self.app.topic("out"))
        return {(key or b"").decode(): int.from_bytes(n or b"", "big") for key, n in found.items()}


def counted(records: int) -> dict[str, int]:
    """The expected result after this many records."""
    return {f"v{key}": len(range(key, records, KEYS)) for key in range(KEYS)}


@pytest.mark.extended
def test_named_topics_and_state_survive_new_operators(
    kafka: EmbeddedKafka, spark: SparkSession, tmp_path: Path
) -> None:
    """Generated names change with each operator; named topics and stores do not."""
    upgraded = Upgraded(kafka, spark, tmp_path, named(1), named(2))
    assert upgraded.run(100) == counted(100)
    before = upgraded.app.internal_topics()
    assert before == {"by-value-repartition": PARTITIONS, "counts-changelog": PARTITIONS}
    assert upgraded.run(60) == counted(160)
    assert upgraded.app.internal_topics() == before


@pytest.mark.extended
def test_an_optimized_version_continues_with_the_state_of_an_unoptimized_one(
    kafka: EmbeddedKafka, spark: SparkSession, tmp_path: Path
) -> None:
    """Two repartition topics become one; stores and their changelogs keep their names."""
    upgraded = Upgraded(kafka, spark, tmp_path, optimized(False), optimized(True))
    assert upgraded.run(100) == counted(100)
    before = set(upgraded.app.internal_topics())
    assert sum(topic.endswith("-repartition") for topic in before) == 2
    assert upgraded.run(60, topology_optimization="all") == counted(160)
    # The remaining topic carries the records for both; the other one is not written any more.
    after = set(upgraded.app.internal_topics())
    assert {topic for topic in before if topic.endswith("-changelog")} <= after
    assert sum(topic.endswith("-repartition") for topic in after) <= 3
