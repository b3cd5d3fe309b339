"""The settings of a client as Java's own clients take them."""

from __future__ import annotations

from pathlib import Path

import pytest

from millstream.errors import ConfigError
from millstream.kafka.settings.java_options import java_client_options


def test_what_java_knows_goes_through_and_the_rest_stays() -> None:
    given = {
        "security.protocol": "SSL",
        "ssl.truststore.location": "/ca.p12",
        "ssl.cipher.suites": ["A", "B"],
        "fetch.max.wait.ms": 10,
        "max.poll.records": 7,
        "group.instance.id": "one",
    }
    assert java_client_options(given) == {
        "security.protocol": "SSL",
        "ssl.truststore.location": "/ca.p12",
        "ssl.cipher.suites": "A,B",
        "fetch.max.wait.ms": "10",
    }


def test_a_user_and_a_password_become_a_jaas_line() -> None:
    given = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "ann",
        "sasl.password": 'p"w',
    }
    assert java_client_options(given)["sasl.jaas.config"] == (
        "org.apache.kafka.common.security.scram.ScramLoginModule required "
        'username="ann" password="p\\"w";'
    )
    given["sasl.jaas.config"] = "as it is"
    assert java_client_options(given)["sasl.jaas.config"] == "as it is"


def test_files_in_pem_are_told_as_such(tmp_path: Path) -> None:
    for name in ("ca", "chain", "key"):
        (tmp_path / f"{name}.pem").write_text(f"the {name}")
    given = {
        "security.protocol": "SSL",
        "ssl.ca.location": str(tmp_path / "ca.pem"),
        "ssl.certificate.location": str(tmp_path / "chain.pem"),
        "ssl.key.location": str(tmp_path / "key.pem"),
    }
    assert java_client_options(given) == {
        "security.protocol": "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": "the ca",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": "the chain",
        "ssl.keystore.key": "the key",
    }
    given["ssl.ca.location"] = str(tmp_path / "none.pem")
    with pytest.raises(ConfigError, match=r"ssl\.ca\.location=.*none\.pem: No such file"):
        java_client_options(given)


def test_tokens_of_a_python_function_are_refused() -> None:
    given = {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}
    with pytest.raises(ConfigError, match="cannot be handed to Spark's Kafka connector"):
        java_client_options(given)
