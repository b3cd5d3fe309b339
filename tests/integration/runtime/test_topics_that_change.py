"""Source topics that change while the application runs; changes are detected within a metadata
interval."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.broker.topics import BrokerTopics, InputRecord, committed_lag, read_all, unique
from support.running.thread_run import ThreadRun, thread_config
from support.waiting import wait_for

from millstream import (
    KStream,
    MissingSourceTopicError,
    OffsetOutOfRangeError,
    StreamsBuilder,
    TopologyError,
)
from millstream.serdes import STRING
from millstream.testing import EmbeddedKafka
from millstream.topology.physical.nodes import OffsetReset

pytestmark = pytest.mark.extended

METADATA_MS = 500
Stream = KStream[str, str]


class Topics:
    """The topics of one application, and its runs."""

    def __init__(self, kafka: EmbeddedKafka, folder: Path) -> None:
        self.name = unique("changing")
        self.bootstrap = kafka.bootstrap_servers
        self.places = BrokerTopics(self.bootstrap)
        self._folder = folder

    def topic(self, name: str) -> str:
        return f"{self.name}-{name}"

    def create(self, **partitions: int) -> None:
        self.places.create({self.topic(name): count for name, count in partitions.items()})

    def write(self, name: str, partition: int, *values: str) -> None:
        topic = self.topic(name)
        self.places.write(InputRecord(topic, partition, value, value, 1_000) for value in values)

    def run(
        self,
        topics: str | re.Pattern[str],
        compute: Callable[[Stream], Stream],
        offset_reset: OffsetReset | None = None,
        **settings: Any,
    ) -> ThreadRun:
        """Run a thread that writes a computation over some topics to `out`."""
        builder = StreamsBuilder()
        stream = builder.stream(topics, key=STRING, value=STRING, offset_reset=offset_reset)
        compute(stream).to(self.topic("out"), key=STRING, value=STRING)
        settings.setdefault("metadata_max_age_ms", METADATA_MS)
        config = thread_config(self.bootstrap, self._folder, self.name, **settings)
        return ThreadRun(builder.build(), config)

    def matching(self) -> re.Pattern[str]:
        """A pattern for all its topics except the output."""
        return re.compile(f"{re.escape(self.name)}-in.*")

    def written(self) -> list[str]:
        records = read_all(self.bootstrap, self.topic("out"))
        return sorted((value or b"").decode() for _, value in records)

    def wait_for(self, *values: str) -> None:
        """Wait until exactly these values are written."""
        wait_for(
            lambda: self.written() == sorted(values), 20, lambda: f"{values}, not {self.written()}"
        )


@pytest.fixture
def topics(kafka: EmbeddedKafka, tmp_path: Path) -> Topics:
    return Topics(kafka, tmp_path)


def identity(stream: Stream) -> Stream:
    return stream


def counted(stream: Stream) -> Stream:
    return stream.group_by_key().count(store="counts").to_stream().map_values(str)


def test_added_partitions_are_read(topics: Topics) -> None:
    topics.create(**{"in": 1, "out": 1})
    with topics.run(topics.topic("in"), identity) as run:
        run.wait_until_running(1)
        topics.write("in", 0, "a")
        topics.wait_for("a")
        topics.places.grow(topics.topic("in"), 3)
        run.wait_until_running(3)
        topics.write("in", 2, "b")
        topics.wait_for("a", "b")


def test_added_partitions_of_a_stateful_task(topics: Topics) -> None:
    """Records of one key would be counted in two partitions afterwards."""
    topics.create(**{"in": 1, "out": 1})
    with topics.run(topics.topic("in"), counted) as run:
        run.wait_until_running(1)
        topics.places.grow(topics.topic("in"), 2)
        error = run.wait_for_failure()
    assert isinstance(error, TopologyError)
    assert error.topic == topics.topic("counts-changelog")
    assert "expected 2, actual 1. Partitions were probably added to an" in error.message


def test_a_deleted_topic(topics: Topics) -> None:
    """Even if its last offsets cannot be committed any more; other topics are not delayed by
    that."""
    topics.create(**{"in": 1, "out": 1})
    with topics.run(topics.topic("in"), identity, commit_interval_ms=2_000) as run:
        run.wait_until_running(1)
        topics.write("in", 0, "a")
        topics.wait_for("a")
        topics.places.delete(topics.topic("in"))
        error = run.wait_for_failure()
    assert isinstance(error, MissingSourceTopicError)
    assert error.topic == topics.topic("in")


def test_topics_that_match_a_pattern_are_added_and_deleted(
    topics: Topics, caplog: pytest.LogCaptureFixture
) -> None:
    topics.create(in1=1, in2=2, out=1)
    with topics.run(topics.matching(), identity, commit_interval_ms=2_000) as run:
        run.wait_until_running(2)
        topics.write("in1", 0, "a")
        topics.wait_for("a")
        topics.create(in3=3)
        run.wait_until_running(3)
        topics.write("in2", 0, "b")
        topics.write("in3", 2, "c")
        topics.wait_for("a", "b", "c")
        topics.places.delete(topics.topic("in3"))
        run.wait_until_running(2)
        topics.write("in2", 0, "d")
        topics.wait_for("a", "b", "c", "d")
    assert committed_lag(topics.bootstrap, topics.name, topics.topic("in2")) == 0


def replace_while_running(topics: Topics, run: ThreadRun, *values: str) -> None:
    """Delete the topic and create it again, with these values."""
    run.wait_until_running(1)
    topics.write("in", 0, "a")
    topics.wait_for("a")
    # The committed offset contains the topic's id.
    topic = topics.topic("in")
    wait_for(
        lambda: committed_lag(topics.bootstrap, topics.name, topic) == 0,
        30,
        "the offset is committed",
    )
    topics.places.delete(topic)
    topics.create(**{"in": 1})
    topics.write("in", 0, *values)


@pytest.mark.parametrize("values", [("b", "c", "d"), ("b",)], ids=["longer", "as long"])
def test_a_recreated_topic_is_reported(topics: Topics, values: tuple[str, ...]) -> None:
    """Its first record is not the second one of the former topic, which the group has read.

    It is a race whether the group still has its committed offset: brokers delete it with the topic.
    """
    topics.create(**{"in": 1, "out": 1})
    with topics.run(topics.topic("in"), identity) as run:
        replace_while_running(topics, run, *values)
        error = run.wait_for_failure()
    assert isinstance(error, OffsetOutOfRangeError)
    assert "belongs to a deleted topic" in error.message


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
def test_a_recreated_topic_is_read_from_the_configured_offset(
    topics: Topics, guarantee: str
) -> None:
    topics.create(**{"in": 1, "out": 1})
    with topics.run(
        topics.topic("in"), identity, offset_reset="earliest", processing_guarantee=guarantee
    ) as run:
        replace_while_running(topics, run, "b", "c", "d")
        wait_for(lambda: {"a", "b", "c", "d"} <= set(topics.written()), 20, "all records are read")
        topics.write("in", 0, "e")
        wait_for(lambda: "e" in topics.written(), 20, "reading continues")
    assert committed_lag(topics.bootstrap, topics.name, topics.topic("in")) == 0


def test_a_topic_recreated_between_runs_is_new(topics: Topics) -> None:
    """The broker deletes the group's offsets together with a topic."""
    topics.create(**{"in": 1, "out": 1})
    with topics.run(topics.topic("in"), identity) as run:
        run.wait_until_running(1)
        topics.write("in", 0, "a", "b")
        topics.wait_for("a", "b")
    topics.places.delete(topics.topic("in"))
    topics.create(**{"in": 1})
    topics.write("in", 0, "c", "d", "e")
    with topics.run(topics.topic("in"), identity):
        topics.wait_for("a", "b", "c", "d", "e")
