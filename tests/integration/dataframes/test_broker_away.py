"""A DataFrame function during and after a broker outage."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from support.broker.topics import InputRecord, read_all
from support.running.applications import Application
from support.waiting import wait_for

from millstream import (
    StreamsBuilder,
    StreamsUncaughtExceptionHandlerResponse,
    Topology,
)
from millstream.serdes import STRING
from millstream.testing import EmbeddedKafka

pytestmark = pytest.mark.slow

_WAIT_S = 240
#: Longer than the outage, so that no error handler is called, not even for stream threads.
_TASK_TIMEOUT_MS = 600_000
#: The longest session timeout that `max.poll.interval.ms` permits.
_SESSION_MS = 300_000


def uppercase_topology(name: str) -> Topology:
    builder = StreamsBuilder()
    words = builder.stream(f"{name}-in", key=STRING, value=STRING)
    words.transform_dataframe(
        lambda rows: rows.selectExpr("key", "upper(value) AS value", "timestamp"), name="shout"
    ).to(f"{name}-out")
    return builder.build()


def words(application: Application, numbers: range) -> list[InputRecord]:
    topic = application.topic("in")
    return [InputRecord(topic, n % 2, f"key-{n % 2}", f"word-{n}", n + 1) for n in numbers]


class UppercaseApplication:
    """The application, on a broker that a test stops and starts.

    Args:
        own: the broker.
        spark: the session.
        folder: for its state.
        settings: further settings.

    Attributes:
        handled: the errors passed to the uncaught exception handler.
    """

    def __init__(
        self, own: EmbeddedKafka, spark: SparkSession, folder: Path, **settings: Any
    ) -> None:
        self._own = own
        self._spark = spark
        self._application = Application(own, uppercase_topology, {"in": 2}, {"out": 2})
        self.handled: list[Exception] = []
        self.streams = self._application.streams(
            spark,
            folder,
            processing_guarantee="exactly_once_v2",
            task_timeout_ms=_TASK_TIMEOUT_MS,
            num_stream_threads=1,
            **settings,
        )
        self.streams.set_uncaught_exception_handler(self._handle)

    def _handle(self, error: Exception) -> StreamsUncaughtExceptionHandlerResponse:
        self.handled.append(error)
        return StreamsUncaughtExceptionHandlerResponse.SHUTDOWN_CLIENT

    @property
    def state(self) -> float | str:
        """The state of the DataFrame function."""
        group = "stream-dataframe-metrics"
        metrics = self.streams.metrics().named("state")
        (found,) = [each for each in metrics if each.group == group]
        return found.value

    @property
    def has_query(self) -> bool:
        """Whether Spark runs the function's query."""
        name = f"{self._application.name}-shout"
        return any(query.name == name for query in self._spark.streams.active)

    def write_and_wait(self, numbers: range) -> None:
        """Write words, and wait until the output contains all words up to them, each once."""
        self._application.places.write(words(self._application, numbers))
        expected = sorted(f"WORD-{number}".encode() for number in range(numbers.stop))
        self.wait(lambda: self._written() == expected, f"the words up to {numbers.stop}")

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for a condition while the handler is not called."""
        wait_for(
            lambda: bool(self.handled) or condition(),
            _WAIT_S,
            lambda: f"{what}; the state is {self.state}",
        )
        assert not self.handled

    def _written(self) -> list[bytes]:
        read = read_all(self._own.bootstrap_servers, self._application.topic("out"))
        return sorted(value or b"" for _, value in read)

    def close(self) -> bool:
        """Close the application; return whether all of it was closed in time."""
        return self.streams.close(timedelta(seconds=60))


def test_a_function_is_on_standby_without_a_broker(spark: SparkSession, tmp_path: Path) -> None:
    """Goal: a driver without a broker stops the query, because another driver might run it by
    then, and restarts it when a broker is back, without calling the handler: all input is
    processed, once."""
    with EmbeddedKafka() as own:
        application = UppercaseApplication(own, spark, tmp_path)
        application.streams.start()
        try:
            application.write_and_wait(range(50))
            assert application.has_query
            own.kill()
            application.wait(lambda: application.state == "standby", "the function is on standby")
            assert not application.has_query
            own.start()
            application.write_and_wait(range(50, 100))
            assert application.state == "running"
        finally:
            assert application.close()


def test_a_function_that_cannot_start_is_retried(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Goal: a query whose start finds no broker is started when there is one, without calling the
    handler.

    Method: the driver keeps its right to run the query, because its session is long. The query is
    stopped by a pause, and its start requests offsets from the broker.
    """
    with EmbeddedKafka() as own:
        session = {"session.timeout.ms": _SESSION_MS}
        application = UppercaseApplication(own, spark, tmp_path, consumer=session)
        application.streams.start()
        try:
            application.write_and_wait(range(50))
            own.kill()
            application.streams.pause()
            application.wait(lambda: application.state == "paused", "the query is stopped")
            application.streams.resume()
            message = "DataFrame function shout is waiting for a broker, and will be restarted in"
            application.wait(lambda: message in caplog.text, "the start has failed")
            own.start()
            application.write_and_wait(range(50, 100))
            assert application.state == "running"
            restarts = application.streams.metrics().total("restarts-total")
            assert restarts >= 1
        finally:
            assert application.close()
