"""Why a broker that can be connected to does not answer: a client of another security protocol.

A TLS listener hangs up on a client that comes without TLS, and neither of the client libraries says
why. One attempt at a TLS handshake tells, and a question that every broker answers before a login
tells a broker from what else may take connections, such as a load balancer with nothing behind it.
"""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import Callable, Iterable
from typing import Final

from millstream.clock import Clock

_TIMEOUT_S: Final = 2.0
#: Of many bootstrap servers a few are asked; they hardly differ.
_SERVERS_ASKED: Final = 3

#: How often in a row a probe must find the same.
_PROBES_UNTIL_SURE: Final = 2
_CORRELATION_ID: Final = 7
#: ApiVersions, version 0, without a client id: length, key, version, correlation id, client id.
_API_VERSIONS: Final = struct.pack(">ihhih", 10, 18, 0, _CORRELATION_ID, -1)
#: The length of the answer, and whom it is for.
_ANSWER_START: Final = struct.Struct(">ii")


def protocol_hint(servers: Iterable[str], protocol: str) -> str:
    """What speaks against `security.protocol` at the first server that can be connected to.

    Args:
        servers: addresses as host:port.
        protocol: the client's, one of Kafka's four.

    Returns:
        A sentence with a space before it; empty when no server can be connected to, or nothing
        speaks against it.
    """
    for server in list(servers)[:_SERVERS_ASKED]:
        try:
            speaks_tls = _speaks_tls(server.strip())
        except (OSError, ValueError):
            continue
        if speaks_tls and not protocol.endswith("SSL"):
            needed = "SASL_SSL" if protocol.startswith("SASL") else "SSL or SASL_SSL"
            return f" {server} speaks TLS: security.protocol={protocol} must be {needed}."
        if not speaks_tls and protocol.endswith("SSL"):
            needed = "SASL_PLAINTEXT" if protocol.startswith("SASL") else "PLAINTEXT"
            return (
                f" {server} does not speak TLS: security.protocol={protocol} must be {needed}, "
                "or bootstrap.servers must name another listener."
            )
        if not protocol.startswith("SASL"):
            return (
                f" {server} takes connections, but does not answer: is it a broker, and does it "
                f"want a login (security.protocol=SASL_{protocol})?"
            )
        return ""
    return ""


def refuses_protocol(
    servers: Iterable[str], protocol: str, stopped: Callable[[], bool] = lambda: False
) -> bool:
    """Whether a broker is there for certain that does not talk to clients of `security.protocol`.

    To be asked when a client of that protocol got no answer. In case of doubt it is false: what
    takes connections and is silent, or hangs up, may stand for a broker that is away.

    Args:
        servers: addresses as host:port; the first that can be connected to decides.
        protocol: the client's, one of Kafka's four.
        stopped: asked before each server; true ends it.
    """
    for server in list(servers)[:_SERVERS_ASKED]:
        if stopped():
            return False
        try:
            tls = _speaks_tls(server.strip())
            if tls != protocol.endswith("SSL"):
                return tls or _is_broker(server.strip(), tls=False)
            # The right transport, but no answer: a login comes first there.
            return not protocol.startswith("SASL") and _is_broker(server.strip(), tls=tls)
        except (OSError, ValueError):
            continue
    return False


class ProtocolProbe:
    """Asks `refuses_protocol` now and then, while a client waits for brokers that are away.

    It must be so twice in a row: a broker that starts just now may answer the probe before it
    answers the client.

    Args:
        servers: as for `refuses_protocol`.
        protocol: the client's.
        stopped: as for `refuses_protocol`.
        clock: where the time is read.
        every_ms: how often it is asked, for the first time after so long.
    """

    def __init__(
        self,
        servers: Iterable[str],
        protocol: str,
        stopped: Callable[[], bool],
        clock: Clock,
        every_ms: int,
    ) -> None:
        self._servers = list(servers)
        self._protocol = protocol
        self._stopped = stopped
        self._clock = clock
        self._every_ms = every_ms
        self._asked_ms = clock.monotonic_ms()
        self._against = 0

    def is_certain(self, excused: Callable[[], bool] = lambda: False) -> bool:
        """Whether brokers are there that want another protocol; asks them if it is time to.

        Args:
            excused: asked after the probe: whether they have spoken to the client meanwhile.
        """
        if self._clock.monotonic_ms() - self._asked_ms < self._every_ms:
            return False
        against = refuses_protocol(self._servers, self._protocol, self._stopped) and not excused()
        self._against = self._against + 1 if against else 0
        self._asked_ms = self._clock.monotonic_ms()
        return self._against >= _PROBES_UNTIL_SURE


def _is_broker(server: str, *, tls: bool) -> bool:
    """Whether a server answers as a broker does. Raises as `_speaks_tls`."""
    with _connected(server) as connection:
        stream = _encrypted(connection, server) if tls else connection
        with stream:
            stream.sendall(_API_VERSIONS)
            answer = b""
            while len(answer) < _ANSWER_START.size:
                received = stream.recv(_ANSWER_START.size - len(answer))
                if not received:
                    return False
                answer += received
    _, correlation_id = _ANSWER_START.unpack(answer)
    return bool(correlation_id == _CORRELATION_ID)


def _speaks_tls(server: str) -> bool:
    """Whether a TLS handshake succeeds, whoever the server is.

    Raises:
        OSError: it cannot be connected to, or says nothing at all.
        ValueError: it is no address.
    """
    with _connected(server) as connection:
        try:
            _encrypted(connection, server).close()
        except ssl.SSLError as error:
            # One that wants the client's certificate speaks TLS, too.
            return "ALERT" in str(error).upper()
        except TimeoutError:
            raise
        except OSError:
            return False
    return True


def _connected(server: str) -> socket.socket:
    host, _, port = server.rpartition(":")
    return socket.create_connection((host.strip("[]"), int(port)), _TIMEOUT_S)


def _encrypted(connection: socket.socket, server: str) -> ssl.SSLSocket:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    host = server.rpartition(":")[0].strip("[]")
    return context.wrap_socket(connection, server_hostname=host or None)
