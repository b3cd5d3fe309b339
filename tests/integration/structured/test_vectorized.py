"""Functions of pandas and Arrow columns in the middle of topologies: they give what they give when
all of the input is one DataFrame."""

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
from support.broker.records import Sent
from support.running.applications import Application
from support.waiting import wait_for

from millstream import StreamsBuilder, Topology
from millstream.serdes import STRING, json_of
from millstream.testing import EmbeddedKafka, TopologyTestDriver

#: Spark's own module of functions lacks the types of these.
FUNCTIONS: Any = f


class Payment(msgspec.Struct):
    """What comes in."""

    amount: float
    usual: float


class Odd(msgspec.Struct, frozen=True):
    """What comes out."""

    score: float
    words: str


def by_pandas_udf() -> Callable[[DataFrame], DataFrame]:
    """A column of two others, and one that is none of numbers."""

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
    """Frames of pandas to frames with fewer rows."""

    def odd_ones(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        for frame in frames:
            score = frame["amount"] / frame["usual"]
            odd = frame.assign(score=score, words=score.map(str))[score > 2]
            yield odd[["key", "score", "words", "timestamp"]]

    def function(rows: DataFrame) -> DataFrame:
        flat = rows.select("key", "value.amount", "value.usual", "timestamp")
        return flat.mapInPandas(
            odd_ones, "key string, score double, words string, timestamp timestamp"
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
    """The payments, by each of the functions."""
    builder = StreamsBuilder()
    payments = builder.stream(f"{name}-in", key=STRING, value=json_of(Payment))
    for kind in kinds:
        results = payments.transform_dataframe(MAKERS[kind](), value=json_of(Odd), name=kind)
        results.to(f"{name}-{kind}")
    return builder.build()


def payment(number: int) -> Payment:
    return Payment(number % 37 * 1.1, 4.0 + number % 5)


def as_batch(
    spark: SparkSession, function: Callable[[DataFrame], DataFrame], count: int
) -> Counter[tuple[str, Odd, int]]:
    """What a function makes of that many payments as one DataFrame, which is no stream."""
    rows = [
        (f"key-{number % 20}", msgspec.structs.astuple(payment(number)), 1_000_000 + number)
        for number in range(count)
    ]
    frame = spark.createDataFrame(
        rows, "key string, value struct<amount: double, usual: double>, ms bigint"
    ).withColumn("timestamp", f.timestamp_millis("ms"))
    result = function(frame).withColumn("ms", f.unix_millis("timestamp"))
    return Counter(
        (row["key"], Odd(row["score"], row["words"]), row["ms"]) for row in result.collect()
    )


@pytest.mark.slow
def test_a_stream_gives_what_a_batch_gives(
    kafka: EmbeddedKafka, spark: SparkSession, tmp_path: Path
) -> None:
    """Goal: rows, values and times are those of one batch of all input, over several batches of the
    stream."""
    application = Application(kafka, scoring, {"in": 2}, dict.fromkeys(MAKERS, 2))
    topic = application.topic("in")
    sent = [
        Sent(
            topic,
            number % 2,
            f"key-{number % 20}",
            msgspec.json.encode(payment(number)).decode(),
            1_000_000 + number,
        )
        for number in range(600)
    ]

    def found(kind: str) -> Counter[tuple[str, Odd, int]]:
        place = application.topic(kind)
        return Counter(
            (
                (each.key or b"").decode(),
                msgspec.json.decode(each.value or b"", type=Odd),
                each.timestamp,
            )
            for each in application.places.read([place])[place]
        )

    def is_there(expected: Mapping[str, Counter[tuple[str, Odd, int]]]) -> bool:
        return all(found(kind) == expected[kind] for kind in MAKERS)

    with application.running(spark, tmp_path):
        for start, end in ((0, 400), (400, 600)):
            application.places.write(sent[start:end])
            expected = {kind: as_batch(spark, maker(), end) for kind, maker in MAKERS.items()}
            assert all(expected.values())
            wait_for(partial(is_there, expected), 90, f"what batches give of {end} payments")


@pytest.mark.slow
def test_a_test_driver_gives_what_a_batch_gives(spark: SparkSession) -> None:
    with TopologyTestDriver(scoring("x", ["pandas-udf"])) as driver:
        piped = driver.create_input_topic("x-in", key=STRING, value=json_of(Payment))
        for number in range(50):
            piped.pipe_input(f"key-{number % 20}", payment(number), timestamp=1_000_000 + number)
        driver.run_dataframes(spark)
        out = driver.create_output_topic("x-pandas-udf", key=STRING, value=json_of(Odd))
        found = Counter((each.key, each.value, each.timestamp) for each in out.read_records())
    assert found == as_batch(spark, by_pandas_udf(), 50)
