"""Applications on a broker with TLS and authentication, and errors of failed logins."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from support.broker.topics import InputRecord, read_all, unique
from support.machine.leftovers import nothing_left
from support.running.applications import Application
from support.running.word_count import RUNNING, WordCount
from support.waiting import hang_guard, wait_for

from millstream import KafkaStreams, StreamsBuilder, StreamsConfig, Topology, Trigger
from millstream.errors import AccessDeniedError, BrokerUnavailableError, StreamsError
from millstream.kafka.membership.connections import MemberConnections, open_connections
from millstream.kafka.settings.librdkafka_settings import kafka_python_settings
from millstream.lake import read_table
from millstream.parallel import TaskProducer
from millstream.serdes import STRING
from millstream.testing import EmbeddedKafka

pytestmark = pytest.mark.extended

#: Errors must be reported within this time.
SOON_S = 30.0

#: The argument of the token function.
SECRET = "never-shown"
USER, PASSWORD = "ann", 'pass "word" \\ = 1;'
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"


@pytest.fixture(scope="module")
def secured() -> Iterator[EmbeddedKafka]:
    """A broker for the user ann only, with TLS only."""
    with EmbeddedKafka(security_protocol="SASL_SSL", users={USER: PASSWORD}) as kafka:
        yield kafka


def java_names(kafka: EmbeddedKafka) -> dict[str, Any]:
    """As in the properties file of a Java application."""
    password = PASSWORD.replace("\\", "\\\\").replace('"', '\\"')
    return {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": f'{_SCRAM} required username="{USER}" password="{password}";',
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": kafka.client_settings()["ssl.truststore.location"],
    }


def librdkafka_names(kafka: EmbeddedKafka) -> dict[str, Any]:
    """As in other Python programs."""
    return {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.username": USER,
        "sasl.password": PASSWORD,
        "ssl.ca.location": kafka.client_settings()["ssl.truststore.location"],
    }


def tokens(kafka: EmbeddedKafka) -> dict[str, Any]:
    """Tokens from a user function."""
    return kafka.client_settings(USER, "OAUTHBEARER")


def test_word_count_with_settings_of_java_and_librdkafka(
    secured: EmbeddedKafka, spark: SparkSession, tmp_path: Path
) -> None:
    """Goal: every client logs in: the counts are exact, and continue with the other names, and
    with tokens."""
    app = WordCount(secured, tmp_path, partitions=2, num_stream_threads=1)
    for names in (java_names, librdkafka_names, tokens):
        app.write_lines(500)
        with nothing_left():
            streams = app.streams(spark, clients=names(secured))
            streams.start()
            try:
                streams.wait_for_state("RUNNING", RUNNING)
                wait_for(app.is_exact, 60, "every count is exact")
            finally:
                assert streams.close(timedelta(seconds=30))


def uppercase_topology(name: str, lake: Path | None, trigger: Trigger | None = None) -> Topology:
    """Words go through Spark to a topic and a store, and unchanged to a table."""
    builder = StreamsBuilder()
    words = builder.stream(f"{name}-in", key=STRING, value=STRING)
    loud = words.transform_dataframe(
        lambda rows: rows.selectExpr("key", "upper(value) AS value", "timestamp"),
        name="shout",
        trigger=trigger,
    )
    loud.to(f"{name}-out")
    loud.group_by_key().count(store="counts")
    if lake is not None:
        words.to_lake(str(lake), name="to-lake")
    return builder.build()


def words_of(application: Application) -> list[InputRecord]:
    """A hundred different words."""
    topic = application.topic("in")
    return [
        InputRecord(topic, number % 2, f"key-{number % 2}", f"word-{number}", number + 1)
        for number in range(100)
    ]


def uppercase_output(secured: EmbeddedKafka, application: Application) -> list[bytes]:
    """The sorted output."""
    read = read_all(secured.unsecured_servers, application.topic("out"))
    return sorted(value or b"" for _, value in read)


@pytest.mark.slow
@pytest.mark.parametrize("names", [java_names, librdkafka_names])
def test_spark_logs_in_to_read_and_write(
    secured: EmbeddedKafka,
    spark: SparkSession,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    names: Any,
) -> None:
    """Goal: a DataFrame function under exactly-once, a lake table and a store as a DataFrame on
    a broker with TLS and SCRAM or PLAIN: all input is processed once, and no plan contains the
    password."""
    lake = tmp_path / "lake"
    application = Application(
        secured, lambda name: uppercase_topology(name, lake), {"in": 2}, {"out": 2}
    )
    sent = words_of(application)
    application.places.write(sent)
    expected = sorted((each.value or "").upper().encode() for each in sent)

    def written() -> list[bytes]:
        return uppercase_output(secured, application)

    def stored() -> list[str]:
        if not any(lake.glob("*.parquet")):
            return []
        return sorted(row.value for row in read_table(spark, str(lake), "parquet").collect())

    settings = {"clients": names(secured), "processing_guarantee": "exactly_once_v2"}
    with application.running(spark, tmp_path / "state", **settings) as (streams, _):
        wait_for(lambda: written() == expected, 120, lambda: f"all words, not {written()[:3]}")
        wait_for(
            lambda: stored() == sorted(each.value or "" for each in sent),
            120,
            "all rows are written",
        )
        counts = streams.dataframe("counts")
        wait_for(
            lambda: sum(row.value for row in streams.dataframe("counts").collect()) == 100,
            60,
            "all words are counted",
        )
        counts.explain(True)
        plan = capsys.readouterr().out
        assert "millstream" in plan
        assert PASSWORD not in plan
        running = [each for each in spark.streams.active if application.name in str(each.name)]
        assert len(running) == 2
        for query in running:
            assert PASSWORD not in str(query.lastProgress)


@pytest.mark.slow
@pytest.mark.parametrize("names", [java_names, librdkafka_names])
def test_spark_logs_in_in_real_time_mode(
    secured: EmbeddedKafka,
    spark: SparkSession,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    names: Any,
) -> None:
    """Goal: in real-time mode Spark's own sink writes, and also logs in with either mechanism;
    neither the plans nor the progress reports contain the password."""
    application = Application(
        secured,
        lambda name: uppercase_topology(name, None, Trigger.real_time()),
        {"in": 2},
        {"out": 2},
    )
    sent = words_of(application)
    expected = sorted((each.value or "").upper().encode() for each in sent)
    with application.running(spark, tmp_path, clients=names(secured), num_stream_threads=1):
        application.places.write(sent)
        wait_for(
            lambda: uppercase_output(secured, application) == expected, 120, "all words are written"
        )
        (query,) = (each for each in spark.streams.active if application.name in str(each.name))
        wait_for(lambda: query.lastProgress, 60, "a batch has ended")
        query.explain(True)
        plan = capsys.readouterr().out
        assert "kafka" in plan.lower()
        assert PASSWORD not in plan
        assert PASSWORD not in str(query.lastProgress)


def test_a_task_producer_logs_in(secured: EmbeddedKafka) -> None:
    """Goal: it accepts the same names, and its futures soon report the reason of a rejected login.

    Method: a wrong password fails each pending task, long before its delivery timeout.
    """
    topic = unique("tasks")
    secured.create_topic(topic, 1)

    def producer(settings: dict[str, Any]) -> TaskProducer:
        return TaskProducer(
            topic,
            application_id="shop",
            bootstrap_servers=secured.bootstrap_servers,
            value=STRING,
            settings=settings,
        )

    for names in (java_names, librdkafka_names, tokens):
        with producer(names(secured)) as writer:
            assert writer.put("a", "task").result(SOON_S).topic == topic
    with producer({**secured.client_settings(), "sasl.password": "wrong"}) as writer:
        for put in [writer.put("a", "task") for _ in range(2)]:
            with pytest.raises(AccessDeniedError, match="Check security"):
                put.result(SOON_S)


def no_token(secret: str) -> tuple[str, float]:
    """A function with a secret argument, which fails."""
    raise OSError(f"{len(secret)} characters are wrong")


def wrong_settings(kafka: EmbeddedKafka, folder: Path) -> dict[str, dict[str, Any]]:
    """Settings with one mistake each."""
    right = kafka.client_settings()
    unrelated_certificate = folder / "stranger.pem"
    unrelated_certificate.write_text(UNRELATED_CERTIFICATE)
    without_tls = {name: value for name, value in right.items() if not name.startswith("ssl")}
    return {
        "password": {**right, "sasl.password": "wrong"},
        "certificate": {**right, "ssl.truststore.location": str(unrelated_certificate)},
        "plaintext": {},
        "without TLS": {**without_tls, "security.protocol": "SASL_PLAINTEXT"},
        "token": {
            **tokens(kafka),
            "sasl.login.callback.handler.class": partial(no_token, SECRET),
        },
        "without login": {
            name: value
            for name, value in {**right, "security.protocol": "SSL"}.items()
            if not name.startswith("sasl")
        },
    }


EXPECTED: dict[str, tuple[type[StreamsError], str]] = {
    "password": (AccessDeniedError, "Check security.protocol and the sasl"),
    "token": (AccessDeniedError, "no_token, configured as sasl.login.callback.handler.class, "),
    "certificate": (AccessDeniedError, "Set ssl.truststore.location (or ssl.ca.location) to"),
    "plaintext": (BrokerUnavailableError, "security.protocol=PLAINTEXT must be SSL or SASL_SSL"),
    "without TLS": (BrokerUnavailableError, "security.protocol=SASL_PLAINTEXT must be SASL_SSL"),
    "without login": (BrokerUnavailableError, "requires a login (security.protocol=SASL_SSL)"),
}


def config(kafka: EmbeddedKafka, folder: Path, clients: dict[str, Any]) -> StreamsConfig:
    return StreamsConfig(
        application_id=unique("refused"),
        bootstrap_servers=kafka.bootstrap_servers,
        state_dir=str(folder / "state"),
        clients=clients,
    )


def failure_of(call: Any) -> StreamsError:
    """The error of a call, which must not wait for the end of an outage."""
    with hang_guard("the failure"), pytest.raises(StreamsError) as raised:
        call()
    return raised.value


def test_wrong_settings_are_reported_soon(
    secured: EmbeddedKafka, spark: SparkSession, tmp_path: Path
) -> None:
    """Goal: the application and the group member both explain the remedy.

    The application fails at its start; a member fails alone if only its own settings or those of
    its machine are wrong.
    """
    builder = StreamsBuilder()
    builder.stream("in", key=STRING, value=STRING).to("out", key=STRING, value=STRING)
    topology = builder.build()

    def start(settings: StreamsConfig) -> None:
        KafkaStreams(topology, settings, spark).start()

    def join(settings: StreamsConfig) -> None:
        keywords = kafka_python_settings(settings, client_id="member")
        open_connections(keywords, group_id="refused", client_id="member", stopped=lambda: False)

    cases = {
        name: config(secured, tmp_path, clients)
        for name, clients in wrong_settings(secured, tmp_path).items()
    }
    with nothing_left(), ThreadPoolExecutor(2 * len(cases)) as pool:
        failures = {
            (name, call): pool.submit(failure_of, lambda c=call, s=settings: c(s))
            for name, settings in cases.items()
            for call in (start, join)
        }
    for (name, _), failure in failures.items():
        error = failure.result()
        kind, advice = EXPECTED[name]
        assert type(error) is kind, (name, error)
        assert advice in str(error)
        assert PASSWORD not in str(error)
        assert SECRET not in str(error)


class LateLink(MemberConnections):
    """Connections with a delayed event loop, as on an overloaded machine."""

    LATE_S = 0.3

    def start(self) -> None:
        super().start()
        self.run_soon(self._hold)

    def _hold(self) -> None:
        time.sleep(self.LATE_S)
        self.run_soon(self._hold)


def test_a_rejected_login_is_reported_with_a_delayed_event_loop(
    secured: EmbeddedKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: a wrong password is reported, although the broker closes the connection before its
    response is read."""
    monkeypatch.setattr("millstream.kafka.membership.connections.MemberConnections", LateLink)
    wrong = {**secured.client_settings(), "sasl.password": "wrong"}
    keywords = kafka_python_settings(config(secured, tmp_path, wrong), client_id="member")
    with pytest.raises(AccessDeniedError, match="Check security"):
        open_connections(
            {**keywords, "bootstrap_timeout_ms": int(SOON_S * 1000)},
            group_id="refused",
            client_id="member",
            stopped=lambda: False,
        )


