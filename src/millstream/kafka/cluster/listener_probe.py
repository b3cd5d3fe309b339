"""Detection of a wrong security protocol.

A TLS listener closes connections without TLS, and neither of the client libraries reports the
reason. A TLS handshake detects the mismatch. A request that every broker answers even before a
login distinguishes brokers from other servers, such as a load balancer without a backend.
"""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import Callable, Iterable
from typing import Final

from millstream.clock import Clock

_TIMEOUT_S: Final = 2.0
#: The maximum number of bootstrap servers to probe. More are unnecessary, because they hardly
#: differ.
_SERVERS_PROBED: Final = 3

#: The number of consecutive mismatches that confirm a mismatch.
_REQUIRED_PROBES: Final = 2
_CORRELATION_ID: Final = 7
#: ApiVersions, version 0, without a client id: length, key, version, correlation id, client id.
_API_VERSIONS: Final = struct.pack(">ihhih", 10, 18, 0, _CORRELATION_ID, -1)
#: Length and correlation id of the response.
_RESPONSE_START: Final = struct.Struct(">ii")


def protocol_hint(servers: Iterable[str], protocol: str) -> str:
    """Describe a mismatch of `security.protocol` at the first reachable server.

    Servers have the format host:port. Returns a sentence with a leading space; empty if no server
    is reachable or there is no sign of a mismatch.
    """
    for server in list(servers)[:_SERVERS_PROBED]:
        try:
            speaks_tls = _speaks_tls(server.strip())
        except (OSError, ValueError):
            continue
        if speaks_tls and not protocol.endswith("SSL"):
            needed = "SASL_SSL" if protocol.startswith("SASL") else "SSL or SASL_SSL"
            return f" {server} uses TLS: security.protocol={protocol} must be {needed}."
        if not speaks_tls and protocol.endswith("SSL"):
            needed = "SASL_PLAINTEXT" if protocol.startswith("SASL") else "PLAINTEXT"
            return (
                f" {server} does not use TLS: security.protocol={protocol} must be {needed}, "
                "or bootstrap.servers must name another listener."
            )
        if not protocol.startswith("SASL"):
            return (
                f" {server} accepts connections, but does not respond: check that it is a "
                f"broker, and whether it requires a login (security.protocol=SASL_{protocol})."
            )
        return ""
    return ""


def is_protocol_mismatch(
    servers: Iterable[str], protocol: str, stopped: Callable[[], bool] = lambda: False
) -> bool:
    """Whether a broker certainly rejects clients with this `security.protocol`.

    For clients that received no response. The first reachable server determines the result.
    Returns False in case of doubt: a server that accepts connections but does not respond, or
    closes them, may be a proxy for an unavailable broker. `stopped` is polled before each server,
    and ends the probe by returning True.
    """
    for server in list(servers)[:_SERVERS_PROBED]:
        if stopped():
            return False
        try:
            tls = _speaks_tls(server.strip())
            if tls != protocol.endswith("SSL"):
                return tls or _is_broker(server.strip(), tls=False)
            # The transport matches, but the client got no response: the broker requires a login.
            return not protocol.startswith("SASL") and _is_broker(server.strip(), tls=tls)
        except (OSError, ValueError):
            continue
    return False


class ProtocolProbe:
    """Calls `is_protocol_mismatch` periodically while a client waits for brokers.

    Requires two consecutive positive results: a broker that is starting may respond to the probe
    before it responds to the client. The first probe is after `every_ms`.
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
        self._probed_ms = clock.monotonic_ms()
        self._mismatches = 0

    def is_mismatch_confirmed(self, has_response: Callable[[], bool] = lambda: False) -> bool:
        """Whether the brokers require another protocol. Probes them if a probe is due.

        `has_response` is called after the probe and returns whether a broker has responded to the
        client meanwhile.
        """
        if self._clock.monotonic_ms() - self._probed_ms < self._every_ms:
            return False
        is_mismatch = (
            is_protocol_mismatch(self._servers, self._protocol, self._stopped)
            and not has_response()
        )
        self._mismatches = self._mismatches + 1 if is_mismatch else 0
        self._probed_ms = self._clock.monotonic_ms()
        return self._mismatches >= _REQUIRED_PROBES


def _is_broker(server: str, *, tls: bool) -> bool:
    """Whether a server responds like a broker.

    Raises the same errors as `_speaks_tls`.
    """
    with _connected(server) as connection:
        stream = _encrypted(connection, server) if tls else connection
        with stream:
            stream.sendall(_API_VERSIONS)
            response = b""
            while len(response) < _RESPONSE_START.size:
                received = stream.recv(_RESPONSE_START.size - len(response))
                if not received:
                    return False
                response += received
    _, correlation_id = _RESPONSE_START.unpack(response)
    return bool(correlation_id == _CORRELATION_ID)


def _speaks_tls(server: str) -> bool:
    """Whether a TLS handshake succeeds, with any certificate.

    Raises OSError if the server is unreachable or does not respond, and ValueError if `server` is
    not an address.
    """
    with _connected(server) as connection:
        try:
            _encrypted(connection, server).close()
        except ssl.SSLError as error:
            # A server that requires a client certificate also uses TLS.
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
