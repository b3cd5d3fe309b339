"""DataFrame functions in Spark's real-time mode, on one broker and one Spark session."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from support.broker.topics import InputRecord
from support.running.applications import Application
from support.running.topologies.orders import Order, Priced, orders
from support.waiting import wait_for

from millstream import (
    DataFrameError,
    Processor,
    Record,
    StreamsBuilder,
    StreamsUncaughtExceptionHandlerResponse,
    Topology,
    Trigger,
)
from millstream.serdes import LONG, STRING, json_of
from millstream.testing import EmbeddedKafka

pytestmark = pytest.mark.slow

STOPPED = timedelta(seconds=120)
FROM_SPARK = "array(named_struct('key', 'from', 'value', CAST('spark' AS BINARY)))"


class PriceWithHeaders(msgspec.Struct):
    """A price, and the headers of its record."""

    item: str
    total: float
    headers: list[tuple[str, str]]


Written = Counter[tuple[bytes, str, float, int]]


class HeadersToValue(Processor[str, Priced, str, PriceWithHeaders]):
    """Puts a record's headers into its value."""

    def process(self, record: Record[str, Priced]) -> None:
        headers = [(name, (data or b"").decode()) for name, data in record.headers]
        messages = PriceWithHeaders(record.value.item, record.value.total, headers)
        self.context.forward(record.with_value(messages).with_headers(()))


def priced(rows: DataFrame) -> DataFrame:
    """Only Spark's own functions."""
    return rows.where("value.amount % 100 != 13").selectExpr(
        "key",
        "value.item AS item",
        "value.amount * 1.5 AS total",
        "timestamp",
        f"{FROM_SPARK} AS headers",
    )


def pricing(function: Any = priced, trigger: Trigger | None = None) -> Any:
    """A topology for an application's name: orders are priced, then counted by key."""

    def topology(name: str) -> Topology:
        builder = StreamsBuilder()
        results = builder.stream(
            f"{name}-orders", key=STRING, value=json_of(Order)
        ).transform_dataframe(
            function, name="price", value=json_of(Priced), trigger=trigger or Trigger.real_time()
        )
        results.process(HeadersToValue).to(
            f"{name}-priced", key=STRING, value=json_of(PriceWithHeaders)
        )
        results.group_by_key().count(store="counts").to_stream().to(f"{name}-counts", value=LONG)
        return builder.build()

    return topology


def expected(sent: list[InputRecord]) -> Written:
    return Counter(
        ((each.key or "").encode(), order.item, order.amount * 1.5, each.timestamp)
        for each in sent
        for order in [msgspec.json.decode(each.value or "", type=Order)]
        if order.amount % 100 != 13
    )


def found(application: Application) -> Written:
    """The output, whose only header is the function's."""
    topic = application.topic("priced")
    written: Written = Counter()
    for each in application.places.read([topic])[topic]:
        priced = msgspec.json.decode(each.value or b"", type=PriceWithHeaders)
        assert priced.headers == [("from", "spark")]
        written[each.key or b"", priced.item, priced.total, each.timestamp] += 1
    return written


def application_of(kafka: EmbeddedKafka, topology: Any, partitions: int = 2) -> Application:
    inputs = {"orders": partitions}
    return Application(kafka, topology, inputs, {"priced": 2, "counts": 2})


def test_records_are_output_before_their_batch_ends(
    kafka: EmbeddedKafka, spark: SparkSession, tmp_path: Path
) -> None:
    """Keys, values, timestamps and headers are the function's; the batch of one hour never ends."""
    topology = pricing(trigger=Trigger.real_time(timedelta(hours=1)))
    application = application_of(kafka, topology)
    sent = orders(application.name, 0, 200)
    streams = application.streams(spark, tmp_path, num_stream_threads=1)
    streams.start()
    try:
        application.places.write(sent[:150])
        wait_for(
            lambda: found(application) == expected(sent[:150]), 60, "the first orders are priced"
        )
        application.places.write(sent[150:])
        wait_for(lambda: found(application) == expected(sent), 60, "the other orders are priced")
    finally:
        assert streams.close(timedelta(seconds=2))


