"""DataFrame functions in the middle of topologies, on one broker and one Spark session."""

from __future__ import annotations

import os
import re
import signal
from collections import Counter
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from support.broker.topics import InputRecord, read_all
from support.running.applications import Application
from support.running.topologies.orders import Order, Priced, orders
from support.waiting import wait_for

from millstream import (
    DataFrameError,
    StreamsBuilder,
    StreamsUncaughtExceptionHandlerResponse,
    Topology,
)
from millstream.serdes import LONG, STRING, json_of
from millstream.testing import EmbeddedKafka, TopologyTestDriver

RUNNING = timedelta(seconds=180)


def priced(rows: DataFrame) -> DataFrame:
    """Plain columns, from which the serde makes a value; order 13 of each key is dropped."""
    return rows.where("value.amount % 100 != 13").select(
        "key", f.col("value.item").alias("item"), f.expr("value.amount * 1.5 AS total"), "timestamp"
    )


def pricing(name: str) -> Topology:
    """Orders are priced by Spark SQL, then counted by key."""
    builder = StreamsBuilder()
    results = builder.stream(
        f"{name}-orders", key=STRING, value=json_of(Order)
    ).transform_dataframe(priced, name="price", value=json_of(Priced))
    results.to(f"{name}-priced")
    results.group_by_key().count(store="counts").to_stream().to(f"{name}-counts", value=LONG)
    return builder.build()


def as_batch(spark: SparkSession, sent: list[InputRecord]) -> Counter[tuple[bytes, bytes, int]]:
    """The function's result for all records as one DataFrame, as records."""
    rows = [(each.key, msgspec.json.decode(each.value or ""), each.timestamp) for each in sent]
    frame = spark.createDataFrame(
        rows, "key string, value struct<item: string, amount: bigint>, ms bigint"
    ).withColumn("timestamp", f.timestamp_millis("ms"))
    return Counter(
        (
            row["key"].encode(),
            msgspec.json.encode(Priced(row["item"], float(row["total"]))),
            row["ms"],
        )
        for row in priced(frame).withColumn("ms", f.unix_millis("timestamp")).collect()
    )


def found(application: Application, name: str) -> Counter[tuple[bytes, bytes, int]]:
    """The records of a topic."""
    topic = application.topic(name)
    return Counter(
        (each.key or b"", each.value or b"", each.timestamp)
        for records in application.places.read([topic]).values()
        for each in records
    )


def show_differences(actual: Counter[Any], expected: Counter[Any]) -> str:
    """Some unexpected and some missing records."""
    return f"{list((actual - expected).items())[:3]} but {list((expected - actual).items())[:3]}"


def committed(kafka: EmbeddedKafka, application: Application) -> Counter[tuple[bytes, bytes]]:
    """The committed keys and values of the output."""
    written = read_all(kafka.bootstrap_servers, application.topic("priced"))
    return Counter((key or b"", value or b"") for key, value in written)


def without_times(records: Counter[tuple[bytes, bytes, int]]) -> Counter[tuple[bytes, bytes]]:
    return Counter((key, value) for key, value, _ in records.elements())


def test_the_result_equals_one_batch_of_all_input(
    kafka: EmbeddedKafka, spark: SparkSession, tmp_path: Path
) -> None:
    """At-least-once without a failure yields each record once: keys, values and timestamps; in
    order within each key. Processed input is deleted; a paused application has no query; a
    second run continues where the first ended."""
    application = Application(kafka, pricing, {"orders": 2}, {"priced": 2, "counts": 2})
    first, second, third = (orders(application.name, start, 500) for start in (0, 500, 1_000))
    application.places.write(first)
    expected = as_batch(spark, first)
    settings = {"repartition_purge_interval_ms": 500}
    with application.running(spark, tmp_path, **settings) as (streams, _):
        wait_for(
            lambda: found(application, "priced") == expected,
            60,
            lambda: f"the first part: {show_differences(found(application, 'priced'), expected)}",
        )
        entry = application.topic("price-dataframe-input-repartition")
        wait_for(
            lambda: all(low == high for low, high in application.places.ends([entry]).values()),
            60,
            "processed input is deleted",
        )
        assert streams.metrics().total("rows-total", "stream-dataframe-metrics") == 500
        counts = application.internal_topics()
        assert counts["price-dataframe-input-repartition"] == 2
        assert counts["price-dataframe-output-repartition"] == 2
        query = f"{application.name}-price"
        streams.pause()
        wait_for(lambda: query not in running(spark), 60, "no query runs while paused")
        application.places.write(second)
        expected += as_batch(spark, second)
        streams.resume()
        wait_for(lambda: found(application, "priced") == expected, 60, "the second part is written")
    assert query not in running(spark)
    application.places.write(third)
    expected += as_batch(spark, third)
    with application.running(spark, tmp_path, **settings) as (streams, _):
        wait_for(lambda: found(application, "priced") == expected, 60, "the third part is written")
        by_key = counted(expected)
        wait_for(lambda: latest_counts(kafka, application) == by_key, 60, "all records are counted")


