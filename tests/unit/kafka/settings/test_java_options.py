"""Client settings translated for Java clients."""

from __future__ import annotations

from pathlib import Path

import pytest

from millstream.errors import ConfigError
from millstream.kafka.settings.java_options import java_client_options


def test_only_settings_known_to_java_are_passed() -> None:
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


def test_user_and_password_become_a_jaas_configuration() -> None:
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


def test_pem_files_are_passed_as_pem(tmp_path: Path) -> None:
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


def test_token_functions_are_rejected() -> None:
    given = {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}
    with pytest.raises(ConfigError, match="is not supported by Spark's Kafka connector"):
        java_client_options(given)
