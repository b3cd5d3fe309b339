"""Distinguishing a security protocol mismatch from an unavailable broker."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from millstream.kafka.cluster.listener_probe import is_protocol_mismatch


@contextmanager
def server(respond: Callable[[bytes], bytes]) -> Iterator[str]:
    """The address of a server that responds to the first bytes of each connection and closes it."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                with connection:
                    connection.sendall(respond(connection.recv(4_096)))

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield "{}:{}".format(*listening.getsockname())
        listening.shutdown(socket.SHUT_RDWR)
        thread.join(5)


def respond_like_a_broker(request: bytes) -> bytes:
    """A listener without TLS: it closes TLS handshakes, and responds to ApiVersions requests."""
    if not request or request[0] == 22:
        return b""
    return struct.pack(">i", 10) + request[8:12] + bytes(6)


@pytest.mark.parametrize(
    ("protocol", "mismatch"),
    [("PLAINTEXT", True), ("SSL", True), ("SASL_SSL", True), ("SASL_PLAINTEXT", False)],
)
def test_a_broker_without_tls(protocol: str, mismatch: bool) -> None:
    """A client without TLS that gets no response must use SASL."""
    with server(respond_like_a_broker) as address:
        assert is_protocol_mismatch([address], protocol) is mismatch


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL", "SASL_SSL", "SASL_PLAINTEXT"])
def test_a_server_that_closes_connections_is_not_a_mismatch(
    protocol: str,
) -> None:
    """For example, a load balancer without a backend; this is an outage."""
    with server(lambda request: b"") as address:
        assert not is_protocol_mismatch([address], protocol)


def test_an_unreachable_broker_is_not_a_mismatch() -> None:
    assert not is_protocol_mismatch(["127.0.0.1:9", "no address"], "SSL")
    with server(respond_like_a_broker) as address:
        assert is_protocol_mismatch(["127.0.0.1:9", address], "SSL")
        assert not is_protocol_mismatch([address], "SSL", stopped=lambda: True)
