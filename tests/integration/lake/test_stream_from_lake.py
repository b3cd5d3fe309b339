"""Goal: a table and the topic after it are read like the complete topic: no record lost or
duplicated, in order, wherever the application is killed; and the table is read once.

Method: clicks in a topic, of which the first are also rows of a table, as `to_lake` writes them. An
application that reads the table and then the topic, and is killed in between, must have the same
result as one that has read the complete topic.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from support.broker.topics import BrokerTopics, InputRecord, latest, read_all, unique
from support.machine.scripts import support_script
from support.running.history_instance import (
    CHUNK,
    NAME,
    READ,
    WRITTEN,
    concatenate_pages,
    config,
    topology,
)
from support.waiting import wait_for

from millstream import ConfigError, KafkaStreams, SparkError, StreamsBuilder, StreamsError
from millstream.dataframes.lake import history_writer
from millstream.dataframes.lake.history_writer import HistoryWriter
from millstream.kafka.partitioner import partition_for
from millstream.record import TopicPartition
from millstream.serdes import STRING
from millstream.spark.sessions.session import use_driver_python
from millstream.testing import EmbeddedKafka
from millstream.topology.options.lake import LakeHistory

pytestmark = pytest.mark.extended

_TIMEOUT_S = 240
_T0 = 1_700_000_000_000
_ROWS, _LATER = 100, 150
_SCHEMA = (
    "key string, value string, timestamp timestamp, "
    "headers array<struct<key: string, value: binary>>, "
    "_topic string, _partition int, _offset bigint"
)


class Clicks:
    """A topic with clicks of seven users in two partitions, and a table with the first of them."""

    def __init__(self, kafka: EmbeddedKafka, spark: SparkSession, folder: Path) -> None:
        self.bootstrap = kafka.bootstrap_servers
        self.places = BrokerTopics(self.bootstrap)
        self.application = unique("pages")
        self.topic, self.out = f"{self.application}-clicks", f"{self.application}-out"
        self.history = f"{self.application}-{NAME}-history-repartition"
        self.table, self.folder = folder / "table", folder
        self.places.create({self.topic: 2, self.out: 2})
        self.write(0, _ROWS)
        offsets = [0, 0]
        rows: list[Any] = []
        for sent in self.sent(0, _ROWS):
            time = datetime.fromtimestamp(sent.timestamp / 1_000, UTC)
            place = (sent.partition, offsets[sent.partition])
            rows.append((sent.key, sent.value, time, None, self.topic, *place))
            offsets[sent.partition] += 1
        # Tables have no order.
        frame = spark.createDataFrame(rows[::-1], _SCHEMA)
        frame.repartition(3, "value").write.parquet(str(self.table))

    def sent(self, first: int, end: int) -> list[InputRecord]:
        return [
            InputRecord(self.topic, n % 7 % 2, f"user-{n % 7}", f"page-{n}", _T0 + n * 1_000)
            for n in range(first, end)
        ]

    def write(self, first: int, end: int) -> None:
        self.places.write(self.sent(first, end))

    def truncate_topic(self) -> None:
        """Delete the records from the topic that are in the table."""
        counts = [sum(sent.partition == p for sent in self.sent(0, _ROWS)) for p in (0, 1)]
        self.places.delete_records(
            {TopicPartition(self.topic, p): count for p, count in enumerate(counts)}
        )

    def pages(self) -> dict[bytes | None, bytes | None]:
        return latest(self.bootstrap, self.out)

    def streams(self, spark: SparkSession) -> KafkaStreams:
        built = topology(str(self.table), self.topic, self.out)
        settings = config(self.bootstrap, self.application, str(self.folder / "state"))
        return KafkaStreams(built, settings, spark)

    def killed(self, place: str) -> None:
        """Run an instance that kills itself at a place."""
        arguments = (self.bootstrap, self.application, str(self.table), self.topic)
        state = str(self.folder / "state")
        with support_script(
            "history_instance.py", *arguments, state, place, home=self.folder
        ) as instance:
            assert instance.wait_ended(_TIMEOUT_S) == -9, instance.errors


@pytest.fixture
def clicks(kafka: EmbeddedKafka, spark: SparkSession, tmp_path: Path) -> Clicks:
    use_driver_python(spark)
    return Clicks(kafka, spark, tmp_path)


def run_on_topic_only(
    clicks: Clicks, spark: SparkSession, end: int
) -> dict[bytes | None, bytes | None]:
    """The result of an application that reads only the topic."""
    application = f"{clicks.application}-live"
    out = f"{application}-out"
    clicks.places.create({out: 2})
    builder = StreamsBuilder()
    concatenate_pages(builder.stream(clicks.topic, key=STRING, value=STRING), out)
    settings = config(clicks.bootstrap, application, str(clicks.folder / "live"))
    with KafkaStreams(builder.build(), settings, spark):
        wait_for(
            lambda: sum(_count(latest(clicks.bootstrap, out))) == end,
            _TIMEOUT_S,
            "all pages are counted",
        )
    return latest(clicks.bootstrap, out)


def _count(pages: dict[bytes | None, bytes | None]) -> list[int]:
    return [len((each or b"").split()) for each in pages.values()]


@pytest.mark.slow
@pytest.mark.parametrize("place", [WRITTEN, READ])
def test_history_and_topic_equal_the_complete_topic(
    clicks: Clicks, spark: SparkSession, place: str
) -> None:
    """Killed midway, restarted, restarted once more without the table: each click once, in order.

    The topic has lost the records in the table by then.
    """
    clicks.write(_ROWS, _LATER)
    expected = run_on_topic_only(clicks, spark, _LATER)
    clicks.truncate_topic()
    clicks.killed(place)
    found = read_all(clicks.bootstrap, clicks.history)
    assert len(found) >= 2 * CHUNK, "killed too early"
    if place == WRITTEN:
        assert len(found) < _ROWS, "killed too late"
    else:
        shutil.rmtree(clicks.table)
    with clicks.streams(spark):
        wait_for(lambda: clicks.pages() == expected, _TIMEOUT_S, "every page once and in order")
    shutil.rmtree(clicks.table, ignore_errors=True)
    clicks.write(_LATER, _LATER + 7)
    with clicks.streams(spark):
        wait_for(
            lambda: sum(_count(clicks.pages())) == _LATER + 7, _TIMEOUT_S, "the last pages, too"
        )


def _record(sent: InputRecord) -> tuple[bytes | None, bytes | None]:
    assert sent.key is not None
    assert sent.value is not None
    return sent.key.encode(), sent.value.encode()


def writer(
    clicks: Clicks, spark: SparkSession, given_up: Callable[[], bool] = bool, **changed: Any
) -> HistoryWriter:
    """A writer of the application's history, without the application."""
    arguments: dict[str, Any] = {"then": clicks.topic, "name": NAME, **changed}
    path = arguments.pop("path", str(clicks.table))
    builder = StreamsBuilder()
    serdes = {"key": STRING, "value": STRING}
    builder.stream_from_lake(path, **{"format": "parquet", **serdes, **arguments})
    table: LakeHistory = builder.build().lake_histories[NAME]
    settings = config(clicks.bootstrap, clicks.application, str(clicks.folder / "state"))
    return HistoryWriter(table, settings, spark, given_up, CHUNK)


