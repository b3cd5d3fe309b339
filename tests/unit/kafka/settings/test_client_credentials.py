"""Tokens of OpenID providers."""

from __future__ import annotations

import json
import urllib.parse
from collections.abc import Iterator
from typing import Any

import pytest
from support.machine.http_server import HttpRequest, http_server

from millstream.config.streams_config import StreamsConfig
from millstream.errors import AccessDeniedError, ConfigError
from millstream.kafka.settings.client_credentials import ClientCredentials, client_credentials
from millstream.kafka.settings.librdkafka_settings import kafka_python_settings, librdkafka_settings

SECRET = "s3cret"


class Provider:
    """A provider with configurable responses, which records its requests."""

    def __init__(self) -> None:
        self.status = 200
        self.answer: Any = {"access_token": "t", "expires_in": 60}
        self.requests: list[tuple[str, dict[str, list[str]]]] = []
        self.url = ""

    def respond(self, request: HttpRequest) -> tuple[int, bytes]:
        form = urllib.parse.parse_qs(request.body.decode())
        self.requests.append((request.headers["Authorization"], form))
        return self.status, json.dumps(self.answer).encode()


@pytest.fixture
def provider() -> Iterator[Provider]:
    provider = Provider()
    with http_server(provider.respond) as url:
        provider.url = f"{url}/token"
        yield provider


def test_a_token_for_a_client(provider: Provider) -> None:
    credentials = ClientCredentials(provider.url, "shop", SECRET, "kafka", extensions=(("a", "b"),))
    assert credentials() == ("t", 60.0, "shop", {"a": "b"})
    ((login, form),) = provider.requests
    assert login == "Basic c2hvcDpzM2NyZXQ="
    assert form == {"grant_type": ["client_credentials"], "scope": ["kafka"]}
    assert SECRET not in repr(credentials)


@pytest.mark.parametrize(
    ("status", "answer", "message"),
    [
        (401, {"error": "invalid_client"}, "HTTP 401 .*invalid_client.*Check sasl.oauthbearer"),
        (200, {"expires_in": 60}, "is not a token"),
        (200, [SECRET], "is not a token"),
    ],
)
def test_a_provider_that_rejects_the_client(
    provider: Provider, status: int, answer: Any, message: str
) -> None:
    provider.status, provider.answer = status, answer
    with pytest.raises(AccessDeniedError, match=message) as raised:
        ClientCredentials(provider.url, "shop", SECRET)()
    assert SECRET not in str(raised.value)


def test_an_unreachable_provider() -> None:
    with http_server(Provider().respond) as url:
        pass
    with pytest.raises(AccessDeniedError, match=r"refused.*is reachable from this machine"):
        ClientCredentials(url, "shop", SECRET)()


_MODULE = "org.apache.kafka.common.security.oauthbearer"
_BY_NAMES = {"sasl.oauthbearer.client.id": "shop", "sasl.oauthbearer.client.secret": SECRET}
_LIBRDKAFKA = {
    **_BY_NAMES,
    "sasl.oauthbearer.method": "oidc",
    "sasl.oauthbearer.scope": "kafka",
    "sasl.oauthbearer.extensions": "a=b",
}
_JAVA = {
    "sasl.login.callback.handler.class": f"{_MODULE}.OAuthBearerLoginCallbackHandler",
    "sasl.jaas.config": f'{_MODULE}.OAuthBearerLoginModule required clientId="shop" '
    f'clientSecret="{SECRET}" scope="kafka" extension_a="b";',
}


@pytest.mark.parametrize("names", [_LIBRDKAFKA, _JAVA])
def test_both_libraries_use_the_token_of_the_provider(
    provider: Provider, names: dict[str, str]
) -> None:
    """Configured with librdkafka's or Java's names. Both share one request."""
    properties = {
        "application.id": "shop",
        "bootstrap.servers": "localhost:1",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": provider.url,
        **names,
    }
    config = StreamsConfig.from_properties(properties)
    assert SECRET not in repr(config)
    text, _, principal, extensions = librdkafka_settings(config, "producer", "x")["oauth_cb"]("")
    assert (text, principal, extensions) == ("t", "shop", {"a": "b"})
    member = kafka_python_settings(config, client_id="x")["sasl_oauth_token_provider"]
    assert (member.token(), member.extensions()) == ("t", {"a": "b"})
    assert [form["scope"] for _, form in provider.requests] == [["kafka"]]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"sasl.oauthbearer.token.endpoint.url": "example.com"}, "must begin with https"),
        ({"sasl.oauthbearer.token.endpoint.url": "https://a/"}, "needs sasl.oauthbearer.client"),
    ],
)
def test_incomplete_settings_are_rejected(values: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        client_credentials(values)


def test_another_java_callback_handler_is_rejected() -> None:
    with pytest.raises(ConfigError, match="names a Java class"):
        client_credentials({}, java_handler="org.example.Handler")
