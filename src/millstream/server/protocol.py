"""A connection, which may not take as long as it likes, beside more others than are allowed."""

from __future__ import annotations

import asyncio
import logging
import socket
from dataclasses import dataclass
from typing import Any, Final

import h11
import orjson
from uvicorn.protocols.http.h11_impl import H11Protocol

#: How long a response may wait for a client that does not read, in seconds.
_UNREAD_S: Final = 30.0

#: uvicorn warns of each request that is none: anybody could fill the log.
_logger: Final = logging.getLogger("millstream.server.connections")
_logger.setLevel(logging.ERROR)


@dataclass(frozen=True)
class ConnectionLimits:
    """How much clients may take before they have shown who they are.

    Args:
        most: how many connections may be open.
        head_timeout_s: how long the head of a request may take, in seconds.
    """

    most: int
    head_timeout_s: float


class TimedProtocol(H11Protocol):
    """uvicorn's, with limits on the time that a client takes to send a head or to read an answer.

    uvicorn itself only limits how long a connection may be idle between two requests.
    """

    def __init__(self, limits: ConnectionLimits, *args: Any, **arguments: Any) -> None:
        super().__init__(*args, **arguments)
        self.logger = _logger
        self.access_log = False
        self._limits = limits
        self._head: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client has come, and is to send its first request."""
        super().connection_made(transport)
        # Head and body are written one after the other: the body would wait 40 ms for the
        # acknowledgement of the head. asyncio does this only for sockets that it has made itself.
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if len(self.connections) > self._limits.most:
            transport.write(_plain(503, b"Service Unavailable", "TOO_MANY_CONNECTIONS"))
            transport.close()
        else:
            self._await_head()

    def data_received(self, data: bytes) -> None:
        """Some of a request."""
        if self._head is None and self.conn.their_state is h11.IDLE:
            self._await_head()
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._head_is_there()

    def send_400_response(self, msg: str) -> None:
        """What came is no HTTP."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.write(_plain(400, b"Bad Request", "BAD_REQUEST"))
        self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone."""
        self._head_is_there()
        self._reads_again()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """The client does not read what was sent."""
        super().pause_writing()
        if self._unread is None:
            self._unread = self.loop.call_later(_UNREAD_S, self.transport.abort)

    def resume_writing(self) -> None:
        """It does again."""
        self._reads_again()
        super().resume_writing()

    def _await_head(self) -> None:
        self._head = self.loop.call_later(self._limits.head_timeout_s, self.transport.abort)

    def _head_is_there(self) -> None:
        if self._head is not None:
            self._head.cancel()
            self._head = None

    def _reads_again(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None


_MESSAGES: Final = {
    "TOO_MANY_CONNECTIONS": "Too many connections are open.",
    "BAD_REQUEST": "This is no HTTP request.",
}


def _plain(status: int, phrase: bytes, code: str) -> bytes:
    """An answer to what has not become a request."""
    body = orjson.dumps({"error": {"code": code, "message": _MESSAGES[code]}})
    head = b"HTTP/1.1 %d %b\r\ncontent-type: application/json\r\ncontent-length: %d\r\n"
    return head % (status, phrase, len(body)) + b"connection: close\r\n\r\n" + body
