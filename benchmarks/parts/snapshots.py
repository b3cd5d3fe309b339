"""The speed of reading a store as a DataFrame.

Compares `millstream.lake` with Spark's Kafka source and SQL. The changelog of a key-value store
with text keys and LONG values already exists; one record in five updates an earlier key. The
measured operation is an aggregate over all rows of the store. The SQL takes the latest value of
each key by its offset, and converts bytes to numbers.
"""

from __future__ import annotations

import argparse
import random
import statistics
import struct
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from harness.broker import Cluster
from harness.load import Writer, create_topic
from harness.measure import RunFailedError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RECORDS = 12_500_000
ROUNDS = 3
SMOKE_RECORDS = 50_000
SEED = 11
_STORE = "totals"
_OURS = "Millstream"
_SQL = "Kafka source and SQL"


@dataclass(frozen=True, slots=True)
class ReadResult:
    """A read of the whole store.

    Attributes:
        took_s: the time to create the DataFrame and compute the aggregate.
        rate: rows of the store per second.
        record_rate: records of the changelog per second.
    """

    program: str
    round: int
    took_s: float
    rate: float
    record_rate: float


class Snapshots:
    """The rounds on one broker, which all read the same changelog."""

    def __init__(self, options: argparse.Namespace, cluster: Cluster) -> None:
        self.records: int = options.records or (SMOKE_RECORDS if options.smoke else RECORDS)
        self.rounds: int = options.rounds or ROUNDS
        self.partitions: int = options.partitions
        self.cluster = cluster
        self.application_id = f"{cluster.prefix}-snapshots"
        self.topic = f"{self.application_id}-{_STORE}-changelog"
        self.results: list[ReadResult] = []

    def run(self) -> dict[str, Any]:
        """Run all rounds and print results; return the results to save."""
        from pyspark.sql import SparkSession

        from millstream.spark.sessions.connectors import session_settings

        rows, total = self._fill()
        print(
            f"snapshots: {rows:,} rows of {self.records:,} records on {self.partitions} "
            f"partitions\n\n{'round':>5}  {'program':24} {'rows/s':>11} {'records/s':>11} "
            f"{'took s':>7}",
            flush=True,
        )
        builder = SparkSession.builder.master("local[*]").appName("bench-snapshots")
        settings = {
            **session_settings(["kafka"]),
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": str(self.partitions),
        }
        for name, value in settings.items():
            builder = builder.config(name, value)
        spark = builder.getOrCreate()
        spark.sparkContext.setLogLevel("ERROR")
        try:
            programs = {_OURS: self._ours, _SQL: self._sql}
            # Warm up: load classes and start workers.
            for program in programs.values():
                _check(program(spark), (rows, total))
            for number in range(1, self.rounds + 1):
                for name in list(programs)[:: 1 if number % 2 else -1]:
                    self._run_once(name, programs[name], spark, number, (rows, total))
        finally:
            spark.stop()
        return {
            "records": self.records,
            "rows": rows,
            "partitions": self.partitions,
            "medians": self._medians(),
            "runs": [asdict(result) for result in self.results],
        }

    def _fill(self) -> tuple[int, int]:
        """Write the changelog; return the number of rows and the sum of their values."""
        create_topic(self.cluster.servers, self.topic, self.partitions)
        writer = Writer(self.cluster.servers, self.topic)
        keys = self.records * 4 // 5
        pack = struct.Struct(">q").pack
        values: list[int] = list(range(keys))
        chance = random.Random(SEED)
        for number in range(keys):
            writer.send(b"user-%09d" % number, pack(number))
            if number % 4 == 3:
                key = chance.randrange(number)
                values[key] += keys
                writer.send(b"user-%09d" % key, pack(values[key]))
        writer.flush()
        return keys, sum(values)

    def _ours(self, spark: SparkSession) -> tuple[int, int]:
        from millstream import StreamsConfig
        from millstream.lake import read_store
        from millstream.serdes import LONG, STRING

        config = StreamsConfig(
            application_id=self.application_id, bootstrap_servers=self.cluster.servers
        )
        frame = read_store(spark, config, _STORE, key=STRING, value=LONG)
        row = frame.selectExpr("count(key)", "sum(value)").first()
        assert row is not None
        return row[0], row[1]

    def _sql(self, spark: SparkSession) -> tuple[int, int]:
        records = (
            spark.read.format("kafka")
            .option("kafka.bootstrap.servers", self.cluster.servers)
            .option("subscribe", self.topic)
            .load()
        )
        latest = records.selectExpr("cast(key as string) as key", "value", "offset")
        latest = latest.groupBy("key").agg(_latest_value())
        number = "cast(conv(hex(value), 16, 10) as bigint)"
        row = latest.where("value is not null").selectExpr("count(key)", f"sum({number})").first()
        assert row is not None
        return row[0], row[1]

    def _run_once(
        self,
        name: str,
        program: Callable[[SparkSession], tuple[int, int]],
        spark: SparkSession,
        number: int,
        expected: tuple[int, int],
    ) -> None:
        began = time.perf_counter()
        _check(program(spark), expected)
        took_s = time.perf_counter() - began
        result = ReadResult(name, number, took_s, expected[0] / took_s, self.records / took_s)
        self.results.append(result)
        print(
            f"{number:>5}  {name:24} {result.rate:>11,.0f} {result.record_rate:>11,.0f} "
            f"{took_s:>7.1f}",
            flush=True,
        )

    def _medians(self) -> dict[str, float]:
        medians = {
            name: statistics.median(each.rate for each in self.results if each.program == name)
            for name in (_OURS, _SQL)
        }
        ratio = medians[_OURS] / medians[_SQL]
        print(f"\nmedians: {ratio:.2f} times as many rows/s as with Kafka source and SQL")
        for name, rate in medians.items():
            print(f"{'':>5}  {name:24} {rate:>11,.0f}")
        return medians


def _latest_value() -> Any:
    from pyspark.sql import functions

    return functions.max_by("value", "offset").alias("value")


def _check(found: tuple[int, int], expected: tuple[int, int]) -> None:
    if found != expected:
        raise RunFailedError(f"snapshots: rows and sum are {found}, expected {expected}")
