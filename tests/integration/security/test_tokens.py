"""Token authentication of all clients of an application: tokens that expire while it runs, and a
function that fails."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from support.machine.leftovers import nothing_left
from support.running.word_count import RUNNING, WordCount
from support.waiting import wait_for

from millstream import (
    AT_LEAST_ONCE,
    EXACTLY_ONCE_V2,
)
from millstream.embedded.broker_security import UnsecuredTokens
from millstream.errors import AccessDeniedError
from millstream.testing import EmbeddedKafka

pytestmark = pytest.mark.slow

#: Brokers close a connection whose token has expired. librdkafka renews tokens with a precision of
#: a second.
LIFETIME_S = 8.0

USER = "ann"


@pytest.fixture(scope="module")
def secured() -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka(security_protocol="SASL_SSL", users={USER: "unused"}) as kafka:
        yield kafka


def with_tokens(kafka: EmbeddedKafka, function: Callable[[], tuple[Any, ...]]) -> dict[str, Any]:
    settings = kafka.client_settings(USER, "OAUTHBEARER")
    return {**settings, "sasl.login.callback.handler.class": function}


@pytest.mark.extended
@pytest.mark.parametrize("guarantee", [AT_LEAST_ONCE, EXACTLY_ONCE_V2])
def test_expiring_tokens_are_renewed(
    secured: EmbeddedKafka,
    spark: SparkSession,
    tmp_path: Path,
    guarantee: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Goal: member, admins, consumers and producers reauthenticate by themselves: the counts are
    exact after one and a half lifetimes of a token, and no thread was restarted."""
    calls = tmp_path / "calls"
    tokens = UnsecuredTokens(USER, LIFETIME_S)

    def counted() -> tuple[Any, ...]:
        with calls.open("a") as file:
            file.write("x")
        return (*tokens(), USER, {"tenant": "a"})

    app = WordCount(
        secured,
        tmp_path,
        partitions=2,
        num_stream_threads=1,
        processing_guarantee=guarantee,
        clients=with_tokens(secured, counted),
    )
    with nothing_left():
        streams = app.streams(spark)
        started = time.monotonic()
        streams.start()
        try:
            streams.wait_for_state("RUNNING", RUNNING)
            (thread,) = streams.metadata_for_local_threads()
            began = time.monotonic()
            while time.monotonic() < began + 1.5 * LIFETIME_S:
                app.write_lines(100)
                wait_for(app.is_exact, 30, "every count is exact")
                assert streams.state.name == "RUNNING"
            assert streams.metadata_for_local_threads()[0].pid == thread.pid
        finally:
            assert streams.close(timedelta(seconds=30))
    lifetimes = (time.monotonic() - started) / LIFETIME_S
    assert 3 <= len(calls.read_text()) <= 8 * lifetimes, "all clients of a process share tokens"


@pytest.mark.extended
def test_a_later_failure_of_the_function_ends_the_thread(
    secured: EmbeddedKafka, spark: SparkSession, tmp_path: Path
) -> None:
    """Goal: the thread continues until the last token expires; then it ends with the function's
    error."""
    broken = tmp_path / "broken"
    tokens = UnsecuredTokens(USER, LIFETIME_S)

    def breaks() -> tuple[Any, ...]:
        if broken.exists():
            raise OSError("the identity provider is away")
        return tokens()

    app = WordCount(
        secured,
        tmp_path,
        partitions=1,
        num_stream_threads=1,
        clients=with_tokens(secured, breaks),
    )
    with nothing_left():
        streams = app.streams(spark)
        streams.start()
        try:
            streams.wait_for_state("RUNNING", RUNNING)
            broken.touch()
            wait_for(lambda: streams.state.name == "ERROR", 3 * LIFETIME_S, "the thread has ended")
        finally:
            streams.close(timedelta(seconds=30))
    assert isinstance(streams.error, AccessDeniedError)
    assert "the identity provider is away" in str(streams.error)
