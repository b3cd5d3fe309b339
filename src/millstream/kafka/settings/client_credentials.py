"""Requests tokens from an OpenID provider with client credentials.

RFC 6749, section 4.4, describes the requests. librdkafka can request tokens itself, but
kafka-python cannot. Therefore, both clients get their tokens from one function, which behaves like
Java's `OAuthBearerLoginCallbackHandler`.
"""

from __future__ import annotations

import base64
import json
import re
import ssl
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from millstream.errors import AccessDeniedError, ConfigError

_JAAS_OPTION: Final = re.compile(
    r"""([A-Za-z_][\w.]*)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'([^']*)'|([^\s;]+))"""
)

ENDPOINT: Final = "sasl.oauthbearer.token.endpoint.url"
CLIENT_ID: Final = "sasl.oauthbearer.client.id"
CLIENT_SECRET: Final = "sasl.oauthbearer.client.secret"

_TIMEOUT_S: Final = 10.0
#: The maximum length of a quoted error page.
_MAX_CHARS: Final = 200
#: The lifetime of tokens without `expires_in`.
_LIFETIME_S: Final = 300
_JAVA_HANDLER: Final = "OAuthBearerLoginCallbackHandler"
_EXTENSION: Final = "extension_"


def jaas_options(line: str) -> dict[str, str]:
    """Parse the options of a JAAS line.

    Such a line looks like `...PlainLoginModule required username="a" password="b";`.
    """
    return {
        name: re.sub(r"\\(.)", r"\1", quoted) if quoted else (single or plain)
        for name, quoted, single, plain in _JAAS_OPTION.findall(line)
    }


@dataclass(frozen=True)
class ClientCredentials:
    """A callable that requests a token from the provider."""

    endpoint: str
    client_id: str
    client_secret: str = field(repr=False)
    scope: str = ""
    #: A PEM file with the CA of the provider's certificate; empty for the system's CAs.
    ca_file: str = ""
    #: Names and values that are sent to brokers with the token.
    extensions: tuple[tuple[str, str], ...] = ()

    def __call__(self) -> tuple[str, float, str, dict[str, str]]:
        """Return the token, lifetime in seconds, principal and extensions.

        Raises AccessDeniedError."""
        request = urllib.request.Request(self.endpoint, self._form(), self._headers())
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT_S, context=self._tls()) as reply:
                granted = json.load(reply)
            return (
                str(granted["access_token"]),
                float(granted.get("expires_in", _LIFETIME_S)),
                self.client_id,
                dict(self.extensions),
            )
        except urllib.error.HTTPError as error:
            with error:
                page = error.read(_MAX_CHARS).decode(errors="replace")
            raise AccessDeniedError(
                f"{self.endpoint} denied client {self.client_id!r} a token: HTTP {error.code} "
                f"{page}. Check {CLIENT_ID}, {CLIENT_SECRET} and the scope."
            ) from None
        except OSError as error:
            raise AccessDeniedError(
                f"{self.endpoint} returned no token: {getattr(error, 'reason', error)}. Check "
                f"{ENDPOINT}, and that the provider is reachable from this machine."
            ) from error
        except (ValueError, TypeError, KeyError) as error:
            raise AccessDeniedError(
                f"The response of {self.endpoint} is not a token "
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
    """Create the credentials. Returns None if the settings configure no provider.

    Raises ConfigError for invalid settings."""
    if java_handler is not None and not str(java_handler).endswith(f".{_JAVA_HANDLER}"):
        raise ConfigError(
            f"sasl.login.callback.handler.class is {java_handler!r}, which names a Java class. "
            "Pass a Python function without arguments that returns (token, lifetime in seconds)."
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
    """Merge librdkafka's list of extensions with Java's options, one per extension."""
    pairs = [each.partition("=") for each in listed.split(",") if each.strip()]
    found = {name.strip(): value.strip() for name, _, value in pairs}
    for name, value in options.items():
        if name.startswith(_EXTENSION):
            found[name.removeprefix(_EXTENSION)] = value
    return tuple(sorted(found.items()))
