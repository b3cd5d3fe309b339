"""What the cut through a DataFrame function costs: rows a second through the topology, and the same
query alone between two topics; and how much later a single record comes out.

    python benchmarks/dataframes.py
    python benchmarks/dataframes.py --records 20000

All three ways run one after the other in one Spark session on one broker: the query alone reads and
writes with Spark's connector, the cut at least once, the cut exactly once.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

from confluent_kafka import Consumer, Producer, TopicPartition
from pyspark.sql import DataFrame, SparkSession

from millstream import AT_LEAST_ONCE, EXACTLY_ONCE_V2, KafkaStreams, StreamsBuilder, StreamsConfig
from millstream.serdes import STRING
from millstream.spark.connectors import session_settings
from millstream.testing import EmbeddedKafka

RECORDS = 300_000
PARTITIONS = 2
SINGLE = 20
DEADLINE_S = 300.0


def loud(rows: DataFrame) -> DataFrame:
    """What all ways compute."""
    return rows.selectExpr("key", "upper(value) AS value", "timestamp")


class Way:
    """One way from `<name>-in` to `<name>-out`.

    Args:
        kafka: the broker.
        name: of the way.
    """

    def __init__(self, kafka: EmbeddedKafka, name: str) -> None:
        self._servers = kafka.bootstrap_servers
        self._name = name
        self._producer = Producer({"bootstrap.servers": self._servers, "linger.ms": 5})
        self._reader = Consumer(
            {
                "bootstrap.servers": self._servers,
                "group.id": name,
                "fetch.wait.max.ms": 5,
                "isolation.level": "read_committed",
            }
        )
        for topic in (f"{name}-in", f"{name}-out"):
            kafka.create_topic(topic, PARTITIONS)
        self._reader.assign([TopicPartition(f"{name}-out", n, 0) for n in range(PARTITIONS)])

    def write(self, count: int) -> None:
        """Write records, acknowledged."""
        for number in range(count):
            self._producer.produce(f"{self._name}-in", f"value-{number}" * 5, f"key-{number}")
            if number % 10_000 == 0:
                self._producer.flush()
        self._producer.flush()

    def read(self, count: int) -> None:
        """Wait until that many have come out."""
        left, deadline = count, time.monotonic() + DEADLINE_S
        while left > 0:
            left -= len(self._reader.consume(min(left, 10_000), 0.01))
            if time.monotonic() > deadline:
                raise SystemExit(f"{self._name}: {left} of {count} records did not come out")

    def measure(self, records: int) -> tuple[float, float]:
        """Records a second, and the median of how many milliseconds a single one takes."""
        self.write(1_000)
        self.read(1_000)
        began = time.monotonic()
        self.write(records)
        self.read(records)
        rate = records / (time.monotonic() - began)
        latencies = []
        for _ in range(SINGLE):
            began = time.monotonic()
            self.write(1)
            self.read(1)
            latencies.append((time.monotonic() - began) * 1_000)
        return rate, statistics.median(latencies)


@contextmanager
def alone(kafka: EmbeddedKafka, spark: SparkSession, name: str, folder: str) -> Iterator[None]:
    """The query between the two topics, without Millstream."""
    servers = kafka.bootstrap_servers
    reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", servers)
    raw = reader.option("subscribe", f"{name}-in").option("startingOffsets", "earliest").load()
    text = raw.selectExpr(
        "CAST(key AS STRING) AS key", "CAST(value AS STRING) AS value", "timestamp"
    )
    writer = loud(text).writeStream.format("kafka").option("kafka.bootstrap.servers", servers)
    query = (
        writer.option("topic", f"{name}-out").option("checkpointLocation", f"{folder}/q").start()
    )
    try:
        yield
    finally:
        query.stop()


def cut(guarantee: str) -> Callable[..., object]:
    """The function in the middle of a topology, under a guarantee."""

    @contextmanager
    def running(
        kafka: EmbeddedKafka, spark: SparkSession, name: str, folder: str
    ) -> Iterator[None]:
        builder = StreamsBuilder()
        words = builder.stream(f"{name}-in", key=STRING, value=STRING)
        words.transform_dataframe(loud, name="loud").to(f"{name}-out")
        config = StreamsConfig(
            application_id=name,
            bootstrap_servers=kafka.bootstrap_servers,
            state_dir=folder,
            processing_guarantee=guarantee,
            num_stream_threads=2,
            commit_interval_ms=100,
        )
        streams = KafkaStreams(builder.build(), config, spark)
        streams.start()
        try:
            yield
        finally:
            streams.close(timedelta(seconds=60))

    return running


def main() -> int:
    parser = argparse.ArgumentParser(description="Measures the cut through a DataFrame function.")
    parser.add_argument("--records", type=int, default=RECORDS)
    options = parser.parse_args()
    builder = SparkSession.builder.master("local[6]").config("spark.ui.enabled", "false")
    for setting, value in session_settings(["kafka"]).items():
        builder = builder.config(setting, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    ways = {
        "query-alone": alone,
        "cut-at-least-once": cut(AT_LEAST_ONCE),
        "cut-exactly-once": cut(EXACTLY_ONCE_V2),
    }
    first = 0.0
    with EmbeddedKafka() as kafka:
        for name, make in ways.items():
            way = Way(kafka, name)
            with tempfile.TemporaryDirectory() as folder, make(kafka, spark, name, folder):  # type: ignore[attr-defined]
                rate, latency_ms = way.measure(options.records)
            first = first or rate
            print(
                f"{name:>18}: {rate:9,.0f} records/s, {rate / first:4.2f} of the query alone; "
                f"a single record takes {latency_ms:6,.0f} ms",
                flush=True,
            )
    spark.stop()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
