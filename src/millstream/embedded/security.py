"""A secured listener for the embedded broker: a certificate made for it, and users with passwords.

Java's own `keytool` makes the certificate. It is its own authority, good for `localhost` and
127.0.0.1, and goes away with the broker's folder.
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

from millstream.config_fields import did_you_mean
from millstream.errors import ConfigError, EmbeddedKafkaError

#: How clients may be made to speak to the broker.
PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
#: How users may log in; the first one is the default.
MECHANISMS: Final = ("SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN", "OAUTHBEARER")

CA_FILE: Final = "ca.pem"
_KEY_STORE: Final = "broker.p12"
#: The least that Kafka takes.
_SCRAM_ITERATIONS: Final = 4_096
_KEYTOOL_TIMEOUT_S: Final = 60
_MODULES: Final = "org.apache.kafka.common.security"
#: What needs no quotes in a JAAS line.
_USER_NAME: Final = re.compile(r"[A-Za-z0-9_.-]+")


@dataclass(frozen=True)
class BrokerSecurity:
    """How clients speak to the broker, and who may log in.

    Args:
        protocol: of the clients' listener, one of Kafka's four.
        users: passwords by user name, for the protocols that begin with SASL.

    Raises:
        ConfigError: there is no such protocol, or users are missing, superfluous or misnamed.
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
                f'security_protocol="{self.protocol}" lets in known users only: name them, for '
                'example users={"alice": "secret"}.'
            )
        if self.users and not self.has_users:
            raise ConfigError(
                f'users cannot log in with security_protocol="{self.protocol}": choose SASL_SSL or '
                "SASL_PLAINTEXT, or leave them out."
            )
        for name in self.users:
            if not _USER_NAME.fullmatch(name):
                raise ConfigError(
                    f"{name!r} cannot be the name of a user: it may contain letters, digits, "
                    "dots, dashes and underscores."
                )

    @property
    def is_secured(self) -> bool:
        """Whether the clients' listener is another than the broker's own."""
        return self.protocol != "PLAINTEXT"

    @property
    def has_certificate(self) -> bool:
        """Whether connections are encrypted."""
        return self.protocol.endswith("SSL")

    @property
    def certificate_files(self) -> tuple[str, ...]:
        """The files that `make_certificate` writes."""
        return (_KEY_STORE, CA_FILE)

    @property
    def has_users(self) -> bool:
        """Whether clients have to log in."""
        return self.protocol.startswith("SASL")

    def server_properties(self) -> dict[str, str]:
        """What the broker is told; relative to its folder."""
        settings: dict[str, str] = {}
        if self.has_certificate:
            settings["ssl.keystore.location"] = _KEY_STORE
            settings["ssl.keystore.type"] = "PKCS12"
            settings["ssl.keystore.password"] = self._store_password
        if self.has_users:
            listener = f"listener.name.{self.protocol.lower()}"
            known = "".join(f' user_{name}="{_quoted(pw)}"' for name, pw in self.users.items())
            scram = f"{_MODULES}.scram.ScramLoginModule required;"
            settings["sasl.enabled.mechanisms"] = ",".join(MECHANISMS)
            settings[f"{listener}.plain.sasl.jaas.config"] = (
                f"{_MODULES}.plain.PlainLoginModule required{known};"
            )
            # Its validator, Kafka's default, takes any token that has not run out: for tests.
            settings[f"{listener}.oauthbearer.sasl.jaas.config"] = (
                f"{_MODULES}.oauthbearer.OAuthBearerLoginModule required;"
            )
            settings[f"{listener}.scram-sha-256.sasl.jaas.config"] = scram
            settings[f"{listener}.scram-sha-512.sasl.jaas.config"] = scram
        return settings

    def client_settings(
        self, folder: Path, user: str | None, mechanism: str | None
    ) -> dict[str, Any]:
        """What a client has to be told, by Kafka's names; see `EmbeddedKafka.client_settings`."""
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
        """Write the broker's key store, and what clients have to trust as `ca.pem`.

        Args:
            java: whose `keytool` makes it.
            folder: where the two go.
            host: what the broker is called besides localhost: a name or an address.

        Raises:
            EmbeddedKafkaError: there is no `keytool` beside this Java, or it failed.
        """
        store = ("-keystore", _KEY_STORE, "-storepass", self._store_password, "-alias", "broker")
        kind = "ip" if _is_address(host) else "dns"
        names = "san=" + ",".join(
            dict.fromkeys(["dns:localhost", "ip:127.0.0.1", f"{kind}:{host}"])
        )
        keytool = java.resolve().with_name("keytool")
        # Valid from yesterday on, lest a clock that is set back a little refuses it.
        make = ("-genkeypair", "-keyalg", "EC", "-groupname", "secp256r1", "-startdate", "-1d")
        about = ("-dname", "CN=localhost", "-validity", "365", "-ext", names, "-ext", "bc=ca:true")
        for arguments in ((*make, *about), ("-exportcert", "-rfc", "-file", CA_FILE)):
            _run(keytool, [*arguments, *store, "-storetype", "PKCS12"], folder)

    def create_users(self, admin: Any, timeout_s: float) -> None:
        """Make the users known to SCRAM; PLAIN knows them from the broker's settings.

        Raises:
            EmbeddedKafkaError: the broker refused it.
        """
        try:
            # A request may name each user once only.
            for kind in (ScramMechanism.SCRAM_SHA_512, ScramMechanism.SCRAM_SHA_256):
                how = ScramCredentialInfo(kind, _SCRAM_ITERATIONS)
                wanted = [
                    UserScramCredentialUpsertion(name, how, password.encode())
                    for name, password in self.users.items()
                ]
                done = admin.alter_user_scram_credentials(wanted, request_timeout=timeout_s)
                for each in done.values():
                    each.result()
        except KafkaException as error:
            raise EmbeddedKafkaError(
                f"The broker did not take its users: {error.args[0].str()}"
            ) from error


@dataclass(frozen=True)
class UnsecuredTokens:
    """Gives tokens that nobody has signed, which the embedded broker believes.

    Args:
        user: whom they name.
        lifetime_s: seconds that each is good for.
    """

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
            f"{keytool} made no certificate: {(error.stdout + error.stderr).strip()}"
        ) from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EmbeddedKafkaError(
            f"The broker's certificate is made by {keytool}, which could not be run: {error}. "
            "Let JAVA_HOME lead to a complete Java."
        ) from error


def _quoted(password: str) -> str:
    return password.replace("\\", "\\\\").replace('"', '\\"')
