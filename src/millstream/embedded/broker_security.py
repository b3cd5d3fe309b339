"""A secured listener for the embedded broker, with a certificate and users.

Java's `keytool` creates the certificate. It is self-signed, valid for `localhost`, 127.0.0.1 and
the configured host, and removed with the broker's folder.
"""

from __future__ import annotations

import base64
import ipaddress
import json
import re
import secrets
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from millstream.config.fields import did_you_mean
from millstream.errors import ConfigError, EmbeddedKafkaError

#: The protocols of the clients' listener.
PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
#: The login mechanisms; the first is the default.
MECHANISMS: Final = ("SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN", "OAUTHBEARER")

CA_FILE: Final = "ca.pem"
_KEY_STORE: Final = "broker.p12"
#: The files that `make_certificate` writes.
CERTIFICATE_FILES: Final = (_KEY_STORE, CA_FILE)
#: Kafka's minimum number of iterations for SCRAM.
_SCRAM_ITERATIONS: Final = 4_096
_KEYTOOL_TIMEOUT_S: Final = 60
_MODULES: Final = "org.apache.kafka.common.security"
#: Names that need no quotes in a JAAS line.
_USER_NAME: Final = re.compile(r"[A-Za-z0-9_.-]+")


@dataclass(frozen=True)
class BrokerSecurity:
    """The protocol of the clients' listener, and passwords by user name, for SASL.

    The constructor raises ConfigError if they are invalid or do not fit together.
    """

    protocol: str = "PLAINTEXT"
    users: Mapping[str, str] = field(default_factory=dict)
    _store_password: str = field(default_factory=lambda: secrets.token_hex(16), repr=False)

    def __post_init__(self) -> None:
        if self.protocol not in PROTOCOLS:
            raise ConfigError(
                f"security_protocol is {self.protocol!r}, but must be one of "
                f"{', '.join(PROTOCOLS)}.{did_you_mean(str(self.protocol), PROTOCOLS)}"
            )
        if self.has_users and not self.users:
            raise ConfigError(
                f'security_protocol="{self.protocol}" requires users, for '
                'example users={"alice": "secret"}.'
            )
        if self.users and not self.has_users:
            raise ConfigError(
                f'users cannot log in with security_protocol="{self.protocol}": choose SASL_SSL or '
                "SASL_PLAINTEXT, or remove `users`."
            )
        for name in self.users:
            if not _USER_NAME.fullmatch(name):
                raise ConfigError(
                    f"{name!r} is not a valid user name: it may only contain letters, digits, "
                    "dots, dashes and underscores."
                )

    @property
    def is_secured(self) -> bool:
        """Whether the clients' listener is secured.

        A secured listener is separate from the broker's own.
        """
        return self.protocol != "PLAINTEXT"

    @property
    def has_certificate(self) -> bool:
        return self.protocol.endswith("SSL")

    @property
    def has_users(self) -> bool:
        return self.protocol.startswith("SASL")

    def server_properties(self) -> dict[str, str]:
        """Return the broker's settings. Paths are relative to its folder."""
        settings: dict[str, str] = {}
        if self.has_certificate:
            settings["ssl.keystore.location"] = _KEY_STORE
            settings["ssl.keystore.type"] = "PKCS12"
            settings["ssl.keystore.password"] = self._store_password
        if self.has_users:
            listener = f"listener.name.{self.protocol.lower()}"
            passwords = "".join(f' user_{name}="{_quoted(pw)}"' for name, pw in self.users.items())
            scram = f"{_MODULES}.scram.ScramLoginModule required;"
            settings["sasl.enabled.mechanisms"] = ",".join(MECHANISMS)
            settings[f"{listener}.plain.sasl.jaas.config"] = (
                f"{_MODULES}.plain.PlainLoginModule required{passwords};"
            )
            # Kafka's default validator, for tests, accepts any token that has not expired.
            settings[f"{listener}.oauthbearer.sasl.jaas.config"] = (
                f"{_MODULES}.oauthbearer.OAuthBearerLoginModule required;"
            )
            settings[f"{listener}.scram-sha-256.sasl.jaas.config"] = scram
            settings[f"{listener}.scram-sha-512.sasl.jaas.config"] = scram
        return settings

    def client_settings(
        self, folder: Path, user: str | None, mechanism: str | None
    ) -> dict[str, Any]:
        """Return client settings by Kafka's names; see `EmbeddedKafka.client_settings`."""
        settings: dict[str, Any] = {"security.protocol": self.protocol}
        if self.has_certificate:
            settings["ssl.truststore.location"] = str(folder / CA_FILE)
            settings["ssl.truststore.type"] = "PEM"
        if self.has_users:
            name = next(iter(self.users)) if user is None else user
            if name not in self.users:
                raise ConfigError(
                    f"EmbeddedKafka has no user {name!r}.{did_you_mean(name, self.users)}"
                )
            settings["sasl.mechanism"] = mechanism or MECHANISMS[0]
            if mechanism == "OAUTHBEARER":
                settings["sasl.login.callback.handler.class"] = UnsecuredTokens(name)
                return settings
            settings["sasl.username"] = name
            settings["sasl.password"] = self.users[name]
        return settings

    def make_certificate(self, java: Path, folder: Path, host: str) -> None:
        """Write the broker's key store, and its certificate for clients as `ca.pem`.

        The certificate is valid for localhost and `host`. Raises EmbeddedKafkaError if this Java
        has no `keytool`, or `keytool` failed.
        """
        store = ("-keystore", _KEY_STORE, "-storepass", self._store_password, "-alias", "broker")
        kind = "ip" if _is_address(host) else "dns"
        names = "san=" + ",".join(
            dict.fromkeys(["dns:localhost", "ip:127.0.0.1", f"{kind}:{host}"])
        )
        keytool = java.resolve().with_name("keytool")
        # Valid from yesterday, for machines whose clocks are slow.
        make = ("-genkeypair", "-keyalg", "EC", "-groupname", "secp256r1", "-startdate", "-1d")
        about = ("-dname", "CN=localhost", "-validity", "365", "-ext", names, "-ext", "bc=ca:true")
        for arguments in ((*make, *about), ("-exportcert", "-rfc", "-file", CA_FILE)):
            _run(keytool, [*arguments, *store, "-storetype", "PKCS12"], folder)

    def create_users(self, admin: Any, timeout_s: float) -> None:
        """Create the users for SCRAM. For PLAIN, they are in the broker's settings."""
        try:
            # A request may contain each user only once.
            for kind in (ScramMechanism.SCRAM_SHA_512, ScramMechanism.SCRAM_SHA_256):
                how = ScramCredentialInfo(kind, _SCRAM_ITERATIONS)
                upsertions = [
                    UserScramCredentialUpsertion(name, how, password.encode())
                    for name, password in self.users.items()
                ]
                results = admin.alter_user_scram_credentials(upsertions, request_timeout=timeout_s)
                for each in results.values():
                    each.result()
        except KafkaException as error:
            raise EmbeddedKafkaError(
                f"The broker rejected its users: {error.args[0].str()}"
            ) from error


@dataclass(frozen=True)
class UnsecuredTokens:
    """Returns unsigned tokens, which the embedded broker accepts."""

    user: str
    lifetime_s: float = 3_600.0

    def __call__(self) -> tuple[str, float]:
        now_s = time.time()
        claims = {"sub": self.user, "iat": now_s, "exp": now_s + self.lifetime_s}
        parts = (_part_of_token({"alg": "none"}), _part_of_token(claims), "")
        return ".".join(parts), self.lifetime_s


def _part_of_token(content: Mapping[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(content).encode()).decode().rstrip("=")


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _run(keytool: Path, arguments: list[str], folder: Path) -> None:
    try:
        subprocess.run(
            [keytool, *arguments],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=_KEYTOOL_TIMEOUT_S,
            check=True,
        )
    except subprocess.CalledProcessError as error:
        raise EmbeddedKafkaError(
            f"{keytool} failed to create a certificate: {(error.stdout + error.stderr).strip()}"
        ) from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EmbeddedKafkaError(
            f"The broker's certificate requires {keytool}, which cannot be run: {error}. "
            "Set JAVA_HOME to a complete Java."
        ) from error


def _quoted(password: str) -> str:
    return password.replace("\\", "\\\\").replace('"', '\\"')
