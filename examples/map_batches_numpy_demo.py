"""The demo of `map_batches_numpy.py`: a broker, records, and a check."""

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

COUNT, WARM = 50_000, 1_000
DEADLINE_S = 60.0
TopologyFactory = Callable[[str, str], Topology]


class Demo:
    """Scores the same records with several topologies.

    They run on local Spark and an embedded broker.

    Args:
        topologies: functions that create a topology from the names of its topics, by name. The demo
            compares the speed of the last topology with that of the first.
        features: the number of features of a record.
        scores: computes the expected scores of all rows.
    """

    def __init__(
        self,
        topologies: Mapping[str, TopologyFactory],
        features: int,
        scores: Callable[[Any], Any],
    ) -> None:
        self._topologies = topologies
        self._features = features
        self._scores = scores

    def run(self) -> int:
        """Run the demo; return 0 if all topologies compute the expected scores."""
        rng = np.random.default_rng(8)
        features = rng.normal(size=(COUNT, self._features)).astype(np.float32)
        expected = self._scores(features)
        print("Starting an Apache Kafka broker and Spark …", flush=True)
        with EmbeddedKafka() as kafka:
            rates: list[float] = []
            for name, make in self._topologies.items():
                found, rate = run(kafka, name.replace(" ", "-"), make, features)
                if len(found) != COUNT or not np.allclose(found, expected, atol=1e-5):
                    print(f"WRONG: {len(found)} of {COUNT} scores, or incorrect ones")
                    return 1
                print(f"{name}: {rate:8,.0f} records per second", flush=True)
                rates.append(rate)
        print(f"{rates[-1] / rates[0]:.1f} times as fast in batches; every score is correct")
        return 0


def send(bootstrap_servers: str, topic: str, features: Any) -> None:
    """Write the records with consecutive numbers as keys."""
    producer = Producer({"bootstrap.servers": bootstrap_servers, "linger.ms": 5})
    for number, row in enumerate(features):
        producer.produce(topic, row.tobytes(), str(number).encode())
        if number % 10_000 == 0:
            producer.flush()
    producer.flush()


def run(
    kafka: EmbeddedKafka, name: str, make: TopologyFactory, features: Any
) -> tuple[list[float], float]:
    """Return the scores in the order of the records, and the scores per second."""
    inputs, outputs = f"features-{name}", f"scores-{name}"
    for topic in (inputs, outputs):
        kafka.create_topic(topic, 1)
    with tempfile.TemporaryDirectory(prefix="scores-") as folder:
        config = StreamsConfig(
            application_id=f"score-{name}",
            bootstrap_servers=kafka.bootstrap_servers,
            state_dir=folder,
            commit_interval_ms=1_000,
        )
        with closing(Scores(kafka.bootstrap_servers, outputs)) as scored:
            streams = KafkaStreams(make(inputs, outputs), config)
            streams.start()
            try:
                streams.wait_for_state("RUNNING", timedelta(seconds=DEADLINE_S))
                # The first records warm up the producer and numpy, and are not measured.
                send(kafka.bootstrap_servers, inputs, features[:WARM])
                found = scored.take(WARM)
                began = time.monotonic()
                send(kafka.bootstrap_servers, inputs, features[WARM:])
                found += scored.take(COUNT - WARM)
                return found, (COUNT - WARM) / (time.monotonic() - began)
            finally:
                streams.close(timedelta(seconds=30))


class Scores:
    """Reads the output topic."""

    def __init__(self, bootstrap_servers: str, topic: str) -> None:
        self._consumer = Consumer(
            {"bootstrap.servers": bootstrap_servers, "group.id": "results", "log_level": 3}
        )
        self._consumer.assign([TopicPartition(topic, 0, 0)])

    def take(self, count: int) -> list[float]:
        """Read the next `count` scores; fewer after a timeout."""
        found: list[float] = []
        deadline = time.monotonic() + DEADLINE_S
        while len(found) < count and time.monotonic() < deadline:
            records = self._consumer.consume(5_000, 0.05)
            found += [struct.unpack(">d", record.value() or b"")[0] for record in records]
        return found

    def close(self) -> None:
        self._consumer.close()