@pytest.mark.slow
def test_two_drivers_write_the_history_once(clicks: Clicks, spark: SparkSession) -> None:
    """Concurrently, each as if it were alone; and once more at the end."""
    written: list[int] = []
    drivers = [
        threading.Thread(target=lambda: written.append(writer(clicks, spark).write()))
        for _ in range(2)
    ]
    for driver in drivers:
        driver.start()
    for driver in drivers:
        driver.join(_TIMEOUT_S)
    assert len(written) == 2, "a writer failed"
    in_order = sorted(clicks.sent(0, _ROWS), key=lambda each: each.partition)
    assert read_all(clicks.bootstrap, clicks.history) == list(map(_record, in_order))
    group = clicks.places.committed(clicks.application, [clicks.topic, clicks.history])
    ends = clicks.places.ends([clicks.topic])
    assert group == {
        **{TopicPartition(clicks.history, p): 0 for p in (0, 1)},
        **{place: end for place, (_, end) in ends.items()},
    }
    assert writer(clicks, spark, path="/nowhere").write() == 0


@pytest.mark.slow
def test_a_timestamp_separates_table_and_topic(clicks: Clicks, spark: SparkSession) -> None:
    """For a table without offsets: before this timestamp the table is read, from there the
    topic, by key."""
    plain = str(clicks.folder / "plain")
    rows = spark.read.parquet(str(clicks.table))
    rows.selectExpr("key AS user", "value", "unix_millis(timestamp) AS ms").write.parquet(plain)
    columns: dict[str, Any] = {"path": plain, "key_column": "user", "timestamp": "ms"}
    with pytest.raises(ConfigError, match=r"lacks the columns key, .*_offset.*Pass then_from="):
        writer(clicks, spark, **columns).write()
    middle = datetime.fromtimestamp(_T0 / 1_000 + 60, UTC)
    assert writer(clicks, spark, then_from=middle, **columns).write() == 60
    sent = clicks.sent(0, 60)
    by_key = sorted(map(_record, sent), key=lambda each: partition_for(each[0] or b"", 2))
    assert read_all(clicks.bootstrap, clicks.history) == by_key
    resumed = clicks.places.committed(clicks.application, [clicks.topic])
    assert resumed == {
        TopicPartition(clicks.topic, p): sum(each.partition == p for each in sent) for p in (0, 1)
    }


