"""Tokens of an OpenID provider."""

from __future__ import annotations

import json
import threading
import urllib.parse
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from millstream.config import StreamsConfig
from millstream.errors import AccessDeniedError, ConfigError
from millstream.kafka.settings.client_credentials import ClientCredentials, client_credentials
from millstream.kafka.settings.clients import kafka_python_settings, librdkafka_settings

SECRET = "s3cret"


class Provider:
    """Answers what it is told to, and notes what it was asked."""

    def __init__(self) -> None:
        self.status = 200
        self.answer: Any = {"access_token": "t", "expires_in": 60}
        self.asked: list[tuple[str, dict[str, list[str]]]] = []
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                form = self.rfile.read(int(self.headers["Content-Length"])).decode()
                provider.asked.append((self.headers["Authorization"], urllib.parse.parse_qs(form)))
                body = json.dumps(provider.answer).encode()
                self.send_response(provider.status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                """Say nothing."""

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/token"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def provider() -> Iterator[Provider]:
    provider = Provider()
    yield provider
    provider.close()


def test_a_token_for_a_client(provider: Provider) -> None:
    ask = ClientCredentials(provider.url, "shop", SECRET, "kafka", extensions=(("a", "b"),))
    assert ask() == ("t", 60.0, "shop", {"a": "b"})
    ((login, form),) = provider.asked
    assert login == "Basic c2hvcDpzM2NyZXQ="
    assert form == {"grant_type": ["client_credentials"], "scope": ["kafka"]}
    assert SECRET not in repr(ask)


@pytest.mark.parametrize(
    ("status", "answer", "message"),
    [
        (401, {"error": "invalid_client"}, "HTTP 401 .*invalid_client.*Check sasl.oauthbearer"),
        (200, {"expires_in": 60}, "something that is no token"),
        (200, [SECRET], "something that is no token"),
    ],
)
def test_a_provider_that_refuses(
    provider: Provider, status: int, answer: Any, message: str
) -> None:
    provider.status, provider.answer = status, answer
    with pytest.raises(AccessDeniedError, match=message) as raised:
        ClientCredentials(provider.url, "shop", SECRET)()
    assert SECRET not in str(raised.value)


def test_a_provider_that_is_away(provider: Provider) -> None:
    provider.close()
    with pytest.raises(AccessDeniedError, match=r"refused.*can be reached from this machine"):
        ClientCredentials(provider.url, "shop", SECRET)()


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
def test_both_libraries_get_its_token(provider: Provider, names: dict[str, str]) -> None:
    """By librdkafka's names or by Java's; the provider is asked once."""
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
    assert [form["scope"] for _, form in provider.asked] == [["kafka"]]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"sasl.oauthbearer.token.endpoint.url": "example.com"}, "must begin with https"),
        ({"sasl.oauthbearer.token.endpoint.url": "https://a/"}, "needs sasl.oauthbearer.client"),
    ],
)
def test_incomplete(values: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        client_credentials(values)


def test_another_class_of_java() -> None:
    with pytest.raises(ConfigError, match="names a Java class"):
        client_credentials({}, java_handler="org.example.Handler")
