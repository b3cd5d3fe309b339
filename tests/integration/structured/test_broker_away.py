"""A DataFrame function while no broker answers, and after."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from support.broker.records import Sent
from support.broker.topics import read_all
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
#: Longer than the broker is away, so that nobody is to be asked: of stream threads as well.
_PATIENT_MS = 600_000
#: As long as `max.poll.interval.ms` lets it be.
_SESSION_MS = 300_000


def shouting(name: str) -> Topology:
    builder = StreamsBuilder()
    words = builder.stream(f"{name}-in", key=STRING, value=STRING)
    words.transform_dataframe(
        lambda rows: rows.selectExpr("key", "upper(value) AS value", "timestamp"), name="shout"
    ).to(f"{name}-out")
    return builder.build()


def words(application: Application, numbers: range) -> list[Sent]:
    topic = application.topic("in")
    return [Sent(topic, n % 2, f"key-{n % 2}", f"word-{n}", n + 1) for n in numbers]


class Shout:
    """The application, running on a broker that comes and goes.

    Args:
        own: the broker.
        spark: where it runs.
        folder: for its state.
        settings: more of its settings.

    Attributes:
        asked: the errors that the uncaught exception handler was asked about.
    """

    def __init__(
        self, own: EmbeddedKafka, spark: SparkSession, folder: Path, **settings: Any
    ) -> None:
        self._own = own
        self._spark = spark
        self._application = Application(own, shouting, {"in": 2}, {"out": 2})
        self.asked: list[Exception] = []
        self.streams = self._application.streams(
            spark,
            folder,
            processing_guarantee="exactly_once_v2",
            task_timeout_ms=_PATIENT_MS,
            num_stream_threads=1,
            **settings,
        )
        self.streams.set_uncaught_exception_handler(self._ask)

    def _ask(self, error: Exception) -> StreamsUncaughtExceptionHandlerResponse:
        self.asked.append(error)
        return StreamsUncaughtExceptionHandlerResponse.SHUTDOWN_CLIENT

    @property
    def state(self) -> float | str:
        """Of the DataFrame function."""
        group = "stream-dataframe-metrics"
        metrics = self.streams.metrics().named("state")
        (found,) = [each for each in metrics if each.group == group]
        return found.value

    @property
    def has_query(self) -> bool:
        """Whether Spark runs the function."""
        name = f"{self._application.name}-shout"
        return any(query.name == name for query in self._spark.streams.active)

    def shout(self, numbers: range) -> None:
        """Put words in, and wait until all words up to them have come out, each once."""
        self._application.places.write(words(self._application, numbers))
        wanted = sorted(f"WORD-{number}".encode() for number in range(numbers.stop))
        self.wait(lambda: self._written() == wanted, f"the words up to {numbers.stop}")

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for something, as long as the handler is not asked."""
        wait_for(
            lambda: bool(self.asked) or condition(), _WAIT_S, lambda: f"{what}; it is {self.state}"
        )
        assert not self.asked

    def _written(self) -> list[bytes]:
        read = read_all(self._own.bootstrap_servers, self._application.topic("out"))
        return sorted(value or b"" for _, value in read)

    def close(self) -> bool:
        """Whether all of it was closed in time."""
        return self.streams.close(timedelta(seconds=60))


def test_a_function_is_on_standby_without_a_broker(spark: SparkSession, tmp_path: Path) -> None:
    """Goal: a driver that no broker answers stops the query, because another one might run it by
    then, and goes on when a broker is back, without asking anybody: all that has come in is
    processed, once."""
    with EmbeddedKafka() as own:
        application = Shout(own, spark, tmp_path)
        application.streams.start()
        try:
            application.shout(range(50))
            assert application.has_query
            own.kill()
            application.wait(lambda: application.state == "standby", "it is not sure any more")
            assert not application.has_query
            own.start()
            application.shout(range(50, 100))
            assert application.state == "running"
        finally:
            assert application.close()


def test_a_function_that_cannot_start_is_tried_again(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Goal: a query whose start finds no broker is started when there is one, without asking
    anybody.

    Method: the driver stays sure that it is to run the query, as its session is long. The query is
    stopped by a pause, and its start asks the broker how far it is.
    """
    with EmbeddedKafka() as own:
        session = {"session.timeout.ms": _SESSION_MS}
        application = Shout(own, spark, tmp_path, consumer=session)
        application.streams.start()
        try:
            application.shout(range(50))
            own.kill()
            application.streams.pause()
            application.wait(lambda: application.state == "paused", "the query is stopped")
            application.streams.resume()
            told = "DataFrame function shout waits for a broker, and is started again in"
            application.wait(lambda: told in caplog.text, "its start has failed")
            own.start()
            application.shout(range(50, 100))
            assert application.state == "running"
            restarts = application.streams.metrics().total("restarts-total")
            assert restarts >= 1
        finally:
            assert application.close()
