"""HTTP connections, with or without TLS, with timeouts and a maximum number."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from asyncio.sslproto import SSLProtocol
from dataclasses import dataclass
from typing import Any, Final

import h11
import orjson
from uvicorn.protocols.http.h11_impl import H11Protocol

from millstream.errors import ConfigError
from millstream.server.server_settings import TlsSettings

#: The timeout for a client that does not read a response, in seconds.
_WRITE_TIMEOUT_S: Final = 30.0
#: The timeout of the TLS shutdown, in seconds.
_SHUTDOWN_TIMEOUT_S: Final = 5.0

#: The logger of connections. Warnings are disabled: uvicorn logs one for each invalid request, so
#: anyone could flood the log.
_logger: Final = logging.getLogger("millstream.server.connections")
_logger.setLevel(logging.ERROR)


@dataclass(frozen=True)
class ConnectionLimits:
    """Limits that apply before a client is authorized."""

    max_connections: int
    head_timeout_s: float


class TimedProtocol(H11Protocol):
    """uvicorn's protocol with timeouts for request heads and unread responses.

    uvicorn itself only limits the idle time between two requests.
    """

    def __init__(self, limits: ConnectionLimits, *args: Any, **arguments: Any) -> None:
        super().__init__(*args, **arguments)
        self.logger = _logger
        self.access_log = False
        self._limits = limits
        self._head_timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        # Head and body are written separately, so the body would wait 40 ms for the acknowledgment
        # of the head. asyncio sets TCP_NODELAY only for sockets that it created itself.
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if len(self.connections) > self._limits.max_connections:
            transport.write(_TOO_MANY_CONNECTIONS)
            transport.close()
        else:
            self._start_head_timeout()

    def data_received(self, data: bytes) -> None:
        if self._head_timer is None and self.conn.their_state is h11.IDLE:
            self._start_head_timeout()
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._cancel_head_timeout()

    def send_400_response(self, msg: str) -> None:
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.write(_BAD_REQUEST)
        self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_head_timeout()
        self._cancel_write_timeout()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._write_timer is None:
            self._write_timer = self.loop.call_later(_WRITE_TIMEOUT_S, self.transport.abort)

    def resume_writing(self) -> None:
        self._cancel_write_timeout()
        super().resume_writing()

    def _start_head_timeout(self) -> None:
        self._head_timer = self.loop.call_later(self._limits.head_timeout_s, self.transport.abort)

    def _cancel_head_timeout(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _cancel_write_timeout(self) -> None:
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None


def _raw_response(status: bytes, code: str, message: str) -> bytes:
    """Return the bytes of a response to a request that was not parsed."""
    body = orjson.dumps({"error": {"code": code, "message": message}})
    head = b"HTTP/1.1 %b\r\ncontent-type: application/json\r\ncontent-length: %d\r\n"
    return head % (status, len(body)) + b"connection: close\r\n\r\n" + body


_TOO_MANY_CONNECTIONS: Final = _raw_response(
    b"503 Service Unavailable", "TOO_MANY_CONNECTIONS", "Too many connections are open."
)
_BAD_REQUEST: Final = _raw_response(
    b"400 Bad Request", "BAD_REQUEST", "This is not an HTTP request."
)


class TlsProtocolFactory:
    """Creates the connections of a server and counts the open ones.

    asyncio does not limit connections before the TLS handshake is complete, and its handshake
    timeout is one minute. Here, the timeout for a request head also applies to the handshake, and
    the number of connections is limited to twice the limit of the HTTP protocol; connections beyond
    it are aborted.
    """

    def __init__(self, settings: TlsSettings, limits: ConnectionLimits) -> None:
        self._context = tls_context(settings)
        self._limits = limits
        self._open: set[_TlsConnection] = set()

    def __call__(self, **arguments: Any) -> asyncio.BaseProtocol:
        """Create a connection. uvicorn calls this in place of its protocol class."""
        loop = asyncio.get_running_loop()
        protocol = TimedProtocol(self._limits, **arguments)
        return _TlsConnection(loop, protocol, self._context, self._limits, self._open)


class _TlsConnection(SSLProtocol):
    """asyncio's TLS connection of a server, with a limit on the number of open ones."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        protocol: TimedProtocol,
        context: ssl.SSLContext,
        limits: ConnectionLimits,
        open_connections: set[_TlsConnection],
    ) -> None:
        no_waiter: Any = None
        super().__init__(
            loop,
            protocol,
            context,
            no_waiter,
            server_side=True,
            ssl_handshake_timeout=limits.head_timeout_s,  # type: ignore[arg-type]
            ssl_shutdown_timeout=_SHUTDOWN_TIMEOUT_S,
        )
        self._max_connections = 2 * limits.max_connections
        self._open_connections = open_connections

    def connection_made(self, transport: Any) -> None:
        if len(self._open_connections) >= self._max_connections:
            transport.abort()
            return
        self._open_connections.add(self)
        super().connection_made(transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        if self in self._open_connections:
            self._open_connections.remove(self)
            super().connection_lost(exc)


def tls_context(tls: TlsSettings) -> ssl.SSLContext:
    """Create the TLS context of a server, or raise ConfigError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(tls.certificate, tls.key, tls.key_password or "")
        if tls.client_ca is not None:
            context.load_verify_locations(tls.client_ca)
            context.verify_mode = ssl.CERT_REQUIRED
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"The server cannot use its certificate ({error}). Check server_tls_certificate "
            f"({tls.certificate}), server_tls_key ({tls.key}), its password, and "
            f"server_tls_client_ca ({tls.client_ca})."
        ) from error
    return context
