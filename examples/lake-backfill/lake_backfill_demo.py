"""The demo of `lake_backfill.py`: a broker, clicks, deleted records, and a check."""

from __future__ import annotations

import json
import struct
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TypeVar, cast

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession

from millstream import KafkaStreams, StreamsConfig, Topology
from millstream.lake import read_table
from millstream.testing import EmbeddedKafka

CLICKS, COUNTS, PARTITIONS = "clicks", "clicks-by-country", 2
FIRST, LATER = 600, 200
COUNTRIES = ("chile", "ghana", "japan")
TIMEOUT_S = 240.0

T = TypeVar("T")


class Demo:
    """Runs both applications, one after the other.

    Args:
        session: creates a Spark session.
        config: creates the settings from an application id, bootstrap servers and a folder.
        kept: creates the topology that writes clicks to a table.
        counted: creates the topology that counts clicks.
    """

    def __init__(
        self,
        session: Callable[[], AbstractContextManager[SparkSession]],
        config: Callable[[str, str, Path], StreamsConfig],
        kept: Callable[[Path], Topology],
        counted: Callable[[Path], Topology],
    ) -> None:
        self.session = session
        self.config = config
        self.kept = kept
        self.counted = counted
        self.servers = ""

    def run(self) -> int:
        """Run the demo; return 0 if every count is correct."""
        print("Starting an Apache Kafka broker and Spark …", flush=True)
        with (
            EmbeddedKafka() as kafka,
            tempfile.TemporaryDirectory(prefix="clickstream-") as folder,
            self.session() as spark,
        ):
            self.servers = kafka.bootstrap_servers
            kafka.create_topic(CLICKS, PARTITIONS)
            kafka.create_topic(COUNTS, PARTITIONS)
            lake, state = Path(folder, "lake", "clicks"), Path(folder, "state")
            self._write(0, FIRST)
            self._keep(spark, lake, state)
            self._delete_records()
            self._write(FIRST, FIRST + LATER)
            settings = self.config("clicks-count", self.servers, state)
            expected = Counter(COUNTRIES[number % 3] for number in range(FIRST + LATER))
            with KafkaStreams(self.counted(lake), settings, spark):
                found = self._wait(self._counts, lambda counts: counts == expected)
        print(f"counts: {dict(sorted(found.items()))}")
        ok = found == expected
        print("every click is counted once" if ok else f"WRONG: expected {dict(expected)}")
        return 0 if ok else 1

    def _keep(self, spark: SparkSession, lake: Path, state: Path) -> None:
        settings = self.config("clicks-keep", self.servers, state)
        with KafkaStreams(self.kept(lake), settings, spark):
            rows = self._wait(lambda: _rows(spark, lake), lambda count: count >= FIRST)
        print(f"{rows} clicks are in the table", flush=True)

    def _write(self, first: int, end: int) -> None:
        producer = Producer({"bootstrap.servers": self.servers, "partitioner": "murmur2_random"})
        for number in range(first, end):
            click = {"page": f"/{number % 40}", "country": COUNTRIES[number % 3]}
            time_ms = 1_700_000_000_000 + number * 1_000
            producer.produce(CLICKS, json.dumps(click), f"user-{number % 50}", timestamp=time_ms)
        producer.flush(60)

    def _delete_records(self) -> None:
        """Delete all clicks from the topic, as its retention would."""
        admin = AdminClient({"bootstrap.servers": self.servers})
        # An offset of -1 is the end of the partition.
        ends = [TopicPartition(CLICKS, number, -1) for number in range(PARTITIONS)]
        deleted = cast("dict[TopicPartition, Future[object]]", admin.delete_records(ends))
        for each in deleted.values():
            each.result()

    def _counts(self) -> Counter[str]:
        """Return the latest count of each country."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.servers,
                "group.id": "clickstream-demo",
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest",
            }
        )
        found: Counter[str] = Counter()
        consumer.assign([TopicPartition(COUNTS, number, 0) for number in range(PARTITIONS)])
        ended = 0
        while ended < PARTITIONS:
            message = consumer.poll(10)
            if message is None:
                break
            if message.error():
                ended += 1
                continue
            key, value = message.key(), message.value()
            assert isinstance(key, bytes)
            assert isinstance(value, bytes)
            found[key.decode()] = struct.unpack(">q", value)[0]
        consumer.close()
        return found

    def _wait(self, read: Callable[[], T], condition: Callable[[T], bool]) -> T:
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            found = read()
            if condition(found) or time.monotonic() > deadline:
                return found
            time.sleep(0.3)


def _rows(spark: SparkSession, lake: Path) -> int:
    # The folder exists before the first batch is written.
    exists = (lake / "metadata" / "version-hint.text").exists()
    return read_table(spark, str(lake), "iceberg").count() if exists else 0
