"""Why a broker that can be connected to does not answer: a client of another security protocol.

A TLS listener hangs up on a client that comes without TLS, and neither of the client libraries says
why. One attempt at a TLS handshake tells.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterable
from typing import Final

_TIMEOUT_S: Final = 2.0
#: Of many bootstrap servers a few are asked; they hardly differ.
_SERVERS_ASKED: Final = 3


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


def _speaks_tls(server: str) -> bool:
    """Whether a TLS handshake succeeds, whoever the server is.

    Raises:
        OSError: it cannot be connected to, or says nothing at all.
        ValueError: it is no address.
    """
    host, _, port = server.rpartition(":")
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with socket.create_connection((host.strip("[]"), int(port)), _TIMEOUT_S) as connection:
        try:
            context.wrap_socket(connection, server_hostname=host.strip("[]") or None).close()
        except ssl.SSLError as error:
            # One that wants the client's certificate speaks TLS, too.
            return "ALERT" in str(error).upper()
        except TimeoutError:
            raise
        except OSError:
            return False
    return True