#: An unrelated self-signed certificate; its expiry in 2027 does not matter.
UNRELATED_CERTIFICATE = """-----BEGIN CERTIFICATE-----
MIIBaTCCARCgAwIBAgIJALWvY711tPmmMAoGCCqGSM49BAMCMBQxEjAQBgNVBAMT
CWxvY2FsaG9zdDAeFw0yNjExMjAyMzI1MDFaFw0yNzExMjAyMzI1MDFaMBQxEjAQ
BgNVBAMTCWxvY2FsaG9zdDBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABEFuiRWk
/LfmLaWwoeudReAU95vtUmzNzk+SYOebK7cYCOz7pYHUYN23aQkI92ZS61Z+IC/Q
2qQjkNujF2R1KTujSzBJMB0GA1UdDgQWBBT01hnrT4nPmBrqQ/fXsAak5wtWPzAa
BgNVHREEEzARgglsb2NhbGhvc3SHBH8AAAEwDAYDVR0TBAUwAwEB/zAKBggqhkjO
PQQDAgNHADBEAiALec1iCilVk6btCtQbjucsN4I4a3R+f7//XhQEvhkEAgIgHX29
icDVNdg9be2BBtPybVEjdrNbioqVknu5eUmxaVc=
-----END CERTIFICATE-----
"""
