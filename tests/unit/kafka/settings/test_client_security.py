"""SSL and SASL settings for both Kafka libraries."""

from __future__ import annotations

import shutil
import ssl
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from millstream.config.streams_config import StreamsConfig
from millstream.errors import ConfigError
from millstream.kafka.settings.client_credentials import jaas_options
from millstream.kafka.settings.client_security import (
    security_for_kafka_python,
    security_for_librdkafka,
)
from millstream.kafka.settings.librdkafka_settings import (
    create_client,
    kafka_python_settings,
    librdkafka_settings,
)

PLAIN = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'username="bob" password="a \\"b; c=d";'
)

_REQUEST = (
    "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -keyout key.pem -out cert.pem"
)


@pytest.fixture(scope="module")
def pem(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A self-signed certificate and its key, in one PEM file."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl is not installed")
    folder = tmp_path_factory.mktemp("pem")
    subprocess.run(
        [openssl, *_REQUEST.split()],
        cwd=folder,
        check=True,
        capture_output=True,
    )
    both = folder / "client.pem"
    both.write_text((folder / "key.pem").read_text() + (folder / "cert.pem").read_text())
    return both


def test_jaas_options() -> None:
    """Quotes, escapes and unquoted values."""
    assert jaas_options(PLAIN) == {"username": "bob", "password": 'a "b; c=d'}
    kerberos = "Krb5LoginModule required useKeyTab=true keyTab='/a b' principal=x@Y;"
    assert jaas_options(kerberos) == {"useKeyTab": "true", "keyTab": "/a b", "principal": "x@Y"}
    assert jaas_options("") == {}


@pytest.mark.parametrize(
    "login",
    [{"sasl.jaas.config": PLAIN}, {"sasl.username": "bob", "sasl.password": 'a "b; c=d'}],
)
def test_passwords_reach_both_clients(login: dict[str, str]) -> None:
    """From a JAAS configuration or from librdkafka's names."""
    values = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-512", **login}
    ours = security_for_librdkafka(values)
    assert ours["sasl.mechanism"] == "SCRAM-SHA-512"
    assert (ours["sasl.username"], ours["sasl.password"]) == ("bob", 'a "b; c=d')
    create_client(Producer, ours)
    theirs = security_for_kafka_python(values)
    assert theirs["sasl_mechanism"] == "SCRAM-SHA-512"
    assert (theirs["sasl_plain_username"], theirs["sasl_plain_password"]) == ("bob", 'a "b; c=d')


def test_kerberos_reaches_both_clients() -> None:
    """librdkafka logs in with the key table; kafka-python uses the ticket cache."""
    values = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.kerberos.service.name": "broker",
        "sasl.jaas.config": 'Krb5LoginModule required keyTab="/k" principal="me@X";',
    }
    ours = security_for_librdkafka(values)
    assert ours["sasl.kerberos.service.name"] == "broker"
    assert ours["sasl.kerberos.keytab"] == "/k"
    assert ours["sasl.kerberos.principal"] == "me@X"
    theirs = security_for_kafka_python(values)
    assert theirs == {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "GSSAPI",
        "sasl_kerberos_service_name": "broker",
    }


def test_tokens_reach_both_clients() -> None:
    """One function supplies the same token to both."""
    calls = []

    def token() -> tuple[str, float]:
        calls.append(1)
        return f"t{len(calls)}", 100.0

    values = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.login.callback.handler.class": token,
    }
    provider = security_for_kafka_python(values)["sasl_oauth_token_provider"]
    assert [provider.token(), provider.token()] == ["t1", "t1"]
    text, expiry_s, *_ = security_for_librdkafka(values)["oauth_cb"]("")
    assert text == "t1"
    assert time.time() < expiry_s <= time.time() + 100