def test_invalid_histories_are_rejected(clicks: Clicks, spark: SparkSession) -> None:
    """The error explains the problem and the remedy, before any record is written."""
    cases: tuple[tuple[dict[str, Any], type[StreamsError], str], ...] = (
        ({"path": "/nowhere"}, ConfigError, "cannot be read as parquet"),
        ({"value_column": "page"}, ConfigError, "value_column='page'.*page"),
        ({"key_column": "value"}, ConfigError, "stay in their original partitions"),
        ({"timestamp": "value"}, ConfigError, "has the type string"),
        ({"timestamp": "nullif(timestamp, timestamp)"}, StreamsError, "100 rows .* no timestamp"),
    )
    for changed, error, problem in cases:
        with pytest.raises(error, match=f"(?s){problem}"):
            writer(clicks, spark, **changed).write()
    assert read_all(clicks.bootstrap, clicks.history) == []


def test_a_topic_that_does_not_continue_the_table_is_rejected(
    clicks: Clicks, spark: SparkSession
) -> None:
    """It has lost records that are not in the table, or has different ones."""
    clicks.write(_ROWS, _LATER)
    ends = clicks.places.ends([clicks.topic])
    clicks.places.delete_records({place: end for place, (_, end) in ends.items()})
    with pytest.raises(StreamsError, match=r"neither in the table .* nor in the topic"):
        writer(clicks, spark).write()
    late = datetime.fromtimestamp(_T0 / 1_000 + 10, UTC)
    clicks.places.write(clicks.sent(_LATER, _LATER + 7))
    with pytest.raises(StreamsError, match="Pass a later time"):
        writer(clicks, spark, then_from=late).write()


@pytest.mark.slow
def test_a_table_that_changes_during_the_read_is_rejected(
    clicks: Clicks, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its rows would be numbered differently than before: some lost, some duplicated."""

    def fails(*_: object, **__: object) -> int:
        raise RuntimeError("the job was lost")

    with monkeypatch.context() as patched:
        patched.setattr(history_writer, "write_in_steps", fails)
        with pytest.raises(SparkError, match=r"could not be written to .*the job was lost"):
            writer(clicks, spark).write()
    rows = spark.read.parquet(str(clicks.table))
    rows.limit(1).withColumn("value", rows["key"]).write.mode("append").parquet(str(clicks.table))
    with pytest.raises(StreamsError, match="it had 100 rows, and now has 101"):
        writer(clicks, spark).write()
