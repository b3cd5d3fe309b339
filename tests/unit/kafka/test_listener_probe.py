"""Telling a broker of another security protocol from one that is away."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from millstream.kafka.cluster.listener_probe import refuses_protocol


@contextmanager
def server(answer: Callable[[bytes], bytes]) -> Iterator[str]:
    """The address of what answers the first bytes of each connection, and then hangs up."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                with connection:
                    connection.sendall(answer(connection.recv(4_096)))

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield "{}:{}".format(*listening.getsockname())
        listening.shutdown(socket.SHUT_RDWR)
        thread.join(5)


def like_a_broker(asked: bytes) -> bytes:
    """Without TLS: a handshake is hung up on, the question for versions is answered."""
    if not asked or asked[0] == 22:
        return b""
    return struct.pack(">i", 10) + asked[8:12] + bytes(6)


@pytest.mark.parametrize(
    ("protocol", "refused"),
    [("PLAINTEXT", True), ("SSL", True), ("SASL_SSL", True), ("SASL_PLAINTEXT", False)],
)
def test_a_broker_without_tls(protocol: str, refused: bool) -> None:
    """A client without TLS that got no answer from it has to log in."""
    with server(like_a_broker) as address:
        assert refuses_protocol([address], protocol) is refused


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL", "SASL_SSL", "SASL_PLAINTEXT"])
def test_what_takes_connections_and_hangs_up_may_stand_for_a_broker_that_is_away(
    protocol: str,
) -> None:
    """Aim: a load balancer with nothing behind it is an outage."""
    with server(lambda asked: b"") as address:
        assert not refuses_protocol([address], protocol)


def test_an_absent_broker_refuses_nothing() -> None:
    assert not refuses_protocol(["127.0.0.1:9", "no address"], "SSL")
    with server(like_a_broker) as address:
        assert refuses_protocol(["127.0.0.1:9", address], "SSL")
        assert not refuses_protocol([address], "SSL", stopped=lambda: True)
