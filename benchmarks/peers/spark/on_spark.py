"""The jobs on Spark Structured Streaming, with micro-batches.

A local Spark runs one task at a time.

Spark keeps its offsets in a checkpoint. For the harness, the offsets of completed batches are also
committed for a consumer group when Spark reports its progress.
"""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import marks
from arguments import Arguments, parse
from computations import PASS_ABOVE, WINDOW_MS
from confluent_kafka import Consumer, TopicPartition
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from millstream.spark.sessions.connectors import session_settings

EVENT = "id BIGINT, user STRING, amount DOUBLE, kind STRING"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
SHUFFLE_PARTITIONS = 4


def _event() -> Column:
    return f.from_json(f.col("value").cast("string"), EVENT)


def _cents(amount: str) -> Column:
    return (f.col(amount) * 120).cast("bigint")


def _long(number: Column) -> Column:
    """Return a number as eight big-endian bytes."""
    return f.unhex(f.lpad(f.hex(number), 16, "0"))


def _stateless(records: DataFrame) -> DataFrame:
    events = records.select("key", _event().alias("event")).select("key", "event.*")
    bills = events.where(f.col("amount") > PASS_ABOVE).withColumn("cents", _cents("amount"))
    bill = f.struct("id", "user", "amount", "kind", "cents")
    return bills.select("key", f.to_json(bill).alias("value"))


def _count(records: DataFrame) -> DataFrame:
    return _counted(records.select("key"))


def _sum(records: DataFrame) -> DataFrame:
    events = records.select("key", _event().alias("event")).select("key", "event.amount")
    sums = events.groupBy("key").agg(f.sum(_cents("amount")).alias("total"))
    return sums.select("key", _long(f.col("total")).alias("value"))


def _rekeyed(records: DataFrame) -> DataFrame:
    return _counted(records.select(_event()["user"].alias("key")))


def _window(records: DataFrame) -> DataFrame:
    events = records.select("key", "timestamp", _event().alias("event"))
    events = events.select("key", "timestamp", "event.amount")
    minute = f.window("timestamp", f"{WINDOW_MS} milliseconds")
    sums = events.groupBy("key", minute).agg(f.sum(_cents("amount")).alias("total"))
    start = f.unix_millis(f.col("window.start"))
    return sums.select(
        f.concat("key", _long(start)).alias("key"), _long(f.col("total")).alias("value")
    )


def _wordcount(records: DataFrame) -> DataFrame:
    words = f.explode(f.split(f.col("value").cast("string"), " "))
    return _counted(records.select(words.alias("key")))


def _counted(keys: DataFrame) -> DataFrame:
    return keys.groupBy("key").count().select("key", _long(f.col("count")).alias("value"))


JOBS: dict[str, Callable[[DataFrame], DataFrame]] = {
    "stateless": _stateless,
    "count": _count,
    "sum": _sum,
    "rekeyed": _rekeyed,
    "window": _window,
    "wordcount": _wordcount,
}


class ProgressCommitter(StreamingQueryListener):
    """Commits the offsets read by batches, and marks the first and the last record."""

    def __init__(self, arguments: Arguments) -> None:
        self._arguments = arguments
        self._read = 0
        self._consumer = Consumer(
            {
                "bootstrap.servers": arguments.settings["bootstrap.servers"],
                "group.id": arguments.settings["application.id"],
                "enable.auto.commit": False,
            }
        )

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        """Mark that the query is running."""
        marks.put(self._arguments.marks, "running")

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """Handle a completed batch, which has been written and is in the checkpoint."""
        progress = event.progress
        if not progress.numInputRows:
            return
        if not self._read:
            began = datetime.fromisoformat(progress.timestamp)
            marks.put(self._arguments.marks, "first", round(began.timestamp() * 1000))
        self._read += progress.numInputRows
        offsets = [
            TopicPartition(topic, int(number), offset)
            for source in progress.sources
            for topic, ends in json.loads(source.endOffset).items()
            for number, offset in ends.items()
        ]
        self._consumer.commit(offsets=offsets, asynchronous=False)
        if self._read == self._arguments.records:
            marks.put(self._arguments.marks, "last")

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        """Do nothing."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """Do nothing."""


def _session(arguments: Arguments) -> SparkSession:
    builder: Any = SparkSession.builder
    settings = {
        **session_settings(["kafka"]),
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": str(SHUFFLE_PARTITIONS),
        "spark.sql.streaming.stateStore.providerClass": ROCKSDB,
        "spark.driver.memory": "2g",
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    session: SparkSession = builder.master("local[1]").appName(arguments.job).getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def main() -> None:
    arguments = parse(__doc__)
    settings = arguments.settings
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    session = _session(arguments)
    session.streams.addListener(ProgressCommitter(arguments))
    records = (
        session.readStream.format("kafka")
        .option("kafka.bootstrap.servers", settings["bootstrap.servers"])
        .option("subscribe", arguments.input_topic)
        .option("startingOffsets", "earliest")
        .load()
    )
    query = (
        JOBS[arguments.job](records)
        .writeStream.format("kafka")
        .option("kafka.bootstrap.servers", settings["bootstrap.servers"])
        .option("topic", arguments.output_topic)
        .option("checkpointLocation", str(Path(settings["state.dir"]) / "checkpoint"))
        .option("kafka.acks", settings["producer.acks"])
        .option("kafka.batch.size", settings["producer.batch.size"])
        .option("kafka.linger.ms", settings["producer.linger.ms"])
        .option("kafka.compression.type", settings["producer.compression.type"])
        .outputMode("append" if arguments.job == "stateless" else "update")
        .trigger(processingTime=f"{settings['commit.interval.ms']} milliseconds")
        .start()
    )
    while not stop.wait(0.05):
        if not query.isActive:
            raise SystemExit(f"the query ended: {query.exception()}")
    query.stop()
    session.stop()


if __name__ == "__main__":
    main()
