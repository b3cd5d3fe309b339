"""Translation of Java's SSL and SASL settings for librdkafka and kafka-python.

Java uses key stores and a JAAS line. The two libraries use PEM files, user names and passwords.
Settings that one of the libraries does not support are rejected.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from millstream.errors import ConfigError
from millstream.kafka.settings.client_credentials import jaas_options
from millstream.kafka.settings.tokens import KafkaPythonTokens, LibrdkafkaTokens, token_supply

_JAVA_STORE_ENDINGS: Final = (".jks", ".keystore", ".truststore", ".bcfks")
_PKCS12_ENDINGS: Final = (".p12", ".pfx", ".pkcs12")
_PASSWORD_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_MECHANISMS: Final = (*_PASSWORD_MECHANISMS, "GSSAPI", "OAUTHBEARER")


def security_for_librdkafka(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return librdkafka's settings for a secured connection, or raise ConfigError."""
    protocol = str(values.get("security.protocol", "PLAINTEXT")).upper()
    settings: dict[str, Any] = {"security.protocol": protocol}
    if protocol.endswith("SSL"):
        settings.update(_ssl_for_librdkafka(values))
    if protocol.startswith("SASL"):
        settings.update(_sasl_for_librdkafka(values))
    return settings


def security_for_kafka_python(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return kafka-python's keyword arguments, or raise ConfigError.

    Reads certificate files.
    """
    protocol = str(values.get("security.protocol", "PLAINTEXT")).upper()
    settings: dict[str, Any] = {"security_protocol": protocol}
    if protocol.endswith("SSL"):
        settings["ssl_context"] = _ssl_context(values)
        settings["ssl_check_hostname"] = _check_hostname(values)
    if protocol.startswith("SASL"):
        settings.update(_sasl_for_kafka_python(values))
    return settings


@dataclass(frozen=True)
class _Store:
    location: str
    kind: str


def _store(values: Mapping[str, Any], which: str) -> _Store | None:
    location = values.get(f"ssl.{which}.location")
    if not location:
        return None
    declared = values.get(f"ssl.{which}.type")
    kind = str(declared).upper() if declared else _kind_by_name(str(location))
    if kind not in ("PEM", "PKCS12"):
        raise ConfigError(
            f"ssl.{which}.location is a Java key store ({location}), which neither librdkafka nor "
            "kafka-python can read. Export it as PEM (keytool -importkeystore -deststoretype "
            f"PKCS12, then openssl pkcs12 -in ...), and set ssl.{which}.type=PEM."
        )
    return _Store(str(location), kind)


def _kind_by_name(location: str) -> str:
    """Derive the format from the file name, unlike Java, which always assumes JKS."""
    lowered = location.lower()
    if lowered.endswith(_JAVA_STORE_ENDINGS):
        return "JKS"
    return "PKCS12" if lowered.endswith(_PKCS12_ENDINGS) else "PEM"


def _ca_file(values: Mapping[str, Any], client: str) -> str | None:
    store = _store(values, "truststore")
    if store is None:
        location = values.get("ssl.ca.location")
        return str(location) if location else None
    if store.kind != "PEM":
        raise ConfigError(
            f"ssl.truststore.location is a PKCS12 file ({store.location}), which {client} cannot "
            "read. Export its certificates as PEM: openssl pkcs12 -in <file> -nokeys -out ca.pem."
        )
    return store.location


def _key_files(values: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return the files of the certificate chain and the key, which may be the same."""
    store = _store(values, "keystore")
    if store is not None and store.kind == "PEM":
        return store.location, store.location
    certificate, key = values.get("ssl.certificate.location"), values.get("ssl.key.location")
    if certificate:
        return str(certificate), str(key or certificate)
    return None


def _check_hostname(values: Mapping[str, Any]) -> bool:
    algorithm = str(values.get("ssl.endpoint.identification.algorithm", "https")).lower()
    return algorithm not in ("", "none")


def _ssl_for_librdkafka(values: Mapping[str, Any]) -> dict[str, Any]:
    enabled = values.get("ssl.enabled.protocols", ("TLSv1.2", "TLSv1.3"))
    if set(enabled) != {"TLSv1.2", "TLSv1.3"}:
        raise ConfigError(
            f"ssl.enabled.protocols={','.join(enabled)} is not supported by librdkafka, which "
            "negotiates TLSv1.2 or TLSv1.3. Restrict the versions on the brokers instead."
        )
    settings: dict[str, Any] = {
        "ssl.endpoint.identification.algorithm": "https" if _check_hostname(values) else "none"
    }
    ca_file = _ca_file(values, "librdkafka")
    if ca_file:
        settings["ssl.ca.location"] = ca_file
    elif values.get("ssl.truststore.certificates"):
        settings["ssl.ca.pem"] = values["ssl.truststore.certificates"]
    files = _key_files(values)
    if files:
        settings["ssl.certificate.location"], settings["ssl.key.location"] = files
    elif values.get("ssl.keystore.key"):
        settings["ssl.key.pem"] = values["ssl.keystore.key"]
        settings["ssl.certificate.pem"] = values.get("ssl.keystore.certificate.chain", "")
    else:
        store = _store(values, "keystore")
        if store is not None:
            settings["ssl.keystore.location"] = store.location
            settings["ssl.keystore.password"] = values.get("ssl.keystore.password", "")
    if values.get("ssl.key.password"):
        settings["ssl.key.password"] = values["ssl.key.password"]
    if values.get("ssl.cipher.suites"):
        settings["ssl.cipher.suites"] = ":".join(values["ssl.cipher.suites"])
    return settings


def _ssl_context(values: Mapping[str, Any]) -> ssl.SSLContext:
    store = _store(values, "keystore")
    if store is not None and store.kind != "PEM":
        raise ConfigError(
            f"ssl.keystore.location is a PKCS12 file ({store.location}), which kafka-python "
            "cannot read. Export it as PEM: openssl pkcs12 -in <file> -nodes -out client.pem, and "
            "set ssl.keystore.type=PEM."
        )
    if values.get("ssl.keystore.key"):
        raise ConfigError(
            "ssl.keystore.key is not supported by kafka-python, which only reads keys from files. "
            "Write the key and the certificate chain to a PEM file and set "
            "ssl.keystore.location to it."
        )
    try:
        context = ssl.create_default_context(
            cafile=_ca_file(values, "kafka-python"),
            cadata=values.get("ssl.truststore.certificates"),
        )
        context.check_hostname = _check_hostname(values)
        if values.get("ssl.cipher.suites"):
            context.set_ciphers(":".join(values["ssl.cipher.suites"]))
        files = _key_files(values)
        if files:
            context.load_cert_chain(*files, password=values.get("ssl.key.password"))
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"The ssl settings are not usable: {unreadable_file(values) or error}. Check that the "
            "files in the ssl.*.location settings exist on every machine that runs threads and "
            "are PEM files, and that ssl.key.password decrypts the key."
        ) from error
    return context


