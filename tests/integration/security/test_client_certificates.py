"""Mutual TLS: every client has a certificate with an encrypted key, which identifies it."""

from __future__ import annotations

import shutil
import subprocess
from datetime import timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from support.broker.access import AUTHORIZER, Permission, granted
from support.machine.leftovers import nothing_left
from support.running.word_count import RUNNING, WordCount
from support.waiting import wait_for

from millstream import EXACTLY_ONCE_V2, KafkaStreams
from millstream.errors import AccessDeniedError, ConfigError
from millstream.kafka.membership.connections import open_connections
from millstream.kafka.settings.librdkafka_settings import kafka_python_settings
from millstream.testing import EmbeddedKafka

pytestmark = pytest.mark.slow

PASSWORD, WRONG_PASSWORD = "opens the key", "opens nothing"


@pytest.fixture
def client_pem(tmp_path: Path) -> Path:
    """The client's encrypted key and its self-signed certificate, in one file."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl is not installed")
    request = "req -x509 -newkey rsa:2048 -days 2 -subj /CN=shop -keyout key.pem -out cert.pem"
    password = ["-passout", f"pass:{PASSWORD}"]
    subprocess.run(
        [openssl, *request.split(), *password], cwd=tmp_path, check=True, capture_output=True
    )
    both = tmp_path / "client.pem"
    both.write_text((tmp_path / "key.pem").read_text() + (tmp_path / "cert.pem").read_text())
    return both


def test_every_client_uses_its_certificate(
    client_pem: Path, spark: SparkSession, tmp_path: Path
) -> None:
    """Goal: the certificate identifies member, admins, consumers and the transactional producer;
    without it the start fails, as it does with a wrong password, which the error does not
    contain."""
    broker_properties = {
        **AUTHORIZER,
        "ssl.client.auth": "required",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(tmp_path / "cert.pem"),
    }
    with EmbeddedKafka(security_protocol="SSL", properties=broker_properties) as kafka:
        app = WordCount(
            kafka,
            tmp_path,
            partitions=1,
            num_stream_threads=1,
            processing_guarantee=EXACTLY_ONCE_V2,
        )
        own = ("READ", "WRITE", "CREATE", "DELETE")
        rights = [
            Permission("READ", "TOPIC", app.lines),
            Permission("WRITE", "TOPIC", app.counts),
            Permission("READ", "GROUP", app.application_id),
            Permission("WRITE", "TRANSACTIONAL_ID", f"{app.application_id}-*"),
            *(Permission(operation, "TOPIC", f"{app.application_id}-*") for operation in own),
        ]
        anonymous = kafka.client_settings()
        wrong = {
            **anonymous,
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(client_pem),
            "ssl.key.password": WRONG_PASSWORD,
        }
        correct_settings = {**wrong, "ssl.key.password": PASSWORD}
        app.write_lines(100)
        with granted(kafka, "CN=shop", rights), nothing_left():
            for clients, kind, message in (
                (anonymous, AccessDeniedError, "Set ssl.keystore.location"),
                (wrong, ConfigError, "ssl.key.password"),
            ):
                config = app.config(clients=clients)
                with pytest.raises(kind, match=message) as raised:
                    KafkaStreams(app.topology(), config, spark).start()
                assert WRONG_PASSWORD not in str(raised.value)
            keywords = kafka_python_settings(app.config(clients=anonymous), client_id="member")
            with pytest.raises(AccessDeniedError, match=r"Set ssl\.keystore\.location"):
                open_connections(keywords, group_id="g", client_id="member", stopped=lambda: False)
            with app.streams(spark, clients=correct_settings) as streams:
                streams.wait_for_state("RUNNING", RUNNING)
                wait_for(app.is_exact, 60, "every count is exact")
                assert streams.close(timedelta(seconds=30))
