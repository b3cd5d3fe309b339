"""HTTPS: the server's certificate, and client certificates if they are required."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest
from support.http_client import HttpClient
from support.machine.authority import PASSWORD, Authority
from support.tasks.served_tasks import ServedTasks
from support.waiting import HANG_S, NEVER_S, wait_for

from millstream import ServerAddress, StreamsConfig
from millstream.errors import ConfigError
from millstream.server.server_settings import ServerOptions, TlsSettings, client_tls_context
from millstream.server.server_thread import HttpServer

TOKEN = "a-token-for-tests"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def served() -> Iterator[ServedTasks]:
    with ServedTasks(1) as tasks:
        yield tasks


@contextmanager
def serving(
    served: ServedTasks, tls: TlsSettings, timeout_ms: int = 10_000, max_requests: int = 32
) -> Iterator[ServerAddress]:
    options = ServerOptions(
        *("127.0.0.1", 0, TOKEN, tls), timeout_ms=timeout_ms, max_requests=max_requests
    )
    running = HttpServer(served, options)
    try:
        yield ServerAddress(f"https://127.0.0.1:{running.port}", TOKEN)
    finally:
        running.close()


def config(tls: TlsSettings, **settings: str) -> StreamsConfig:
    return StreamsConfig(
        application_id="shop",
        bootstrap_servers="not-used:9092",
        server_tls_certificate=tls.certificate,
        server_tls_key=tls.key,
        server_tls_key_password=tls.key_password,
        **settings,  # type: ignore[arg-type]
    )


def test_the_certificate_is_verified(served: ServedTasks, authority: Authority) -> None:
    """Clients that trust its authority are served; others, and plain HTTP, are not."""
    trusting = ssl.create_default_context(cafile=str(authority.certificate))
    with serving(served, authority.sign("server")) as address:
        assert HttpClient(address, trusting).request("/health/live")[0] == 200
        with pytest.raises(OSError, match="certificate verify failed"):
            HttpClient(address, ssl.create_default_context()).request("/health/live")
        plain = ServerAddress(address.url.replace("https", "http"), TOKEN)
        with pytest.raises(OSError, match=r"(?i)reset|closed|remote end|bad status"):
            HttpClient(plain).request("/health/live")


def test_incomplete_handshakes_time_out(served: ServedTasks, authority: Authority) -> None:
    """A connection that sends nothing, and one that sends nothing after the handshake.

    A server with a longer timeout keeps an older connection open in the meantime.
    """
    trusting = ssl.create_default_context(cafile=str(authority.certificate))
    with (
        serving(served, authority.sign("server"), timeout_ms=int(NEVER_S * 1_000)) as patient,
        serving(served, authority.sign("server"), timeout_ms=300) as address,
        connected(patient) as kept,
    ):
        with connected(address) as silent:
            assert silent.recv(1) == b""
        with (
            connected(address) as raw,
            trusting.wrap_socket(raw, server_hostname="127.0.0.1") as handshaken,
        ):
            assert is_closed(handshaken)
        kept.setblocking(False)
        with pytest.raises(BlockingIOError):
            kept.recv(1)


def test_the_number_of_incomplete_handshakes_is_bounded(
    served: ServedTasks, authority: Authority
) -> None:
    """Each uses a descriptor of the driver: further ones are closed, and the others continue."""
    trusting = ssl.create_default_context(cafile=str(authority.certificate))
    with serving(served, authority.sign("server"), max_requests=1) as address, ExitStack() as stack:
        client = HttpClient(address, trusting)
        assert client.request("/health/live")[0] == 200
        # The limit is 16, twice the 8 connections per request slot: one is left for the client.
        silent = [stack.enter_context(connected(address)) for _ in range(15)]
        assert client.request("/health/live")[0] == 200
        silent.append(stack.enter_context(connected(address)))
        beyond = stack.enter_context(connected(address))
        assert is_closed(beyond)
        silent.pop().close()
        wait_for(lambda: answers(client), 10, "another connection is accepted")


def connected(address: ServerAddress) -> socket.socket:
    """A connection that has sent nothing yet."""
    port = int(address.url.rpartition(":")[2])
    return socket.create_connection(("127.0.0.1", port), timeout=HANG_S)


def is_closed(connection: socket.socket) -> bool:
    """Whether the server closes it, in any way."""
    with suppress(ConnectionResetError, ssl.SSLEOFError):
        return connection.recv(1) == b""
    return True


def answers(client: HttpClient) -> bool:
    """Whether a request is answered."""
    with suppress(OSError):
        return client.request("/health/live")[0] == 200
    return False


def test_client_certificates_are_verified(
    served: ServedTasks, authority: Authority, tmp_path: Path
) -> None:
    """If they are required: other instances use the certificate of their own server."""
    own = authority.sign("server")
    required = TlsSettings(own.certificate, own.key, PASSWORD, str(authority.certificate))
    known = {"server_tls_ca": str(authority.certificate)}
    other = Authority(tmp_path).sign("other")
    with serving(served, required) as address:
        with_client_ca = {"server_tls_client_ca": str(authority.certificate), **known}
        peer = client_tls_context(config(authority.sign("peer"), **with_client_ca))
        assert HttpClient(address, peer).request("/health/live")[0] == 200
        for tls in (config(own, **known), config(other, **with_client_ca)):
            with pytest.raises(OSError, match=r"(?i)alert|reset|closed|eof"):
                HttpClient(address, client_tls_context(tls)).request("/health/live")


def test_invalid_certificate_files(
    served: ServedTasks, authority: Authority, tmp_path: Path
) -> None:
    """The error names the settings; a key without its password does not prompt at the terminal."""
    own, other = authority.sign("server"), authority.sign("another")
    junk = tmp_path / "junk.pem"
    junk.write_text("no certificate")
    for tls in (
        TlsSettings(str(tmp_path / "nowhere.pem")),
        TlsSettings(str(junk)),
        TlsSettings(own.certificate, other.key, PASSWORD),
        TlsSettings(own.certificate, own.key),
        TlsSettings(own.certificate, own.key, "wrong"),
        TlsSettings(own.certificate, own.key, PASSWORD, str(junk)),
    ):
        with pytest.raises(ConfigError, match="server_tls_certificate"):
            HttpServer(served, ServerOptions("127.0.0.1", 0, TOKEN, tls))
    with pytest.raises(ConfigError, match="server_tls_ca"):
        client_tls_context(config(own, server_tls_ca=str(junk)))
    assert client_tls_context(StreamsConfig(application_id="a", bootstrap_servers="b:1")) is None