def unreadable_file(settings: Mapping[str, Any]) -> str:
    """Describe the first setting whose file cannot be read on this machine.

    Returns an empty string if all files can be read.
    """
    for name in sorted(name for name in settings if name.endswith(".location")):
        try:
            Path(settings[name]).read_bytes()
        except OSError as error:
            return f"{name}={settings[name]}: {error.strerror}"
    return ""


def _mechanism(values: Mapping[str, Any]) -> str:
    mechanism = str(values.get("sasl.mechanism", "GSSAPI")).upper()
    if mechanism not in _MECHANISMS:
        raise ConfigError(
            f"sasl.mechanism is {mechanism!r}, but librdkafka and kafka-python only support "
            f"{', '.join(_MECHANISMS)}."
        )
    return mechanism


def _login(values: Mapping[str, Any]) -> dict[str, str]:
    """Return the user name, password and Kerberos options.

    They are set in JAAS or in other settings.
    """
    options = jaas_options(str(values.get("sasl.jaas.config") or ""))
    names = {
        "username": "sasl.username",
        "password": "sasl.password",
        "principal": "sasl.kerberos.principal",
        "keyTab": "sasl.kerberos.keytab",
        "serviceName": "sasl.kerberos.service.name",
    }
    for option, name in names.items():
        if values.get(name):
            options[option] = str(values[name])
    return options


def _user_and_password(values: Mapping[str, Any], mechanism: str) -> tuple[str, str]:
    login = _login(values)
    if "username" not in login or "password" not in login:
        raise ConfigError(
            f"sasl.mechanism={mechanism} needs a user name and a password. Set sasl.username and "
            'sasl.password, or a sasl.jaas.config with username="..." and password="...".'
        )
    return login["username"], login["password"]


def _sasl_for_librdkafka(values: Mapping[str, Any]) -> dict[str, Any]:
    mechanism = _mechanism(values)
    settings: dict[str, Any] = {"sasl.mechanism": mechanism}
    if mechanism in _PASSWORD_MECHANISMS:
        settings["sasl.username"], settings["sasl.password"] = _user_and_password(values, mechanism)
    elif mechanism == "GSSAPI":
        login = _login(values)
        settings["sasl.kerberos.service.name"] = login.get("serviceName", "kafka")
        if "principal" in login:
            settings["sasl.kerberos.principal"] = login["principal"]
        if "keyTab" in login:
            settings["sasl.kerberos.keytab"] = login["keyTab"]
        if "sasl.kerberos.min.time.before.relogin" in values:
            settings["sasl.kerberos.min.time.before.relogin"] = values[
                "sasl.kerberos.min.time.before.relogin"
            ]
    else:
        settings["oauth_cb"] = LibrdkafkaTokens(token_supply(values))
    return settings


def _sasl_for_kafka_python(values: Mapping[str, Any]) -> dict[str, Any]:
    mechanism = _mechanism(values)
    settings: dict[str, Any] = {"sasl_mechanism": mechanism}
    if mechanism in _PASSWORD_MECHANISMS:
        user, password = _user_and_password(values, mechanism)
        settings["sasl_plain_username"], settings["sasl_plain_password"] = user, password
    elif mechanism == "GSSAPI":
        # kafka-python uses the ticket cache, which librdkafka refreshes if there is a keytab.
        settings["sasl_kerberos_service_name"] = _login(values).get("serviceName", "kafka")
    else:
        settings["sasl_oauth_token_provider"] = KafkaPythonTokens(token_supply(values))
    return settings
