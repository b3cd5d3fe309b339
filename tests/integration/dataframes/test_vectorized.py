"""Functions on pandas and Arrow columns in the middle of topologies have the same results as for
one DataFrame with all input."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pandas as pd
import pyarrow as pa
import pyarrow.compute
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from support.broker.topics import InputRecord
from support.running.applications import Application
from support.waiting import wait_for

from millstream import StreamsBuilder, Topology
from millstream.serdes import STRING, json_of
from millstream.testing import EmbeddedKafka, TopologyTestDriver

#: Spark's own module of functions lacks types for them.
FUNCTIONS: Any = f


class Payment(msgspec.Struct):
    """An input record."""

    amount: float
    usual: float


class UnusualPayment(msgspec.Struct, frozen=True):
    """An output record."""

    score: float
    words: str


def by_pandas_udf() -> Callable[[DataFrame], DataFrame]:
    """A column computed from two others, and one that is not numeric."""

    def score(amount: pd.Series, usual: pd.Series) -> pd.Series:
        return (amount / usual - 1).clip(lower=0)

    def in_words(columns: Iterator[pd.Series]) -> Iterator[pd.Series]:
        for amount in columns:
            yield amount.map("{:.2f}".format)

    def function(rows: DataFrame) -> DataFrame:
        scored = FUNCTIONS.pandas_udf(score, "double")(f.col("value.amount"), f.col("value.usual"))
        words = FUNCTIONS.pandas_udf(in_words, "string")(f.col("value.amount"))
        return rows.select("key", scored.alias("score"), words.alias("words"), "timestamp")

    return function


def by_map_in_pandas() -> Callable[[DataFrame], DataFrame]:
    """pandas frames to frames with fewer rows."""

    def unusual_payments(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        for frame in frames:
            score = frame["amount"] / frame["usual"]
            unusual = frame.assign(score=score, words=score.map(str))[score > 2]
            yield unusual[["key", "score", "words", "timestamp"]]

    def function(rows: DataFrame) -> DataFrame:
        flat = rows.select("key", "value.amount", "value.usual", "timestamp")
        return flat.mapInPandas(
            unusual_payments, "key string, score double, words string, timestamp timestamp"
        )

    return function


def by_arrow_udf() -> Callable[[DataFrame], DataFrame]:
    """The same without pandas."""

    def score(amount: pa.Array, usual: pa.Array) -> pa.Array:
        return pyarrow.compute.divide(amount, usual)

    def function(rows: DataFrame) -> DataFrame:
        scored = FUNCTIONS.arrow_udf(score, "double")(f.col("value.amount"), f.col("value.usual"))
        return rows.select("key", scored.alias("score"), f.lit("none").alias("words"), "timestamp")

    return function


MAKERS = {
    "pandas-udf": by_pandas_udf,
    "map-in-pandas": by_map_in_pandas,
    "arrow-udf": by_arrow_udf,
}


def scoring(name: str, kinds: Iterable[str] = MAKERS) -> Topology:
    """The payments, through each of the functions."""
    builder = StreamsBuilder()
    payments = builder.stream(f"{name}-in", key=STRING, value=json_of(Payment))
    for kind in kinds:
        results = payments.transform_dataframe(
            MAKERS[kind](), value=json_of(UnusualPayment), name=kind
        )
        results.to(f"{name}-{kind}")
    return builder.build()


def payment(number: int) -> Payment:
    return Payment(number % 37 * 1.1, 4.0 + number % 5)


def as_batch(
    spark: SparkSession, function: Callable[[DataFrame], DataFrame], count: int
) -> Counter[tuple[str, UnusualPayment, int]]:
    """A function's result for this many payments as one batch DataFrame."""
    rows = [
        (f"key-{number % 20}", msgspec.structs.astuple(payment(number)), 1_000_000 + number)
        for number in range(count)
    ]
    frame = spark.createDataFrame(
        rows, "key string, value struct<amount: double, usual: double>, ms bigint"
    ).withColumn("timestamp", f.timestamp_millis("ms"))
    result = function(frame).withColumn("ms", f.unix_millis("timestamp"))
    return Counter(
        (row["key"], UnusualPayment(row["score"], row["words"]), row["ms"])
        for row in result.collect()
    )


@pytest.mark.slow
def test_a_stream_has_the_result_of_a_batch(
    kafka: EmbeddedKafka, spark: SparkSession, tmp_path: Path
) -> None:
    """Goal: rows, values and timestamps equal those of one batch of all input, over several
    batches of the stream."""
    application = Application(kafka, scoring, {"in": 2}, dict.fromkeys(MAKERS, 2))
    topic = application.topic("in")
    sent = [
        InputRecord(
            topic,
            number % 2,
            f"key-{number % 20}",
            msgspec.json.encode(payment(number)).decode(),
            1_000_000 + number,
        )
        for number in range(600)
    ]

    def found(kind: str) -> Counter[tuple[str, UnusualPayment, int]]:
        place = application.topic(kind)
        return Counter(
            (
                (each.key or b"").decode(),
                msgspec.json.decode(each.value or b"", type=UnusualPayment),
                each.timestamp,
            )
            for each in application.places.read([place])[place]
        )

    def is_there(expected: Mapping[str, Counter[tuple[str, UnusualPayment, int]]]) -> bool:
        return all(found(kind) == expected[kind] for kind in MAKERS)

    with application.running(spark, tmp_path):
        for start, end in ((0, 400), (400, 600)):
            application.places.write(sent[start:end])
            expected = {kind: as_batch(spark, maker(), end) for kind, maker in MAKERS.items()}
            assert all(expected.values())
            wait_for(partial(is_there, expected), 90, f"the batch result of {end} payments")


@pytest.mark.slow
def test_a_test_driver_has_the_result_of_a_batch(spark: SparkSession) -> None:
    with TopologyTestDriver(scoring("x", ["pandas-udf"])) as driver:
        piped = driver.create_input_topic("x-in", key=STRING, value=json_of(Payment))
        for number in range(50):
            piped.pipe_input(f"key-{number % 20}", payment(number), timestamp=1_000_000 + number)
        driver.run_dataframes(spark)
        out = driver.create_output_topic("x-pandas-udf", key=STRING, value=json_of(UnusualPayment))
        found = Counter((each.key, each.value, each.timestamp) for each in out.read_records())
    assert found == as_batch(spark, by_pandas_udf(), 50)