def test_ssl_files_reach_both_clients(pem: Path) -> None:
    """PEM files, by Java's or librdkafka's names."""
    java = {
        "ssl.truststore.location": str(pem),
        "ssl.truststore.type": "PEM",
        "ssl.keystore.location": str(pem),
        "ssl.endpoint.identification.algorithm": "",
    }
    direct = {
        "ssl.ca.location": str(pem),
        "ssl.certificate.location": str(pem),
        "ssl.endpoint.identification.algorithm": "none",
    }
    for files in (java, direct):
        values = {"security.protocol": "SSL", **files}
        ours = security_for_librdkafka(values)
        assert ours["ssl.ca.location"] == str(pem)
        assert ours["ssl.certificate.location"] == ours["ssl.key.location"] == str(pem)
        assert ours["ssl.endpoint.identification.algorithm"] == "none"
        create_client(Producer, ours)
        theirs = security_for_kafka_python(values)
        context = theirs["ssl_context"]
        assert isinstance(context, ssl.SSLContext)
        assert len(context.get_ca_certs()) == 1
        assert context.check_hostname is False
        assert context.verify_mode == ssl.CERT_REQUIRED


def test_certificates_as_text(pem: Path) -> None:
    """Both clients accept certificates as text; only librdkafka accepts a key."""
    text = (pem.parent / "cert.pem").read_text()
    values = {"security.protocol": "SSL", "ssl.truststore.certificates": text}
    assert security_for_librdkafka(values)["ssl.ca.pem"] == text
    assert len(security_for_kafka_python(values)["ssl_context"].get_ca_certs()) == 1
    values["ssl.keystore.key"] = "-----BEGIN"
    assert security_for_librdkafka(values)["ssl.key.pem"] == "-----BEGIN"
    with pytest.raises(ConfigError, match=r"ssl\.keystore\.key .* kafka-python"):
        security_for_kafka_python(values)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"ssl.truststore.location": "/a/trust.jks"}, "Java key store"),
        ({"ssl.truststore.location": "/a/trust", "ssl.truststore.type": "JKS"}, "Java key store"),
        ({"ssl.truststore.location": "/a/trust.p12"}, "PKCS12"),
        ({"ssl.enabled.protocols": ("TLSv1.3",)}, "is not supported by librdkafka"),
    ],
)
def test_key_stores_that_librdkafka_cannot_read(values: dict[str, Any], message: str) -> None:
    """The error explains how to convert them."""
    with pytest.raises(ConfigError, match=message):
        security_for_librdkafka({"security.protocol": "SSL", **values})


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"ssl.keystore.location": "/a/key.p12"}, r"PKCS12 .* kafka-python cannot read"),
        ({"ssl.ca.location": "/no/such/file"}, "exist on every machine"),
        ({"ssl.cipher.suites": ("NO_SUCH",)}, "are not usable"),
    ],
)
def test_key_stores_that_kafka_python_cannot_read(values: dict[str, Any], message: str) -> None:
    """Every application also has a group member, which uses kafka-python."""
    with pytest.raises(ConfigError, match=message):
        security_for_kafka_python({"security.protocol": "SSL", **values})


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"sasl.mechanism": "PLAIN"}, "user name and a password"),
        ({"sasl.mechanism": "AWS_MSK_IAM"}, "only support"),
        ({"sasl.mechanism": "OAUTHBEARER"}, "a Python function"),
    ],
)
def test_incomplete_logins(values: dict[str, Any], message: str) -> None:
    """Both clients would fail in the same way, but only later."""
    for translate in (security_for_librdkafka, security_for_kafka_python):
        with pytest.raises(ConfigError, match=message):
            translate({"security.protocol": "SASL_SSL", **values})


def test_security_settings_of_the_application_reach_every_client() -> None:
    """`security_protocol` and one dictionary are enough."""
    config = StreamsConfig(
        application_id="shop",
        bootstrap_servers="localhost:1",
        security_protocol="sasl_plaintext",
        clients={"sasl.mechanism": "PLAIN", "sasl.username": "u", "sasl.password": "p"},
    )
    for role in ("main_consumer", "restore_consumer", "global_consumer", "producer", "admin"):
        settings = librdkafka_settings(config, role, "x")
        assert settings["security.protocol"] == "SASL_PLAINTEXT"
        assert settings["sasl.username"] == "u"
    member = kafka_python_settings(config, client_id="x")
    assert member["security_protocol"] == "SASL_PLAINTEXT"
    assert member["sasl_plain_password"] == "p"
