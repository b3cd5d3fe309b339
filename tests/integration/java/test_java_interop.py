"""An application moves from Java to Python and back: same id, topics, changelogs and offsets.

Each side continues where the other one stopped, restores its stores from changelogs of the other
one, and has the same store content: that of the test driver after all input.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from conformance.oracle.process import OracleUnavailable
from pyspark.sql import SparkSession
from support.broker.restore_counts import RestoreCounts
from support.broker.topics import BrokerTopics, InputRecord, committed_lag, latest, read_all, unique
from support.machine.java_streams import interop
from support.running.topologies.interop import AGGREGATED, WRITTEN, topology
from support.waiting import wait_for

from millstream import KafkaStreams, StreamsConfig
from millstream.serdes import LONG, STRING
from millstream.testing import EmbeddedKafka, TopologyTestDriver

PARTITIONS = 2
KEYS = [f"key{n}" for n in range(12)]
WORDS = ["mill", "stream", "water", "wheel", "delete"]

#: A key, a value and a timestamp.
Event = tuple[str, str, int]


class Moving:
    """One application on its own topics, its input so far, and the expected results."""

    def __init__(self, kafka: EmbeddedKafka, folder: Path) -> None:
        self.bootstrap = kafka.bootstrap_servers
        self.id = unique("moving")
        self.folder = folder
        self.records, self.answers, self.words = (
            f"{self.id}-{name}" for name in ("records", "answers", "counted")
        )
        for topic in (self.records, self.answers, self.words):
            kafka.create_topic(topic, PARTITIONS)
        # Recent, or the broker would delete its records by age. All input is within five minutes, a
        # segment of the versioned store: after a restart Java does not find versions in other
        # segments until it writes to them.
        self.start_ms = int(time.time() - 1_800) // 300 * 300_000
        self.now_ms = self.start_ms
        self.random = random.Random(7)
        self.inputs: list[list[Event]] = [[] for _ in range(PARTITIONS)]
        self.written = [0] * PARTITIONS
        self.questions = 0

    def write(self, count: int) -> None:
        """Write more input: keys stay in their partition, time advances."""
        for _ in range(count):
            self.now_ms += self.random.randrange(0, 400)
            number = self.random.randrange(len(KEYS))
            partition = number % PARTITIONS
            event = (KEYS[number], self.random.choice(WORDS), self.now_ms)
            self.inputs[partition].append(event)
        self._produce()

    def query_contents(self) -> list[list[str]]:
        """The content of each partition's stores, queried from the running application."""
        self.questions += 1
        question = f"{self.questions}@{self.start_ms}"
        for events in self.inputs:
            events.append(("?", question, self.now_ms))
        self._produce()

        def complete() -> list[str] | None:
            answers = read_all(self.bootstrap, self.answers)
            contents = [
                (value or b"").decode() for key, value in answers if key == question.encode()
            ]
            return contents if len(contents) == PARTITIONS else None

        answers = wait_for(complete, 120, "all partitions have answered")
        return sorted(sorted(answer.split("\n")) for answer in answers)

    def expected(self) -> list[list[str]]:
        """The content of each partition's stores in the test driver, after all input so far."""
        contents = []
        for events in self.inputs:
            with TopologyTestDriver(topology("records", "answers", "words")) as driver:
                records = driver.create_input_topic("records", key=STRING, value=STRING)
                for key, value, timestamp in events:
                    records.pipe_input(key, value, timestamp)
                answers = driver.create_output_topic("answers", key=STRING, value=STRING)
                content = answers.read_key_values()[-1][1]
                assert content is not None
                contents.append(sorted(content.split("\n")))
        return sorted(contents)

    def counts_words(self) -> bool:
        """Whether every word's count is exact, and all input is committed."""
        expected = Counter(
            value for events in self.inputs for key, value, _ in events if key != "?"
        )
        found = {
            STRING.deserialize("", key): LONG.deserialize("", value)
            for key, value in latest(self.bootstrap, self.words).items()
        }
        return found == expected and not committed_lag(self.bootstrap, self.id, self.records)

    def check_contents(self) -> None:
        """Check the store content of the running application."""
        for found, expected in zip(self.query_contents(), self.expected(), strict=True):
            # Shown as differences, because complete contents are too long to read.
            assert (sorted(set(found) - set(expected)), sorted(set(expected) - set(found))) == (
                [],
                [],
            )
            assert found == expected

    def check(self) -> None:
        """Check the store content and the words' counts."""
        self.check_contents()
        wait_for(self.counts_words, 60, "every word is counted exactly, and committed")

    def _produce(self) -> None:
        BrokerTopics(self.bootstrap).write(
            InputRecord(self.records, partition, *event)
            for partition, events in enumerate(self.inputs)
            for event in events[self.written[partition] :]
        )
        self.written = list(map(len, self.inputs))

    # --- the two applications --------------------------------------------------------------------

    @contextmanager
    def running_in_java(self, state: str) -> Iterator[Any]:
        settings = {
            "application.id": self.id,
            "bootstrap.servers": self.bootstrap,
            "state.dir": str(self.folder / state),
            "commit.interval.ms": "200",
            "replication.factor": "1",
            "consumer.auto.offset.reset": "earliest",
            # It does not leave the group when it ends, so the next one waits for the session
            # timeout.
            "consumer.session.timeout.ms": "6000",
        }
        pairs = [f"{key}={value}" for key, value in settings.items()]
        try:
            arguments = [self.records, self.answers, self.words, *pairs]
            with interop(*arguments) as program:
                yield program
        except OracleUnavailable as why:
            pytest.skip(str(why))

    @contextmanager
    def running_in_python(self, state: str, spark: SparkSession) -> Iterator[Any]:
        config = StreamsConfig(
            application_id=self.id,
            bootstrap_servers=self.bootstrap,
            state_dir=str(self.folder / state),
            commit_interval_ms=200,
        )
        streams = KafkaStreams(topology(self.records, self.answers, self.words), config, spark)
        restored = RestoreCounts()
        streams.set_global_state_restore_listener(restored)
        streams.start()
        try:
            streams.wait_for_state("RUNNING", timedelta(seconds=90))
            yield restored.by_store
        finally:
            assert streams.close(timedelta(seconds=30))


@pytest.mark.slow
def test_java_continues_a_python_application(
    kafka: EmbeddedKafka, spark: SparkSession, tmp_path: Path
) -> None:
    """Java restores every kind of store from Python's changelogs; then Python continues."""
    app = Moving(kafka, tmp_path)
    app.write(400)
    with app.running_in_python("python", spark):
        app.check()
    with app.running_in_java("java") as program:
        app.check_contents()
        totals = program.restored()
        assert all(totals[store] > 0 for store in (*WRITTEN, *AGGREGATED, "words"))
        app.write(300)
        app.check()
    app.write(200)
    with app.running_in_python("python", spark) as restored:
        app.check()
        # Only records that Java had logged in the meantime were missing here.
        assert 0 < restored["kv"] < 400


def test_python_continues_a_java_application(
    kafka: EmbeddedKafka, spark: SparkSession, tmp_path: Path
) -> None:
    """Offsets, changelogs and internal topics of a Java application work in Python, and then in
    Java again."""
    app = Moving(kafka, tmp_path)
    app.write(400)
    with app.running_in_java("java"):
        app.check()
    with app.running_in_python("python", spark) as restored:
        app.check_contents()
        assert all(restored[store] > 0 for store in (*WRITTEN, *AGGREGATED, "words"))
        app.write(300)
        app.check()
    app.write(200)
    with app.running_in_java("java"):
        app.check()
