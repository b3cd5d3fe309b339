"""The cost of a DataFrame function in a topology.

It is compared with the same query between two topics.

Measures records per second, and the latency of single records. All variants run one after the other
in one Spark session on one broker: the query alone with Spark's connector, and the function in a
topology, at least once and exactly once. Both are also measured in Spark's real-time mode.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from harness.broker import Cluster
from harness.load import create_topic
from harness.measure import RunFailedError
from pyspark.sql import DataFrame, SparkSession

from millstream import (
    AT_LEAST_ONCE,
    EXACTLY_ONCE_V2,
    KafkaStreams,
    StreamsBuilder,
    StreamsConfig,
    Trigger,
)
from millstream.serdes import STRING
from millstream.spark.sessions.connectors import session_settings

RECORDS = 300_000
ROUNDS = 3
SMOKE_RECORDS = 5_000
PARTITIONS = 2
SINGLE = 100
SMOKE_SINGLE = 20
DEADLINE_S = 300.0

Running = Callable[[str, SparkSession, str, Path], AbstractContextManager[None]]


def loud(rows: DataFrame) -> DataFrame:
    """Return the query, which is the same in all variants."""
    return rows.selectExpr("key", "upper(value) AS value", "timestamp")


@dataclass(frozen=True, slots=True)
class Run:
    """The result of a variant in a round.

    Attributes:
        way: the name of the variant.
        rate: records per second, from the first record written to the last record read.
        p50_ms: the median latency of single records, from writing to reading.
        p99_ms: the 99th percentile.
    """

    way: str
    round: int
    rate: float
    p50_ms: float
    p99_ms: float


class VariantTopics:
    """The topics `<name>-in` and `<name>-out`, with a producer and a consumer."""

    def __init__(self, servers: str, name: str) -> None:
        self._servers = servers
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
            create_topic(servers, topic, PARTITIONS)
        self._reader.assign([TopicPartition(f"{name}-out", n, 0) for n in range(PARTITIONS)])

    def write(self, count: int) -> None:
        """Write records and wait until they are acknowledged."""
        for number in range(count):
            self._producer.produce(f"{self._name}-in", f"value-{number}" * 5, f"key-{number}")
            if number % 10_000 == 0:
                self._producer.flush()
        self._producer.flush()

    def read(self, count: int) -> None:
        """Wait for this number of output records."""
        left, deadline = count, time.monotonic() + DEADLINE_S
        while left > 0:
            left -= len(self._reader.consume(min(left, 10_000), 0.01))
            if time.monotonic() > deadline:
                raise RunFailedError(f"{self._name}: {left} of {count} results are missing")

    def measure(self, records: int, single: int) -> tuple[float, list[float]]:
        """Measure records per second, and latencies of single records in ms."""
        self.write(1_000)
        self.read(1_000)
        began = time.monotonic()
        self.write(records)
        self.read(records)
        rate = records / (time.monotonic() - began)
        latencies = []
        for _ in range(single):
            began = time.monotonic()
            self.write(1)
            self.read(1)
            latencies.append((time.monotonic() - began) * 1_000)
        return rate, latencies


def alone(*, in_real_time: bool) -> Running:
    """Return a context manager that runs the query without Millstream."""

    @contextmanager
    def running(servers: str, spark: SparkSession, name: str, folder: Path) -> Iterator[None]:
        reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", servers)
        raw = reader.option("subscribe", f"{name}-in").option("startingOffsets", "earliest").load()
        text = raw.selectExpr(
            "CAST(key AS STRING) AS key", "CAST(value AS STRING) AS value", "timestamp"
        )
        writer: Any = loud(text).writeStream.format("kafka").option("topic", f"{name}-out")
        writer = writer.option("kafka.bootstrap.servers", servers)
        if in_real_time:
            writer = writer.outputMode("update").trigger(realTime="5 seconds")
        query = writer.option("checkpointLocation", f"{folder}/q").start()
        try:
            yield
        finally:
            query.stop()

    return running


def in_topology(guarantee: str, trigger: Trigger) -> Running:
    """Return a context manager that runs the query as a function in a topology."""

    @contextmanager
    def running(servers: str, spark: SparkSession, name: str, folder: Path) -> Iterator[None]:
        builder = StreamsBuilder()
        words = builder.stream(f"{name}-in", key=STRING, value=STRING)
        words.transform_dataframe(loud, name="loud", trigger=trigger).to(f"{name}-out")
        config = StreamsConfig(
            application_id=name,
            bootstrap_servers=servers,
            state_dir=str(folder),
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


BATCHES = Trigger.processing_time()
VARIANTS: dict[str, Running] = {
    "query alone": alone(in_real_time=False),
    "topology, at least once": in_topology(AT_LEAST_ONCE, BATCHES),
    "topology, exactly once": in_topology(EXACTLY_ONCE_V2, BATCHES),
    "query, real time": alone(in_real_time=True),
    "topology, real time": in_topology(AT_LEAST_ONCE, Trigger.real_time()),
}
#: The query alone with the same trigger, by variant.
REFERENCE = {way: "query, real time" if "real time" in way else "query alone" for way in VARIANTS}


class DataFrameRounds:
    """The rounds, in one session on one broker."""

    def __init__(self, options: argparse.Namespace, cluster: Cluster, folder: Path) -> None:
        self._records: int = options.records or (SMOKE_RECORDS if options.smoke else RECORDS)
        self._single = SMOKE_SINGLE if options.smoke else SINGLE
        self._rounds: int = options.rounds or ROUNDS
        self._cluster = cluster
        self._folder = folder / "dataframes"
        self._runs: list[Run] = []

    def run(self) -> dict[str, Any]:
        """Run all rounds and print results; return the results to save."""
        print(
            f"dataframes: {self._records:,} records on {PARTITIONS} partitions\n\n"
            f"{'round':>5}  {'variant':24} {'records/s':>11} {'p50 ms':>8} {'p99 ms':>8}",
            flush=True,
        )
        builder = SparkSession.builder.master("local[6]").config("spark.ui.enabled", "false")
        builder = builder.config("spark.ui.showConsoleProgress", "false")
        for setting, value in session_settings(["kafka"]).items():
            builder = builder.config(setting, value)
        spark = builder.getOrCreate()
        spark.sparkContext.setLogLevel("ERROR")
        try:
            for number in range(1, self._rounds + 1):
                for way in list(VARIANTS)[:: 1 if number % 2 else -1]:
                    self._run_once(spark, way, number)
        finally:
            spark.stop()
        medians = self._medians()
        return {
            "records": self._records,
            "partitions": PARTITIONS,
            "medians": medians,
            "runs": [asdict(run) for run in self._runs],
        }

    def _run_once(self, spark: SparkSession, way: str, number: int) -> None:
        name = f"{self._cluster.prefix}-{way.replace(', ', '-').replace(' ', '-')}-{number}"
        topics = VariantTopics(self._cluster.servers, name)
        with VARIANTS[way](self._cluster.servers, spark, name, self._folder / name):
            rate, latencies = topics.measure(self._records, self._single)
        cuts = statistics.quantiles(latencies, n=100, method="inclusive")
        run = Run(way, number, rate, cuts[49], cuts[98])
        self._runs.append(run)
        print(
            f"{number:>5}  {way:24} {rate:11,.0f} {run.p50_ms:8,.1f} {run.p99_ms:8,.1f}",
            flush=True,
        )

    def _medians(self) -> dict[str, dict[str, float]]:
        """Print and return the medians of each variant.

        The ratio and the added latency refer to the query alone with the same trigger.
        """
        medians: dict[str, dict[str, float]] = {}
        print(
            f"\n{'median':>5}  {'variant':24} {'records/s':>11} {'ratio':>6} "
            f"{'p50 ms':>8} {'added':>8} {'p99 ms':>8} {'added':>8}"
        )
        for way in VARIANTS:
            runs = [run for run in self._runs if run.way == way]
            medians[way] = {
                name: statistics.median(getattr(run, name) for run in runs)
                for name in ("rate", "p50_ms", "p99_ms")
            }
        for way, found in medians.items():
            query = medians[REFERENCE[way]]
            latencies = " ".join(
                f"{found[name]:8,.1f} {found[name] - query[name]:8,.1f}"
                for name in ("p50_ms", "p99_ms")
            )
            ratio = found["rate"] / query["rate"]
            print(f"{'':6}  {way:24} {found['rate']:11,.0f} {ratio:6.2f} {latencies}", flush=True)
        return medians
