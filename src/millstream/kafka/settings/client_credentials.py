"""Tokens of an OpenID provider, got with the client's own credentials (RFC 6749, section 4.4).

librdkafka could ask for them itself, kafka-python could not: so neither does, and both are given
the tokens of one function. It follows Java's `OAuthBearerLoginCallbackHandler`.
"""

from __future__ import annotations

import base64
import json
import ssl
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from millstream.errors import AccessDeniedError, ConfigError
from millstream.kafka.settings.jaas import jaas_options

ENDPOINT: Final = "sasl.oauthbearer.token.endpoint.url"
CLIENT_ID: Final = "sasl.oauthbearer.client.id"
CLIENT_SECRET: Final = "sasl.oauthbearer.client.secret"

_TIMEOUT_S: Final = 10.0
#: Of an error page that is told.
_MOST_CHARS: Final = 200
#: Of a provider that does not say how long its token is good for.
_LIFETIME_S: Final = 300
_JAVA_HANDLER: Final = "OAuthBearerLoginCallbackHandler"
_EXTENSION: Final = "extension_"


@dataclass(frozen=True)
class ClientCredentials:
    """Asks the provider for a token at each call.

    Args:
        endpoint: the provider's URL for tokens.
        client_id: who asks.
        client_secret: by which that is proven.
        scope: what for; may be empty.
        ca_file: a PEM file of who signed the provider's certificate; empty for the system's.
        extensions: names and values that brokers are told beside the token.
    """

    endpoint: str
    client_id: str
    client_secret: str = field(repr=False)
    scope: str = ""
    ca_file: str = ""
    extensions: tuple[tuple[str, str], ...] = ()

    def __call__(self) -> tuple[str, float, str, dict[str, str]]:
        """A token, how many seconds it is good for, for whom, and the extensions.

        Raises:
            AccessDeniedError: the provider cannot be reached, or refuses.
        """
        request = urllib.request.Request(self.endpoint, self._form(), self._headers())
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT_S, context=self._tls()) as answer:
                told = json.load(answer)
            return (
                str(told["access_token"]),
                float(told.get("expires_in", _LIFETIME_S)),
                self.client_id,
                dict(self.extensions),
            )
        except urllib.error.HTTPError as error:
            with error:
                page = error.read(_MOST_CHARS).decode(errors="replace")
            raise AccessDeniedError(
                f"{self.endpoint} gives no token to client {self.client_id!r}: HTTP {error.code} "
                f"{page}. Check {CLIENT_ID}, {CLIENT_SECRET} and the scope."
            ) from None
        except OSError as error:
            raise AccessDeniedError(
                f"{self.endpoint} gives no token: {getattr(error, 'reason', error)}. Check "
                f"{ENDPOINT}, and that it can be reached from this machine."
            ) from error
        except (ValueError, TypeError, KeyError) as error:
            raise AccessDeniedError(
                f"{self.endpoint} answered with something that is no token "
                f"({type(error).__name__}). Check {ENDPOINT}."
            ) from None

    def _form(self) -> bytes:
        form = {"grant_type": "client_credentials"} | ({"scope": self.scope} if self.scope else {})
        return urllib.parse.urlencode(form).encode()

    def _headers(self) -> dict[str, str]:
        login = base64.b64encode(f"{self.client_id}:{self.client_secret}".encode()).decode()
        return {"Authorization": f"Basic {login}", "Accept": "application/json"}

    def _tls(self) -> ssl.SSLContext | None:
        if not self.endpoint.lower().startswith("https:"):
            return None
        return ssl.create_default_context(cafile=self.ca_file or None)


def client_credentials(
    values: Mapping[str, Any], *, java_handler: Any = None
) -> ClientCredentials | None:
    """What the settings say of a provider; None if they name none.

    Args:
        values: the client's settings under Kafka's names.
        java_handler: the class that a Java application names for it, or None.

    Raises:
        ConfigError: the client or its secret is missing, or the class does something else.
    """
    if java_handler is not None and not str(java_handler).endswith(f".{_JAVA_HANDLER}"):
        raise ConfigError(
            f"sasl.login.callback.handler.class is {java_handler!r}, which names a Java class. "
            "Give a Python function without arguments that returns (token, lifetime in seconds)."
        )
    endpoint = str(values.get(ENDPOINT) or "")
    if not endpoint:
        return None
    if not endpoint.lower().startswith(("https:", "http:")):
        raise ConfigError(f"{ENDPOINT} is {endpoint!r}, but must begin with https: or http:.")
    options = jaas_options(str(values.get("sasl.jaas.config") or ""))
    client_id = str(values.get(CLIENT_ID) or options.get("clientId") or "")
    secret = str(values.get(CLIENT_SECRET) or options.get("clientSecret") or "")
    if not client_id or not secret:
        raise ConfigError(
            f"{ENDPOINT} needs {CLIENT_ID} and {CLIENT_SECRET}, or a sasl.jaas.config with "
            'clientId="..." and clientSecret="...".'
        )
    return ClientCredentials(
        endpoint,
        client_id,
        secret,
        str(values.get("sasl.oauthbearer.scope") or options.get("scope") or ""),
        str(values.get("https.ca.location") or ""),
        _extensions(str(values.get("sasl.oauthbearer.extensions") or ""), options),
    )


def _extensions(listed: str, options: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """librdkafka lists them, Java has an option for each."""
    pairs = [each.partition("=") for each in listed.split(",") if each.strip()]
    found = {name.strip(): value.strip() for name, _, value in pairs}
    for name, value in options.items():
        if name.startswith(_EXTENSION):
            found[name.removeprefix(_EXTENSION)] = value
    return tuple(sorted(found.items()))
