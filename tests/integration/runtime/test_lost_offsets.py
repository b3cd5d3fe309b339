"""Committed offsets that their topic does not have any more: retention was faster."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from support.broker.records import Places, Sent
from support.broker.topics import committed_lag, read_all, unique
from support.running.thread_run import ThreadRun
from support.waiting import wait_for

from millstream import OffsetOutOfRangeError, StreamsBuilder
from millstream.record import TopicPartition
from millstream.serdes import STRING
from millstream.testing import EmbeddedKafka

BEFORE, WRITTEN, FIRST = 5, 15, 8


class Copying:
    """An application that copies a topic and was closed when it had copied some records, of which
    and of later ones the first were deleted since."""

    def __init__(self, kafka: EmbeddedKafka, folder: Path) -> None:
        self.name = unique("copying")
        self.source, self.target = f"{self.name}-in", f"{self.name}-out"
        self.bootstrap = kafka.bootstrap_servers
        self._folder = folder
        places = Places(self.bootstrap)
        places.create({self.source: 1, self.target: 1})
        places.write(self._records(range(BEFORE)))
        with self.run() as run:
            run.wait_until_running()
            wait_for(lambda: len(self.copied()) == BEFORE, 20, "all is copied")
        places.write(self._records(range(BEFORE, WRITTEN)))
        places.delete_records({TopicPartition(self.source, 0): FIRST})

    def _records(self, numbers: range) -> list[Sent]:
        return [Sent(self.source, 0, "k", str(n), 1_000 + n) for n in numbers]

    def run(self, offset_reset: Any = None, **settings: Any) -> ThreadRun:
        builder = StreamsBuilder()
        stream = builder.stream(self.source, key=STRING, value=STRING, offset_reset=offset_reset)
        stream.to(self.target)
        return ThreadRun(builder.build(), self.bootstrap, self._folder, self.name, **settings)

    def copied(self) -> list[int]:
        return [int(value or b"") for _, value in read_all(self.bootstrap, self.target)]


def test_lost_records_are_an_error_unless_somebody_chose_what_then(
    kafka: EmbeddedKafka, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """By default nobody did, though a new group begins at `earliest`. The error changes nothing:
    whoever chooses then goes on from there."""
    app = Copying(kafka, tmp_path)
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


def test_the_reset_of_the_clients_settings_is_a_choice_as_well(
    kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    app = Copying(kafka, tmp_path)
    with app.run(consumer={"auto.offset.reset": "latest"}) as run:
        run.wait_until_running()
        wait_for(lambda: committed_lag(app.bootstrap, app.name, app.source) == 0, 20, "it skipped")
    assert app.copied() == list(range(BEFORE))


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
def test_offsets_that_are_gone_while_state_is_kept_are_warned_of(
    kafka: EmbeddedKafka, tmp_path: Path, caplog: pytest.LogCaptureFixture, guarantee: str
) -> None:
    """As after `offsets.retention.minutes`; neither at the first start nor at one after a commit.

    All is counted twice, as in Kafka Streams, but no longer without a word.
    """
    name = unique("counting")
    source, bootstrap = f"{name}-in", kafka.bootstrap_servers
    places = Places(bootstrap)
    places.create({source: 1})
    places.write([Sent(source, 0, "k", str(n), 1_000 + n) for n in range(BEFORE)])
    builder = StreamsBuilder()
    builder.stream(source, key=STRING, value=STRING).group_by_key().count(store="counts")
    topology = builder.build()

    def warnings() -> list[str]:
        with ThreadRun(topology, bootstrap, tmp_path, name, processing_guarantee=guarantee) as run:
            run.wait_until_running()
            wait_for(lambda: committed_lag(bootstrap, name, source) == 0, 20, "all is counted")
        told = [each.getMessage() for each in caplog.records]
        caplog.clear()
        return [text for text in told if "has no committed offsets" in text]

    assert warnings() == []
    assert warnings() == []
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.delete_consumer_groups([name])[name].result(20)
    (text,) = warnings()
    assert f"Input: {source}-0 from its beginning." in text
    assert f"of {name}-counts-changelog-0)" in text
