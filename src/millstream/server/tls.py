"""Connections of a server that speaks HTTPS, which are bounded before they have said anything."""

from __future__ import annotations

import asyncio
import ssl
from asyncio.sslproto import SSLProtocol
from typing import Any, Final

from millstream.errors import ConfigError
from millstream.server.protocol import ConnectionLimits, TimedProtocol
from millstream.server.settings import TlsSettings

#: How long a client may take to agree to the end, in seconds.
_GOODBYE_S: Final = 5.0


class Tls:
    """Makes the connections of one server, and counts those that are open.

    asyncio makes and counts none before the two sides have agreed upon keys: it waits a minute for
    that, for as many as like. Here that may take as long as a head may, and beside the connections
    that are answered there are as many at most that have not come so far: each further one is
    hung up on.

    Args:
        settings: the certificate, and what clients must show.
        limits: of the connections.

    Raises:
        ConfigError: a file cannot be read, or what is in it cannot be used.
    """

    def __init__(self, settings: TlsSettings, limits: ConnectionLimits) -> None:
        self._context = tls_context(settings)
        self._limits = limits
        self._open: set[_Connection] = set()

    def __call__(self, **arguments: Any) -> asyncio.BaseProtocol:
        """A connection. uvicorn asks for it as for one of its own class."""
        loop = asyncio.get_running_loop()
        spoken = TimedProtocol(self._limits, **arguments)
        return _Connection(loop, spoken, self._context, self._limits, self._open)


class _Connection(SSLProtocol):
    """As asyncio makes it for a server with certificates, but for the count."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        spoken: TimedProtocol,
        context: ssl.SSLContext,
        limits: ConnectionLimits,
        open_ones: set[_Connection],
    ) -> None:
        nobody_waits: Any = None
        super().__init__(
            loop,
            spoken,
            context,
            nobody_waits,
            server_side=True,
            ssl_handshake_timeout=limits.head_timeout_s,  # type: ignore[arg-type]
            ssl_shutdown_timeout=_GOODBYE_S,
        )
        self._most = 2 * limits.most
        self._open_ones = open_ones

    def connection_made(self, transport: Any) -> None:
        """A client has come, and is to agree upon keys."""
        if len(self._open_ones) >= self._most:
            transport.abort()
            return
        self._open_ones.add(self)
        super().connection_made(transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        """The client is gone."""
        if self in self._open_ones:
            self._open_ones.remove(self)
            super().connection_lost(exc)


def tls_context(tls: TlsSettings) -> ssl.SSLContext:
    """What the connections of a server are encrypted with.

    Raises:
        ConfigError: a file cannot be read, or what is in it cannot be used.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(tls.certificate, tls.key, tls.key_password or "")
        if tls.client_ca is not None:
            context.load_verify_locations(tls.client_ca)
            context.verify_mode = ssl.CERT_REQUIRED
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"The server cannot use its certificate ({error}). Look at server_tls_certificate "
            f"({tls.certificate}), server_tls_key ({tls.key}), its password, and "
            f"server_tls_client_ca ({tls.client_ca})."
        ) from error
    return context