def running(spark: SparkSession) -> set[str | None]:
    """The names of the running queries."""
    return {query.name for query in spark.streams.active}


def counted(records: Counter[tuple[bytes, bytes, int]]) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for (key, _, _), times in records.items():
        counts[key.decode()] += times
    return dict(counts)


def latest_counts(kafka: EmbeddedKafka, application: Application) -> dict[str, int]:
    written = read_all(kafka.bootstrap_servers, application.topic("counts"))
    return {(key or b"").decode(): int.from_bytes(value or b"") for key, value in written}


def stop_query(spark: SparkSession, name: str) -> bool:
    """Stop the active query with a name; returns whether there was one."""
    queries = [query for query in spark.streams.active if query.name == name]
    for query in queries:
        query.stop()
    return bool(queries)


def kill_once(note: str) -> Any:
    """A Python function for Spark that kills its worker at one record, but only once."""

    def mapper(item: str) -> str:
        if item == "item-250":
            with suppress(FileExistsError):
                os.close(os.open(note, os.O_CREAT | os.O_EXCL))
                os.kill(os.getpid(), signal.SIGKILL)
        return item

    return f.udf(mapper)


@pytest.mark.slow
def test_exactly_once_survives_kills(
    kafka: EmbeddedKafka, spark: SparkSession, tmp_path: Path
) -> None:
    """A Python worker is killed during a batch, the query is stopped by other code, a stream
    thread is replaced: each record has one result, and the counts are right."""
    note = tmp_path / "killed"

    def topology(name: str) -> Topology:
        mapper = kill_once(str(note))
        builder = StreamsBuilder()
        results = builder.stream(
            f"{name}-orders", key=STRING, value=json_of(Order)
        ).transform_dataframe(
            lambda rows: priced(rows).withColumn("item", mapper("item")),
            name="price",
            value=json_of(Priced),
        )
        results.to(f"{name}-priced")
        results.group_by_key().count(store="counts").to_stream().to(f"{name}-counts", value=LONG)
        return builder.build()

    application = Application(kafka, topology, {"orders": 2}, {"priced": 2, "counts": 2})
    sent = orders(application.name, 0, 400)
    application.places.write(sent)
    streams = application.streams(spark, tmp_path / "state", processing_guarantee="exactly_once_v2")
    failures: list[Exception] = []

    def replaced(error: Exception) -> StreamsUncaughtExceptionHandlerResponse:
        failures.append(error)
        return StreamsUncaughtExceptionHandlerResponse.REPLACE_THREAD

    streams.set_uncaught_exception_handler(replaced)
    streams.start()
    try:
        expected = as_batch(spark, sent)
        once = without_times(expected)
        wait_for(lambda: committed(kafka, application) == once, 90, "each result once")
        assert note.exists()
        assert any("'price'" in str(error) for error in failures), failures
        # The query may be restarting: Spark 4.1 can fail after a batch that was retried.
        wait_for(lambda: stop_query(spark, f"{application.name}-price"), 60, "a query to stop")
        more = orders(application.name, 400, 200)
        application.places.write(more)
        streams.add_stream_thread()
        streams.remove_stream_thread(timedelta(seconds=60))
        expected = as_batch(spark, sent + more)
        twice = without_times(expected)
        wait_for(lambda: committed(kafka, application) == twice, 90, "each result once, again")
        by_key = counted(expected)
        wait_for(lambda: latest_counts(kafka, application) == by_key, 60, "all records are counted")
        assert len([each for each in failures if "stopped by other code" in str(each)]) == 1
    finally:
        assert streams.close(timedelta(seconds=60))


