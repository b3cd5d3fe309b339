"""What `map_batches_numpy.py --demo` adds: a broker, records, and a check of every score."""

from __future__ import annotations

import struct
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from datetime import timedelta
from typing import Any

import numpy as np
from confluent_kafka import Consumer, Producer, TopicPartition

from millstream import KafkaStreams, StreamsConfig, Topology
from millstream.testing import EmbeddedKafka

COUNT = 50_000
DEADLINE_S = 60.0
Way = Callable[[str, str], Topology]


class Demo:
    """Scores the same records in several ways on local Spark, against a broker of its own.

    Args:
        ways: each under a name for the screen, of the names of the topics; of the last one is told
            how many times as fast it is as the first.
        features: how many a record has.
        scores: the scores of all rows at once, to compare with.
    """

    def __init__(
        self, ways: Mapping[str, Way], features: int, scores: Callable[[Any], Any]
    ) -> None:
        self._ways = ways
        self._features = features
        self._scores = scores

    def run(self) -> int:
        """0 if all ways give the scores that numpy gives for all records at once."""
        dice = np.random.default_rng(8)
        features = dice.normal(size=(COUNT, self._features)).astype(np.float32)
        expected = self._scores(features)
        print("Starting an Apache Kafka broker and Spark …", flush=True)
        with EmbeddedKafka() as kafka:
            kafka.create_topic("features", 1)
            send(kafka.bootstrap_servers, features)
            rates: list[float] = []
            for name, make in self._ways.items():
                found, rate = run(kafka, name.replace(" ", "-"), make)
                if len(found) != COUNT or not np.allclose(found, expected, atol=1e-5):
                    print(f"WRONG: {len(found)} of {COUNT} scores, or others than expected")
                    return 1
                print(f"{name}: {rate:8,.0f} records a second", flush=True)
                rates.append(rate)
        print(f"{rates[-1] / rates[0]:.1f} times as fast in batches; every score is right")
        return 0


def send(bootstrap_servers: str, features: Any) -> None:
    """Write the records, numbered."""
    # An idempotent one, as that of a stream thread: a new broker lets the first such one wait.
    producer = Producer(
        {"bootstrap.servers": bootstrap_servers, "linger.ms": 5, "enable.idempotence": True}
    )
    for number, row in enumerate(features):
        producer.produce("features", row.tobytes(), str(number).encode())
        if number % 10_000 == 0:
            producer.flush()
    producer.flush()


def run(kafka: EmbeddedKafka, name: str, make: Way) -> tuple[list[float], float]:
    """The scores in the order of the records, and how many a second there were."""
    kafka.create_topic(name, 1)
    with tempfile.TemporaryDirectory(prefix="scores-") as folder:
        config = StreamsConfig(
            application_id=f"score-{name}",
            bootstrap_servers=kafka.bootstrap_servers,
            state_dir=folder,
            commit_interval_ms=1_000,
        )
        with closing(Scores(kafka.bootstrap_servers, name)) as scored:
            streams = KafkaStreams(make("features", name), config)
            streams.start()
            try:
                return scored.take()
            finally:
                streams.close(timedelta(seconds=30))


class Scores:
    """Reads the output topic."""

    def __init__(self, bootstrap_servers: str, topic: str) -> None:
        self._consumer = Consumer(
            {"bootstrap.servers": bootstrap_servers, "group.id": "results", "log_level": 3}
        )
        self._consumer.assign([TopicPartition(topic, 0, 0)])

    def take(self) -> tuple[list[float], float]:
        """All scores, or what there is when it takes too long; and how many came a second."""
        found: list[float] = []
        began = deadline = time.monotonic() + DEADLINE_S
        before = 0
        while len(found) < COUNT and time.monotonic() < deadline:
            records = self._consumer.consume(5_000, 0.05)
            found += [struct.unpack(">d", record.value() or b"")[0] for record in records]
            if records and not before:
                # The clock starts with the first scores, so that nobody's start is measured.
                began, before = time.monotonic(), len(found)
        return found, (len(found) - before) / (time.monotonic() - began)

    def close(self) -> None:
        self._consumer.close()