def test_no_record_is_lost_with_any_trigger_on_one_checkpoint(
    kafka: EmbeddedKafka, spark: SparkSession, tmp_path: Path
) -> None:
    """A query is stopped by other code within a batch: later output may be repeated.

    If it is closed between batches, nothing is repeated, even with a different trigger.
    """
    used = [Trigger.real_time()]
    application = application_of(kafka, lambda name: pricing(trigger=used[-1])(name))
    sent = orders(application.name, 0, 500)
    streams = application.streams(spark, tmp_path, num_stream_threads=1)
    streams.set_uncaught_exception_handler(
        lambda error: StreamsUncaughtExceptionHandlerResponse.REPLACE_THREAD
    )
    streams.start()
    try:
        application.places.write(sent)
        wait_for(
            lambda: found(application).keys() == expected(sent).keys(), 60, "all orders are priced"
        )
        (query,) = (
            each for each in spark.streams.active if each.name == f"{application.name}-price"
        )
        query.stop()
        more = orders(application.name, 500, 100)
        application.places.write(more)
        sent += more
        wait_for(
            lambda: found(application).keys() == expected(sent).keys(),
            60,
            "all orders are priced, again",
        )
    finally:
        assert streams.close(timedelta(seconds=60))
    there = found(application)
    for trigger in (Trigger.processing_time(), Trigger.real_time()):
        more = orders(application.name, len(sent), 100)
        sent += more
        application.places.write(more)
        there.update(expected(more))
        used.append(trigger)
        with application.running(spark, tmp_path, num_stream_threads=1):
            wait_for(lambda: found(application) == there, 60, f"once, by {trigger.kind}")
    assert found(application) == there


def python_function(rows: DataFrame) -> DataFrame:
    return priced(rows).withColumn("item", f.udf(str.upper)("item"))


def test_two_queries_do_not_use_the_same_slots(
    kafka: EmbeddedKafka, spark: SparkSession, tmp_path: Path
) -> None:
    """Of two queries that start at the same time, with slots for only one, one runs and the
    other reports too few slots, instead of reading only some of its partitions."""

    def twice(name: str) -> Topology:
        builder = StreamsBuilder()
        records = builder.stream(f"{name}-orders", key=STRING, value=json_of(Order))
        for stage in ("once", "twice"):
            records.transform_dataframe(
                priced, name=stage, value=json_of(Priced), trigger=Trigger.real_time()
            ).to(f"{name}-{stage}", key=STRING, value=json_of(Priced))
        return builder.build()

    application = Application(kafka, twice, {"orders": 4}, {"once": 4, "twice": 4})
    streams = application.streams(spark, tmp_path, num_stream_threads=1)
    streams.start()
    try:
        streams.wait_for_state("ERROR", STOPPED)
        assert isinstance(streams.error, DataFrameError)
        assert "needs 4 task slots" in str(streams.error)
        assert "only 3 are free" in str(streams.error)
    finally:
        streams.close(timedelta(seconds=60))


@pytest.mark.parametrize(
    ("function", "partitions", "messages"),
    [
        (python_function, 2, ["EvalPythonExec", "no Python function"]),
        (lambda rows: priced(rows).repartition(2), 2, ["ShuffleExchangeExec", "no Python"]),
        (priced, 9, ["needs 9 task slots", "are free. Give KafkaStreams a session with"]),
    ],
    ids=["python", "shuffle", "slots"],
)
def test_unsupported_functions_in_real_time_close_the_application(
    kafka: EmbeddedKafka,
    spark: SparkSession,
    tmp_path: Path,
    function: Any,
    partitions: int,
    messages: list[str],
) -> None:
    application = application_of(kafka, pricing(function), partitions)
    application.places.write(orders(application.name, 0, 1))
    streams = application.streams(spark, tmp_path, num_stream_threads=1)
    streams.start()
    try:
        streams.wait_for_state("ERROR", STOPPED)
        assert isinstance(streams.error, DataFrameError)
        for part in ("'price'", "Trigger.processing_time(...)", "test_real_time.py", *messages):
            assert part in str(streams.error)
    finally:
        streams.close(timedelta(seconds=60))