@pytest.mark.extended
@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda rows: rows.drop("key"), "has no column key, only value, timestamp"),
        (lambda rows: "rows", "returned 'rows'. The function must return a DataFrame"),
        (lambda rows: rows.select("no_such"), "raised AnalysisException"),
        (lambda rows: rows.select("key", "timestamp"), "item, total not found in"),
        (
            lambda rows: rows.selectExpr("key", "array(1) AS value"),
            "column value of type array<int>",
        ),
        (
            lambda rows: rows.selectExpr("key", "'a' AS item", "1 AS total", "1 AS headers"),
            "columns that cannot become a record",
        ),
    ],
)
def test_functions_without_valid_records_are_rejected(
    spark: SparkSession, function: Any, message: str
) -> None:
    builder = StreamsBuilder()
    orders = builder.stream("in", key=STRING, value=json_of(Order))
    orders.transform_dataframe(function, name="wrong", value=json_of(Priced)).to("out")
    with TopologyTestDriver(builder.build()) as driver:
        piped = driver.create_input_topic("in", key=STRING, value=json_of(Order))
        piped.pipe_input("key", Order("pen", 1))
        with pytest.raises(DataFrameError, match=re.escape(message)) as raised:
            driver.run_dataframes(spark)
        assert "'wrong'" in str(raised.value)
        assert "test_dataframe_stages.py" in str(raised.value)


@pytest.mark.extended
def test_a_runtime_error_closes_the_application(
    kafka: EmbeddedKafka, spark: SparkSession, tmp_path: Path
) -> None:
    """The uncaught exception handler is called; by default the application closes with the
    error."""

    def topology(name: str) -> Topology:
        failing_column = "CAST(raise_error('spoilt: ' || value.item) AS STRING) AS item"
        builder = StreamsBuilder()
        builder.stream(f"{name}-orders", key=STRING, value=json_of(Order)).transform_dataframe(
            lambda rows: rows.selectExpr("key", failing_column, "1.0D AS total"),
            name="wrong",
            value=json_of(Priced),
        ).to(f"{name}-priced")
        return builder.build()

    application = Application(kafka, topology, {"orders": 2}, {"priced": 2})
    application.places.write(orders(application.name, 0, 1))
    streams = application.streams(spark, tmp_path, num_stream_threads=1)
    streams.start()
    try:
        streams.wait_for_state("ERROR", RUNNING)
        assert isinstance(streams.error, DataFrameError)
        for message in ("'wrong' failed", "spoilt: item-0", "test_dataframe_stages.py"):
            assert message in str(streams.error)
    finally:
        streams.close(timedelta(seconds=60))


@pytest.mark.extended
def test_a_test_driver_runs_the_functions_on_request(spark: SparkSession) -> None:
    """Piped input waits until then; it passes the function and the following operators, with
    timestamps and headers."""
    with TopologyTestDriver(pricing("x")) as driver:
        piped = driver.create_input_topic("x-orders", key=STRING, value=json_of(Order))
        for number in range(3):
            piped.pipe_input(f"key-{number}", Order("pen", number), timestamp=number + 1)
        out = driver.create_output_topic("x-priced", key=STRING, value=json_of(Priced))
        assert out.is_empty
        assert driver.run_dataframes(spark) == 3
        assert [(each.key, each.value, each.timestamp) for each in out.read_records()] == [
            ("key-0", Priced("pen", 0.0), 1),
            ("key-1", Priced("pen", 1.5), 2),
            ("key-2", Priced("pen", 3.0), 3),
        ]
        assert driver.get_state_store("counts").get("key-2").value == 1
        assert driver.run_dataframes(spark) == 0
