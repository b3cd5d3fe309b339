"""Asks a small neural network about every record, with numpy, many records at a time.

    python examples/map_batches_numpy.py --demo
    python examples/map_batches_numpy.py --bootstrap-servers localhost:9092

A value is 64 floats of 32 bits; the network makes a score of them. numpy needs as long for one
record as for a hundred, so `map_batches` hands it many, and numpy sees the memory of the Arrow
column without a copy. With --demo it needs no Kafka: it brings a broker along, scores records one
by one and in batches, compares the scores, and tells the speed-up.
"""

from __future__ import annotations

import argparse
import struct
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from typing import Any

import numpy as np
import pyarrow as pa
from confluent_kafka import Consumer, Producer, TopicPartition

from millstream import KafkaStreams, StreamsBuilder, StreamsConfig, Topology
from millstream.serdes import BYTES, DOUBLE, STRING
from millstream.testing import EmbeddedKafka

FEATURES = 64
COUNT = 50_000
DEADLINE_S = 60.0

# In place of a network that was trained: what it expects of features, its layers, and its output.
_dice = np.random.default_rng(7)
MEAN, SPREAD = _dice.normal(size=(2, FEATURES)).astype(np.float32) ** 2 + 0.5
LAYERS = _dice.normal(scale=FEATURES**-0.5, size=(3, FEATURES, FEATURES)).astype(np.float32)
OUTPUT = _dice.normal(scale=FEATURES**-0.5, size=FEATURES).astype(np.float32)


def scores(features: Any) -> Any:
    """The scores of rows of features."""
    signals = (features - MEAN) / SPREAD
    for layer in LAYERS:
        signals = np.maximum(signals @ layer, 0)
    return 1 / (1 + np.exp(-(signals @ OUTPUT)))


def scores_of_batch(batch: pa.RecordBatch) -> Any:
    """The scores of a batch with the features in its one column."""
    memory = batch["value"].buffers()[1]
    return scores(np.frombuffer(memory, dtype=np.float32).reshape(batch.num_rows, FEATURES))


def score_of_one(value: bytes) -> float:
    """The score of one record."""
    return float(scores(np.frombuffer(value, dtype=np.float32)))


def in_batches(input_topic: str = "features", output_topic: str = "scores") -> Topology:
    """Features in, scores out."""
    builder = StreamsBuilder()
    (
        builder.stream(input_topic, key=STRING, value=BYTES)
        # All of one length, so that they lie one behind the other.
        .map_batches(scores_of_batch, schema=pa.binary(4 * FEATURES), max_records=2_000)
        .to(output_topic, key=STRING, value=DOUBLE)
    )
    return builder.build()


def one_by_one(input_topic: str, output_topic: str) -> Topology:
    """The same without batches."""
    builder = StreamsBuilder()
    features = builder.stream(input_topic, key=STRING, value=BYTES)
    features.map_values(score_of_one).to(output_topic, key=STRING, value=DOUBLE)
    return builder.build()


def demo() -> int:
    """0 if both ways give the scores that numpy gives for all records at once."""
    features = np.random.default_rng(8).normal(size=(COUNT, FEATURES)).astype(np.float32)
    expected = scores(features)
    print("Starting an Apache Kafka broker and Spark …", flush=True)
    with EmbeddedKafka() as kafka:
        kafka.create_topic("features", 1)
        producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "linger.ms": 5})
        for number, row in enumerate(features):
            producer.produce("features", row.tobytes(), str(number).encode())
            if number % 10_000 == 0:
                producer.flush()
        producer.flush()
        # Else it would report the broker's end as a lost connection.
        del producer
        rates: list[float] = []
        for name, make in (("one by one", one_by_one), ("in batches", in_batches)):
            found, rate = run(kafka, name.replace(" ", "-"), make)
            if len(found) != COUNT or not np.allclose(found, expected, atol=1e-5):
                print(f"WRONG: {len(found)} of {COUNT} scores, or others than expected")
                return 1
            print(f"{name}: {rate:8,.0f} records a second", flush=True)
            rates.append(rate)
    print(f"{rates[1] / rates[0]:.1f} times as fast in batches; every score is right")
    return 0


def run(
    kafka: EmbeddedKafka, name: str, make: Callable[[str, str], Topology]
) -> tuple[list[float], float]:
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


def main() -> int:
    parser = argparse.ArgumentParser(description="Scores records with numpy.")
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--bootstrap-servers", help="your broker; both topics must exist on it")
    where.add_argument("--demo", action="store_true", help="bring broker and records along")
    options = parser.parse_args()
    if options.demo:
        return demo()
    config = StreamsConfig(
        application_id="map-batches-numpy", bootstrap_servers=options.bootstrap_servers
    )
    KafkaStreams(in_batches(), config).run()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
