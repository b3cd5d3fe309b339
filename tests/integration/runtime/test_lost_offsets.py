"""Committed offsets that retention has deleted from their topic."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from support.broker.topics import BrokerTopics, InputRecord, committed_lag, read_all, unique
from support.running.thread_run import ThreadRun, thread_config
from support.waiting import wait_for

from millstream import OffsetOutOfRangeError, StreamsBuilder
from millstream.record import TopicPartition
from millstream.serdes import STRING
from millstream.testing import EmbeddedKafka

BEFORE, WRITTEN, FIRST = 5, 15, 8


class CopyApplication:
    """An application that copies a topic and was closed after some records.

    Since then, more records were written, and the first eight records of the topic were deleted.
    """

    def __init__(self, kafka: EmbeddedKafka, folder: Path) -> None:
        self.name = unique("copying")
        self.source, self.target = f"{self.name}-in", f"{self.name}-out"
        self.bootstrap = kafka.bootstrap_servers
        self._folder = folder
        places = BrokerTopics(self.bootstrap)
        places.create({self.source: 1, self.target: 1})
        places.write(self._records(range(BEFORE)))
        with self.run() as run:
            run.wait_until_running()
            wait_for(lambda: len(self.copied()) == BEFORE, 20, "everything is copied")
        places.write(self._records(range(BEFORE, WRITTEN)))
        places.delete_records({TopicPartition(self.source, 0): FIRST})

    def _records(self, numbers: range) -> list[InputRecord]:
        return [InputRecord(self.source, 0, "k", str(n), 1_000 + n) for n in numbers]

    def run(self, offset_reset: Any = None, **settings: Any) -> ThreadRun:
        builder = StreamsBuilder()
        stream = builder.stream(self.source, key=STRING, value=STRING, offset_reset=offset_reset)
        stream.to(self.target)
        config = thread_config(self.bootstrap, self._folder, self.name, **settings)
        return ThreadRun(builder.build(), config)

    def copied(self) -> list[int]:
        return [int(value or b"") for _, value in read_all(self.bootstrap, self.target)]


def test_lost_records_are_an_error_without_a_configured_reset(
    kafka: EmbeddedKafka, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """By default there is no choice, although a new group starts at `earliest`.

    The error changes nothing: a later choice takes effect.
    """
    app = CopyApplication(kafka, tmp_path)
    with app.run() as run:
        error = run.wait_for_failure()
    assert isinstance(error, OffsetOutOfRangeError)
    assert (error.topic, error.partition, error.offset) == (app.source, 0, BEFORE)
    assert f"whose first offset is {FIRST}: {FIRST - BEFORE} records were deleted" in error.message
    assert "offset_reset='earliest'" in error.message
    assert app.copied() == list(range(BEFORE))

    with caplog.at_level(logging.WARNING), app.run("earliest") as run:
        run.wait_until_running()
        wait_for(lambda: len(app.copied()) >= BEFORE + WRITTEN - FIRST, 20, "the rest is copied")
    assert app.copied() == [*range(BEFORE), *range(FIRST, WRITTEN)]
    assert f"{FIRST - BEFORE} records were deleted before" in caplog.text


def test_the_reset_of_the_client_settings_is_used(kafka: EmbeddedKafka, tmp_path: Path) -> None:
    app = CopyApplication(kafka, tmp_path)
    with app.run(consumer={"auto.offset.reset": "latest"}) as run:
        run.wait_until_running()
        wait_for(
            lambda: committed_lag(app.bootstrap, app.name, app.source) == 0,
            20,
            "the lost records are skipped",
        )
    assert app.copied() == list(range(BEFORE))


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
def test_missing_offsets_with_existing_state_are_warned_about(
    kafka: EmbeddedKafka, tmp_path: Path, caplog: pytest.LogCaptureFixture, guarantee: str
) -> None:
    """As after `offsets.retention.minutes`; neither at the first start nor at one after a commit.

    All records are counted twice, as in Kafka Streams, but with a warning.
    """
    name = unique("counting")
    source, bootstrap = f"{name}-in", kafka.bootstrap_servers
    places = BrokerTopics(bootstrap)
    places.create({source: 1})
    places.write([InputRecord(source, 0, "k", str(n), 1_000 + n) for n in range(BEFORE)])
    builder = StreamsBuilder()
    builder.stream(source, key=STRING, value=STRING).group_by_key().count(store="counts")
    topology = builder.build()

    def warnings() -> list[str]:
        config = thread_config(bootstrap, tmp_path, name, processing_guarantee=guarantee)
        with ThreadRun(topology, config) as run:
            run.wait_until_running()
            wait_for(
                lambda: committed_lag(bootstrap, name, source) == 0, 20, "everything is counted"
            )
        messages = [each.getMessage() for each in caplog.records]
        caplog.clear()
        return [text for text in messages if "has no committed offsets" in text]

    assert warnings() == []
    assert warnings() == []
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.delete_consumer_groups([name])[name].result(20)
    (text,) = warnings()
    assert f"Input: {source}-0 from its beginning." in text
    assert f"of {name}-counts-changelog-0)" in text
