"""Typical Spark plans in the middle of a topology: windows with watermarks, running
aggregations, a join with a table."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from support.broker.topics import InputRecord
from support.running.applications import Application
from support.waiting import wait_for

from millstream import StreamsBuilder, Topology, Trigger
from millstream.serdes import LONG, STRING, json_of
from millstream.testing import EmbeddedKafka

pytestmark = pytest.mark.slow

MINUTE_MS = 60_000


class MinuteCount(msgspec.Struct):
    """The count of a minute, and its end."""

    minute_ms: int
    count: int


def by_minute(rows: DataFrame) -> DataFrame:
    """Final results: a window is output when the watermark has passed its end."""
    minutes = rows.withWatermark("timestamp", "10 seconds").groupBy(
        f.window("timestamp", "1 minute"), "key"
    )
    return minutes.agg(f.count("*").alias("count")).select(
        "key", f.expr("unix_millis(window.start) AS minute_ms"), "count"
    )


def totals(rows: DataFrame) -> DataFrame:
    """Running results: without a watermark each change is output."""
    return rows.groupBy("key").agg(f.sum(f.length("value")).alias("value"))


def test_windows_running_totals_and_a_table(
    kafka: EmbeddedKafka, spark: SparkSession, tmp_path: Path
) -> None:
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    colors = tmp_path / "colors.parquet"
    table = pa.table({"key": ["key-0", "key-1"], "color": ["red", "blue"]})
    pyarrow.parquet.write_table(table, colors)

    def topology(name: str) -> Topology:
        builder = StreamsBuilder()
        words = builder.stream(f"{name}-in", key=STRING, value=STRING)
        words.transform_dataframe(by_minute, value=json_of(MinuteCount), name="minutes").to(
            f"{name}-minutes"
        )
        words.transform_dataframe(
            totals, value=LONG, name="totals", trigger=Trigger.processing_time("100 ms")
        ).to(f"{name}-totals")
        words.transform_dataframe(
            lambda rows: rows.join(spark.read.parquet(str(colors)), "key", "left").selectExpr(
                "key", "concat(color, ' ', value) AS value", "timestamp"
            ),
            name="colored",
        ).to(f"{name}-colored")
        return builder.build()

    application = Application(kafka, topology, {"in": 2}, {"minutes": 2, "totals": 2, "colored": 2})
    topic = application.topic("in")
    sent = [
        InputRecord(
            topic, number % 2, f"key-{number % 2}", f"w{number}", MINUTE_MS + 1_000 * number
        )
        for number in range(150)
    ]
    application.places.write(sent)

    def values(name: str) -> list[tuple[str, bytes]]:
        place = application.topic(name)
        read = application.places.read([place])[place]
        return [((each.key or b"").decode(), each.value or b"") for each in read]

    with application.running(spark, tmp_path / "state"):
        # The last minute stays open: there is no record after its end.
        expected = Counter(
            (each.key or "", each.timestamp // MINUTE_MS * MINUTE_MS) for each in sent[:120]
        )
        wait_for(
            lambda: (
                {
                    (key, minute.minute_ms): minute.count
                    for key, value in values("minutes")
                    for minute in [msgspec.json.decode(value, type=MinuteCount)]
                }
                == expected
            ),
            90,
            "closed windows are output once",
        )
        assert len(values("minutes")) == len(expected)
        sums: Counter[str] = Counter()
        for each in sent:
            sums[each.key or ""] += len(each.value or "")
        wait_for(
            lambda: {key: int.from_bytes(value) for key, value in values("totals")} == sums,
            90,
            "the last totals are right",
        )
        colored = {
            f"{'red' if each.key == 'key-0' else 'blue'} {each.value}".encode() for each in sent
        }
        wait_for(lambda: {value for _, value in values("colored")} == colored, 90, "joined")
