"""Conversion of client settings for the Java clients of Spark's Kafka connector.

Users write Java's names, so most settings are passed unchanged. Settings that only librdkafka and
kafka-python have are converted: a user name and a password without a JAAS line, certificates in
separate files, and PEM files without a declared type.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from millstream.errors import ConfigError
from millstream.kafka.settings.client_security import unreadable_file

_PASSED: Final = (
    "security.",
    "ssl.",
    "sasl.",
    "client.dns.lookup",
    "connections.max.idle.ms",
    "metadata.max.age.ms",
    "reconnect.backoff.",
    "request.timeout.ms",
    "retry.backoff.",
    "socket.connection.setup.timeout.",
    "receive.buffer.bytes",
    "send.buffer.bytes",
    "client.rack",
    "fetch.",
    "max.partition.fetch.bytes",
)
_OWN_FORMS: Final = (
    "sasl.username",
    "sasl.password",
    "sasl.kerberos.principal",
    "sasl.kerberos.keytab",
    "ssl.ca.location",
    "ssl.certificate.location",
    "ssl.key.location",
)
_LOGIN_MODULES: Final = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
_KERBEROS: Final = "com.sun.security.auth.module.Krb5LoginModule"
_PEM_ENDINGS: Final = (".pem", ".crt", ".cer", ".key")


def java_client_options(values: Mapping[str, Any]) -> dict[str, str]:
    """Return a Java client's connection, login and fetch settings.

    Raises ConfigError if a PEM file cannot be read, and for the mechanism OAUTHBEARER.
    """
    options = {
        name: _text_of(value)
        for name, value in values.items()
        if name.startswith(_PASSED) and name not in _OWN_FORMS and value is not None
    }
    protocol = str(values.get("security.protocol", "PLAINTEXT")).upper()
    if protocol.endswith("SSL"):
        options |= _stores(values)
    if protocol.startswith("SASL"):
        options |= _login(values)
    return options


def _text_of(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _stores(values: Mapping[str, Any]) -> dict[str, str]:
    options: dict[str, str] = {}
    for which in ("truststore", "keystore"):
        location = str(values.get(f"ssl.{which}.location") or "")
        given = values.get(f"ssl.{which}.type")
        inline = values.get(
            "ssl.truststore.certificates" if which == "truststore" else "ssl.keystore.key"
        )
        if not given and (inline or location.lower().endswith(_PEM_ENDINGS)):
            options[f"ssl.{which}.type"] = "PEM"
    if values.get("ssl.ca.location") and not values.get("ssl.truststore.location"):
        options |= {
            "ssl.truststore.type": "PEM",
            "ssl.truststore.certificates": _file_text(values, "ssl.ca.location"),
        }
    if values.get("ssl.certificate.location") and not values.get("ssl.keystore.location"):
        key = "ssl.key.location" if values.get("ssl.key.location") else "ssl.certificate.location"
        options |= {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.certificate.chain": _file_text(values, "ssl.certificate.location"),
            "ssl.keystore.key": _file_text(values, key),
        }
    return options


def _file_text(values: Mapping[str, Any], name: str) -> str:
    try:
        return Path(str(values[name])).read_text()
    except (OSError, ValueError) as error:
        why = unreadable_file({name: values[name]}) or f"{name}={values[name]}: {error}"
        raise ConfigError(
            f"A file cannot be read: {why}. Check that it exists on this machine and is PEM."
        ) from error


def _login(values: Mapping[str, Any]) -> dict[str, str]:
    mechanism = str(values.get("sasl.mechanism", "GSSAPI")).upper()
    if mechanism == "OAUTHBEARER":
        raise ConfigError(
            "sasl.mechanism=OAUTHBEARER is not supported by Spark's Kafka connector: its Java "
            "clients cannot call the Python function that returns the tokens. Use another "
            "mechanism or ssl certificates, or run DataFrame functions in a separate application."
        )
    if values.get("sasl.jaas.config"):
        return {}
    if mechanism in _LOGIN_MODULES and values.get("sasl.username"):
        user, password = (
            str(values.get(name) or "").replace("\\", "\\\\").replace('"', '\\"')
            for name in ("sasl.username", "sasl.password")
        )
        line = f'{_LOGIN_MODULES[mechanism]} required username="{user}" password="{password}";'
        return {"sasl.jaas.config": line}
    if mechanism == "GSSAPI":
        principal = values.get("sasl.kerberos.principal")
        keytab = values.get("sasl.kerberos.keytab")
        where = (
            f'useKeyTab=true storeKey=true keyTab="{keytab}" principal="{principal}"'
            if keytab
            else "useTicketCache=true"
        )
        service = {"sasl.kerberos.service.name": "kafka"}
        if values.get("sasl.kerberos.service.name"):
            service = {}
        return {"sasl.jaas.config": f"{_KERBEROS} required {where};", **service}
    return {}
